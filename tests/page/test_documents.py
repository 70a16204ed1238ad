"""A page in one file: what is in it is escaped, all else is forbidden."""

import base64
import hashlib
import io
import json
import re

from PIL import Image

from heedmap.page import documents

TEMPLATE = (
    '<title>{{title}}</title><meta content="{{policy}}"><style>{{style}}</style>{{body}}'
    "<script>{{script}}</script>"
)


def test_the_policy_has_the_hashes_of_what_is_there():
    made = documents.document(TEMPLATE, "a", "p {}", "x = 1;", body="<p>{{style}}</p>")
    for name, what in (("style", "p {}"), ("script", "x = 1;")):
        digest = base64.b64encode(hashlib.sha256(what.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in made
    assert "default-src 'none'" in made
    assert "<p>{{style}}</p>" in made  # what is put in is not looked through again


def test_a_title_and_data_are_no_markup():
    made = documents.document(TEMPLATE, "</title><b>\ud800", "", "", body="")
    assert "&lt;/title&gt;&lt;b&gt;" in made
    held = {"a": "</script><!--&\u2028"}
    said = documents.as_script(held)
    assert not re.search("[<>&\u2028]", said) and json.loads(said) == held


def test_a_picture_as_a_link():
    image = Image.new("RGB", (3, 2), (1, 2, 3))
    kind, _, data = documents.link(image, "png").partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as back:
        assert back.tobytes() == image.tobytes()


def test_the_parts_are_there():
    for name in ("assets/page.html", "board/board.html"):
        assert "{{data}}" in documents.page_part(name)
