"""The page of an explanation, which shows how one attention probability is computed.

It is one HTML file, whose script shows `explain.json`. The file can be downloaded from the page.
"""

from html import escape

from PIL import Image

from heedmap.figures import overlays
from heedmap.io.explanations import ExplanationFile
from heedmap.io.values import to_json
from heedmap.page.documents import as_script, document, link, page_part

_CODE = """\
import base64, json, numpy as np

with open("explain.json", encoding="utf-8") as file:
    content = json.load(file)
given = {{name: np.frombuffer(base64.b64decode(held["float32"]), "<f4").reshape(held["shape"])
         for name, held in content["given"].items() if isinstance(held, dict)}}
q, k, v = (given[name][{head}].astype(float) for name in ("query", "key", "value"))
s = k @ q * content["given"]["scale"]{mask}
p = np.exp(s - s.max()) / np.exp(s - s.max()).sum()      # content["shown"]["probabilities"]
o = {acted} @ v  # content["shown"]["output"]
w_o = given["weight"].T.astype(float)  # torch keeps W_O transposed
brought = np.linalg.norm({acted}[:, None] * v @ w_o[{rows}], axis=1)  # content["shown"]["brought"]
y = np.array(content["shown"]["joined"]) @ w_o{added}  # content["shown"]["together"]
y /= content["given"]["factor"]"""


def board(content: ExplanationFile, image: Image.Image) -> str:
    """Return the page of an explanation.

    Args:
        content: the content of `explain.json`.
        image: the image of the run.
    """
    about = content.about
    return document(
        page_part("board/board.html"),
        f"{about.word} at {about.at[0]},{about.at[1]}",
        page_part("board/board.css"),
        page_part("assets/dom.js") + page_part("board/board.js") + "dom.bindFrame();\n",
        code=escape(_code(content)),
        picture=link(overlays.enlarge(image, short_side=1), "png", optimize=True),
        data=as_script(to_json(content)),
    )


def _code(content: ExplanationFile) -> str:
    """Return Python that computes the numbers from `explain.json`."""
    h, given = content.about.head, content.given
    d_v = given.value.shape[-1]
    added = {"bias": given.bias, "residual": given.residual}
    return _CODE.format(
        head=h,
        mask="" if given.mask is None else f' + given["mask"][{h}]',
        acted="p" if given.edited is None else f'given["edited"][{h}]',
        rows=f"{h * d_v}:{(h + 1) * d_v}",
        added="".join(f' + given["{name}"]' for name, held in added.items() if held),
    )
