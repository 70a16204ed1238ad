"""A page in one file: what is in it is escaped, all else is forbidden."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

from making import data_of, random_explanation, small, with_settings

from heedmap.checks import ROUNDING
from heedmap.page import packing, pages

HOSTILE = 'a <img src=x onerror="alert(1)"> </script><script>alert(2)</script> & {{style}}\u2028'


def test_typed_text_never_becomes_html():
    data = {"a": HOSTILE}
    text = packing.as_script(data)
    assert not re.search("[<>&\u2028]", text) and json.loads(text) == data
    arguments = {HOSTILE: HOSTILE}
    run = with_settings(small(HOSTILE), negative=HOSTILE, arguments=arguments, model=HOSTILE)
    page = pages.run_page(run)
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<img" not in page and f"<title>{html.escape(HOSTILE)} " in page
    pieces = data_of(page)["maps"]["runs"][0]["prompts"][0]["pieces"]
    assert "".join(text for text, *_ in pieces) == HOSTILE
    framed = pages.frame(page)
    assert framed.count("<") == 2 and 'sandbox="allow-scripts allow-downloads"' in framed


def test_the_content_policy_allows_only_the_pages_style_and_script():
    page = pages.run_page(small())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; img-src data: blob:;")
    assert "unsafe" not in policy and "http" not in policy
    for name in ("style", "script"):
        *_, content = re.findall(rf"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.findall(r"""(?:src|href)=["']?(?!data:)[^"'> ]""", text)
    assert not re.search(r"\son\w+=|style=", text)


def test_the_page_and_python_have_one_rounding_constant():
    folder = Path(pages.__file__).parent / "assets"
    (found,) = re.findall(r"const ROUNDING = (\S+);", (folder / "drawing.js").read_text())
    assert float(found) == ROUNDING


def test_the_page_of_an_explanation_is_self_contained(tmp_path):
    folder = random_explanation().save(tmp_path / "x")
    page = (folder / "index.html").read_text("utf-8")
    assert data_of(page) == json.loads((folder / "explain.json").read_text("utf-8"))
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert set(re.findall(r"https?:[^\"]+", page)) == {"http://www.w3.org/2000/svg"}
