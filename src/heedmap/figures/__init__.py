"""Heat over images, and figures of matplotlib; functions of arrays, without torch."""
