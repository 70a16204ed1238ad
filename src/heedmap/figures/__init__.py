"""Heat over images, animations, and figures of matplotlib; functions of arrays, without torch."""
