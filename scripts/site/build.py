"""Build the documentation site into `outputs/site/html`.

    python scripts/site/build.py            some minutes
    python scripts/site/build.py --quick    one short run for all results, notebooks without output,
                                            no demo

The sources are `scripts/site/pages` and the documents of the repository. In a page, a line such as
`<!-- include src/heedmap/GUIDE.md#masks -->` stands for that section, and without "#…" for the
whole document. So a text has one home, and stands on one page. Links between documents become links
between pages. Links to other files lead to the repository whose address the variable
`HEEDMAP_REPOSITORY` holds, such as "https://github.com/owner/heedmap"; without it they are text.

A warning, a link to nothing, and a section of the guide that is on no page are errors.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import checking
import demo
import documents
import examples

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUT = ROOT / "outputs" / "site"
PACKAGES = ROOT / "outputs" / "npm"
"""Where packages of npm are kept from one build to the next."""
GUIDE = "src/heedmap/GUIDE.md"
NOTEBOOKS = {
    "tutorials/cross-attention.md": "scripts/tutorial.ipynb",
    "tutorials/cross-attention.ko.md": "scripts/tutorial.ko.ipynb",
}
"""The notebook of each page that is one."""
CONTEXT = "Examples need `import heedmap as hm` and a pipeline, such as `pipe = hm.load()`."
"""What a section of the guide needs where it stands by itself."""


def write_pages(folder: Path, *, quick: bool, with_demo: bool) -> None:
    """Write the Markdown of all pages, and the files that they show, into an empty folder."""
    source = HERE / "pages"
    paths = sorted(source.rglob("*.md"))
    texts = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in paths}
    shown = demo.WITHOUT
    if with_demo:
        shown = demo.write(folder / "demo", PACKAGES)
    texts["try.md"] = texts["try.md"].replace("<!-- demo -->", shown)
    site = documents.Site(ROOT, os.environ.get("HEEDMAP_REPOSITORY", "").rstrip("/"))
    for page, path in NOTEBOOKS.items():
        site.assign(path, page)
    site.add(texts)
    if missing := site.missing(GUIDE):
        raise SystemExit(f"no page includes these sections of {GUIDE}: {', '.join(missing)}")
    for page, path in NOTEBOOKS.items():
        images = Path(page).parent / "images"
        link = f"site/pages/{images.as_posix()}"  # from the notebook's folder
        text = examples.notebook_page(ROOT / path, folder / images, link, run=not quick)
        site.add_text(page, path, text)
    for page, text in site.pages.items():
        if page.startswith("guide/"):
            title, rest = text.split("\n", 1)
            text = f"{title}\n\n{CONTEXT}\n{rest}"
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, original in site.copied.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, path)


def build(out: Path = OUT, *, quick: bool = False, with_demo: bool = True) -> Path:
    """Build the site anew.

    Args:
        out: the folder of `pages` (the sources) and `html` (the site), which are made anew.
        quick: make one short run for all results, and do not run the notebooks.
        with_demo: export the model for the page where it runs in the browser.

    Returns:
        the folder of the site.

    Raises:
        SystemExit: if something is wrong with a page, or the demo needs npm, which is not there.
    """
    for name in ("pages", "html", ".cache"):
        shutil.rmtree(out / name, ignore_errors=True)
    pages = out / "pages"
    pages.mkdir(parents=True)
    write_pages(pages, quick=quick, with_demo=with_demo)
    examples.write_results(pages / "results", quick=quick)
    for name in ("site.css", "site.js"):
        shutil.copyfile(HERE / name, pages / name)
    settings = (HERE / "zensical.toml").read_text(encoding="utf-8")
    (out / "zensical.toml").write_text(settings.replace("SRC", str(ROOT / "src")), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=out, text=True, capture_output=True)
    said = done.stdout + done.stderr
    warned = re.search(r"^(griffe|warning)|: warning", said, re.IGNORECASE | re.MULTILINE)
    if done.returncode or warned:
        raise SystemExit(said)
    for path in (out / "html").rglob("*.html"):
        if path.parent != out / "html" / "results":
            html = accessible(path.read_text(encoding="utf-8"))
            path.write_text(with_optional(html), encoding="utf-8")
    if dead := checking.dead_links(out / "html"):
        raise SystemExit("links to nothing:\n" + "\n".join(dead))
    return out / "html"


def accessible(html: str) -> str:
    """Return a page with what screen readers and keyboards need, where the builder leaves it out.

    Empty headers of tables are cells, and formulas that scroll can be reached by the keyboard.
    """
    html = html.replace("<th></th>", "<td></td>")
    return html.replace('<div class="formula">', '<div class="formula" tabindex="0">')


def with_optional(html: str) -> str:
    """Return a page of the reference on which options are not called required.

    Arguments that a function takes as `**options` stand in no signature, and so have no type.
    """

    def row(match: re.Match[str]) -> str:
        has_type = re.search(r"<td>\s*</td>", match[0]) is None
        return match[0] if has_type else match[0].replace("required", "optional")

    return re.sub(r'<tr class="doc-section-item">.*?</tr>', row, html, flags=re.DOTALL)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short run, no notebook, no demo")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder of the site's files")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    folder = build(options.out, quick=options.quick, with_demo=not options.quick)
    print(folder / "index.html")


if __name__ == "__main__":
    main()
