"""A page in one file: what is in it is escaped, all else is forbidden."""

import base64
import hashlib
import json
import re

from making import data_of, made_explanation

from heedmap.page import packing, pages

TEMPLATE = (
    '<title>{{title}}</title><meta content="{{policy}}"><style>{{style}}</style>{{body}}'
    "<script>{{script}}</script>"
)


def test_the_content_policy_has_the_hashes_of_style_and_script():
    page = pages.document(TEMPLATE, "a", "p {}", "x = 1;", body="<p>{{style}}</p>")
    for name, text in (("style", "p {}"), ("script", "x = 1;")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert "<p>{{style}}</p>" in page  # a part is not filled in again


def test_title_and_data_are_escaped():
    page = pages.document(TEMPLATE, "</title><b>\ud800", "", "", body="")
    assert "&lt;/title&gt;&lt;b&gt;" in page
    data = {"a": "</script><!--&\u2028"}
    text = packing.as_script(data)
    assert not re.search("[<>&\u2028]", text) and json.loads(text) == data


def test_the_page_of_an_explanation_is_self_contained(tmp_path):
    folder = made_explanation().save(tmp_path / "x")
    page = (folder / "index.html").read_text("utf-8")
    assert data_of(page) == json.loads((folder / "explain.json").read_text("utf-8"))
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert set(re.findall(r"https?:[^\"]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
