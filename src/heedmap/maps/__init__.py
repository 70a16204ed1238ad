"""Recordings, and the heat maps, masks, segments and figures made of them; all numpy, no torch."""
