"""One HTML file that needs nothing else: style, data and script in it, all else forbidden to it.

What a user typed goes in as JSON, or escaped; the Content-Security-Policy has the hashes of the
style and the script, and lets pictures in that are in the file.
"""

import base64
import hashlib
import html
import io
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from PIL import Image


def document(template: str, title: str, style: str, script: str, **parts: str) -> str:
    """A page: what stands in a template as `{{name}}` is replaced.

    Args:
        template: with the places `title`, `policy`, `style` and `script`, and those of `parts`.
        title: as text.
        style: CSS.
        script: JavaScript.
        parts: what else is put in, as HTML, or as JSON of `as_script`.
    """
    policy = (
        f"default-src 'none'; img-src data: blob:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    every = {
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "policy": html.escape(policy, quote=False),
        "style": style,
        "script": script,
        **parts,
    }
    # In one pass, so that nothing inside of a part is taken for a placeholder.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: every[place[1]], template)


def as_script(data: Mapping[str, Any]) -> str:
    """JSON that no HTML parser can mistake for the end of its element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def page_part(name: str) -> str:
    """A file of a page, by its path within this folder."""
    return resources.files("heedmap.explorer").joinpath(name).read_text(encoding="utf-8")


def link(image: Image.Image, kind: str, **options: Any) -> str:
    """A picture as a data URL."""
    file = io.BytesIO()
    image.save(file, kind.upper(), **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
