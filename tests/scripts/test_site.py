"""The pages of the site: includes, links and anchors, and what the build refuses."""

import re
from pathlib import Path

import nbformat
import pytest

import checking
import demo
import documents
import examples
import heedmap

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "scripts" / "site" / "pages"
GUIDE = """# Guide

## Maps

See [masks](#masks), [the list](other/README.md#a-list) and [code](code.py).

```python
## not a heading
```

### Scales

Text.

## Masks

![a picture](picture.png)
"""


@pytest.fixture
def site(tmp_path: Path) -> documents.Site:
    """A repository with a guide, and a site without pages."""
    (tmp_path / "GUIDE.md").write_text(GUIDE)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text(
        "# Other\n\n## A list\n\n[maps](../GUIDE.md#maps)\n"
    )
    for name in ("code.py", "picture.png"):
        (tmp_path / name).touch()
    return documents.Site(tmp_path)


PARTS = {
    "guide/maps.md": "<!-- include GUIDE.md#maps -->",
    "guide/masks.md": "# Own title\n\n<!-- include GUIDE.md#masks -->",
    "other.md": "<!-- include other/README.md -->",
}


def test_a_section_is_a_page(site: documents.Site):
    site.add(PARTS)
    lines = site.pages["guide/maps.md"].splitlines()
    assert lines[0] == "# Maps {#maps}" and "## Scales {#scales}" in lines
    assert "## not a heading" in lines
    assert "## Masks {#masks}" in site.pages["guide/masks.md"].splitlines()
    assert site.missing("GUIDE.md") == []


def test_links_between_documents_become_links_between_pages(site: documents.Site):
    site.add(PARTS)
    maps = site.pages["guide/maps.md"]
    assert "[masks](masks.md#masks)" in maps and "[the list](../other.md#a-list)" in maps
    assert "[maps](guide/maps.md#maps)" in site.pages["other.md"]
    assert "![a picture](../assets/picture.png)" in site.pages["guide/masks.md"]
    assert site.copied == {"assets/picture.png": site.root / "picture.png"}


def test_a_link_to_a_file_is_one_to_the_repository_where_that_is_known(site: documents.Site):
    site.add(PARTS)
    assert " and code." in site.pages["guide/maps.md"]
    known = documents.Site(site.root, "https://host/owner/name")
    known.add(PARTS)
    assert "[code](https://host/owner/name/blob/main/code.py)" in known.pages["guide/maps.md"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("twice.md", "<!-- include GUIDE.md#maps -->"),
        ("nothing.md", "<!-- include GUIDE.md#nothing -->"),
        ("dead.md", "[dead](../../../GUIDE.md#nothing)"),
        ("gone.md", "[gone](../../../gone.md)"),
    ],
)
def test_a_mistake_in_a_page_is_an_error(site: documents.Site, page: str, text: str):
    with pytest.raises(ValueError):
        site.add({**PARTS, page: text})


def test_a_section_on_no_page_is_found(site: documents.Site):
    site.add({"maps.md": "<!-- include GUIDE.md without maps -->"})
    assert site.missing("GUIDE.md") == ["maps"]


def test_dead_links_are_found(tmp_path: Path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x"></a><a href="c.html"></a><img src="d.png">'
    )
    (tmp_path / "b.html").write_text('<p id="y"><a href="a.html">a</a><a href="https://host/"></a>')
    assert checking.dead_links(tmp_path) == [
        f"a.html: {x}" for x in ("b.html#x", "c.html", "d.png")
    ]
    (tmp_path / "b.html").write_text('<p id="x">')
    assert len(checking.dead_links(tmp_path)) == 2


def test_the_reference_has_all_public_names():
    pages = (PAGES / "reference" / "python").iterdir()
    text = "\n".join(page.read_text("utf-8") for page in pages)
    assert sorted(re.findall(r"^::: heedmap\.(\w+)$", text, re.MULTILINE)) == heedmap.__all__


def test_the_builder_is_given_no_page_that_it_does_not_show():
    settings = (PAGES.parent / "zensical.toml").read_text("utf-8")
    shown = set(re.findall(r'"([\w./-]+\.md)"', settings))
    notebooks = {"tutorials/cross-attention.md", "tutorials/cross-attention.ko.md"}
    assert shown == notebooks | {path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md")}


def test_formulas_of_a_notebook_are_mathml_and_its_code_stays(tmp_path: Path):
    pytest.importorskip("latex2mathml", reason="pip install -c constraints.txt -e '.[dev]'")
    pytest.importorskip("nbconvert", reason="pip install -c constraints.txt -e '.[dev]'")
    cells = [
        nbformat.v4.new_markdown_cell("# Title\n\n[first](#1.-A-part)\n\n## 1. A part\n\n$Q$"),
        nbformat.v4.new_code_cell("price = '$1 and $2'"),
        nbformat.v4.new_markdown_cell("Then $\\sqrt d$ and $$P = \\frac{Q}{2}$$"),
    ]
    path = tmp_path / "lesson.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    page = examples.notebook_page(path, tmp_path / "images", "images", run=False)
    assert page.count("<math") == 3 and page.count('display="block"') == 1
    assert "price = '$1 and $2'" in page and "[first](#1-a-part)" in page


def test_the_demo_needs_the_package_whose_checksum_it_knows(tmp_path: Path):
    (tmp_path / "onnxruntime-web-1.30.0.tgz").write_bytes(b"another one")
    with pytest.raises(ValueError):
        demo.fetch(tmp_path)


def test_the_demo_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="npm"):
        demo.fetch(tmp_path / "npm")
