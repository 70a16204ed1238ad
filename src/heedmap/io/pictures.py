"""What tells the pixels of a picture from those of others."""

import hashlib

from PIL import Image


def digest_of(image: Image.Image) -> str:
    """The SHA-256 of a picture's pixels, 8-bit RGB, row by row, as settings note it."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()
