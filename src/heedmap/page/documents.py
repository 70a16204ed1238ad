"""Self-contained HTML documents: templates, and what may stand in them."""

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
    """Fill a template: HTML with `{{title}}`, `{{policy}}`, `{{style}}`, `{{script}}` and parts.

    The title is plain text; other parts are HTML, or JSON from `as_script`.
    """
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    )
    policy = (
        f"default-src 'none'; img-src data: blob:; style-src 'sha256-{style_hash}'; "
        f"script-src 'sha256-{script_hash}'; base-uri 'none'; form-action 'none'"
    )
    title = html.escape(title.encode("utf-8", "replace").decode("utf-8"))
    every = {"title": title, "policy": policy, "style": style, "script": script, **parts}
    # In one pass: a part may contain braces.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: every[place[1]], template)


def as_script(data: Mapping[str, Any]) -> str:
    """Encode data as JSON that cannot end an HTML element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def page_part(name: str) -> str:
    """Read a file of a page by its path within this folder."""
    return resources.files("heedmap.page").joinpath(name).read_text(encoding="utf-8")


def link(image: Image.Image, kind: str, **options: Any) -> str:
    """Return an image as a data URL."""
    file = io.BytesIO()
    image.save(file, kind.upper(), **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
