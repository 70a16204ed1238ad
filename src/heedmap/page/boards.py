"""The page of an explanation: one HTML file whose script shows `explain.json`."""

from typing import Any

from PIL import Image

from heedmap.figures import overlays
from heedmap.page.documents import as_script, document, link, page_part


def board(content: dict[str, Any], image: Image.Image) -> str:
    """Return the page of an explanation.

    Args:
        content: the content of `explain.json`.
        image: the image of the run.
    """
    about = content["about"]
    return document(
        page_part("board/board.html"),
        f"{about['word']} at {about['at'][0]},{about['at'][1]}",
        page_part("assets/base.css") + page_part("board/board.css"),
        page_part("assets/dom.js") + page_part("board/board.js") + "dom.bindFrame();\n",
        picture=link(overlays.enlarge(image, short_side=1), "png", optimize=True),
        data=as_script(content),
    )
