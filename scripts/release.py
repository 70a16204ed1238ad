"""Prepare a release: check its tag, and make what is published beside the package.

    python scripts/release.py check v0.3.0 dist/*     do changelog, citation and packages agree?
    python scripts/release.py notes v0.3.0            the changelog of this version
    python scripts/release.py readme URL v0.3.0       README.md for PyPI: its links lead to the tag
    python scripts/release.py space                   outputs/space: a Space for Hugging Face
    python scripts/release.py colab                   outputs/heedmap.ipynb: the tutorial for Colab

To release: head the changes with "## [0.3.0] - 2026-12-01", write the same version and
`date-released` into `CITATION.cff`, set `fallback-version` in `pyproject.toml` to what comes next,
and push the tag. `.github/workflows/release.yml` does the rest.
"""

import argparse
import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPACE = {
    "README.md": """---
title: heedmap
emoji: 🔥
colorFrom: red
colorTo: yellow
sdk: gradio
app_file: app.py
python_version: "3.12"
license: apache-2.0
short_description: See where a text-to-image model reads each word
---

Type a prompt, and hover over its words: where did the model read them? This Space runs the small
models that [heedmap](https://pypi.org/project/heedmap/) includes, on a CPU.
""",
    "requirements.txt": "heedmap[app]\n",
    "app.py": """from heedmap.app import build

build().launch()
""",
}
"""The files of the Space."""
UNPUBLISHED = "pip install git+<this repository>    # once it is published: pip install heedmap"
"""The line of README.md that PyPI shows as the command for a published package."""
INSTALL = "%pip install --quiet heedmap"
"""The first cell of the notebook for Colab."""


def version_of(tag: str) -> str:
    """Return the version of a tag; raise SystemExit if it is of another form."""
    found = re.fullmatch(r"v(\d+\.\d+\.\d+((a|b|rc)\d+)?)", tag)
    if found is None:
        raise SystemExit(f"{tag} is no tag of a release: expected one such as v0.3.0")
    return found[1]


def notes(tag: str, root: Path = ROOT) -> tuple[datetime.date, str]:
    """Return the date and the changes of a version.

    Raises:
        SystemExit: if the changelog does not have it, or nothing in it.
    """
    version = version_of(tag)
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$"
    found = re.search(rf"{heading}(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not found[2].strip():
        raise SystemExit(f"CHANGELOG.md has no changes below a line '## [{version}] - YYYY-MM-DD'")
    return datetime.date.fromisoformat(found[1]), found[2].strip()


def check(tag: str, packages: Sequence[Path] = (), root: Path = ROOT) -> None:
    """Check that changelog, citation and built packages are of one version and date.

    Raises:
        SystemExit: if one is not.
    """
    version = version_of(tag)
    date, _ = notes(tag, root)
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    for line in (f"version: {version}", f"date-released: {date}"):
        if line not in citation.splitlines():
            raise SystemExit(f"CITATION.cff needs a line '{line}'")
    for path in packages:
        if not path.name.startswith((f"heedmap-{version}-", f"heedmap-{version}.tar")):
            raise SystemExit(f"{path.name} is not of version {version}")


def published_readme(text: str, repository: str, tag: str) -> str:
    """Return README.md as PyPI shows it.

    Args:
        text: README.md.
        repository: its address, such as "https://github.com/owner/heedmap".
        tag: the tag that relative links lead to.

    Raises:
        SystemExit: if the line that installs heedmap is another.
    """
    if UNPUBLISHED not in text:
        raise SystemExit(f"README.md has no line '{UNPUBLISHED}'")
    text = text.replace(UNPUBLISHED, "pip install heedmap")
    text = text.replace("<this repository>", repository)
    images = r"(!\[[^\]]*\])\((?!https?:|#)([^)]+)\)"
    text = re.sub(images, rf"\1({repository}/raw/{tag}/\2)", text)
    return re.sub(r"\]\((?!https?:|#)([^)]+)\)", rf"]({repository}/blob/{tag}/\1)", text)


def write_space(folder: Path) -> Path:
    """Write the files of the Space into a folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SPACE.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def write_colab(path: Path) -> Path:
    """Write the tutorial with a first cell that installs heedmap, and return its path."""
    notebook = json.loads((ROOT / "scripts" / "tutorial.ipynb").read_text(encoding="utf-8"))
    title, *cells = notebook["cells"]
    install = {"cell_type": "code", "execution_count": None, "id": "install"}
    install |= {"metadata": {}, "outputs": [], "source": [INSTALL]}
    notebook["cells"] = [title, install, *cells]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    checked = tasks.add_parser("check", help="do changelog, citation and packages agree?")
    checked.add_argument("tag")
    checked.add_argument("packages", nargs="*", type=Path)
    tasks.add_parser("notes", help="print the changes of a version").add_argument("tag")
    readme = tasks.add_parser("readme", help="write README.md for PyPI")
    readme.add_argument("repository")
    readme.add_argument("tag")
    space = tasks.add_parser("space", help="write the files of a Space")
    space.add_argument("--out", type=Path, default=ROOT / "outputs" / "space")
    colab = tasks.add_parser("colab", help="write the tutorial for Colab")
    colab.add_argument("--out", type=Path, default=ROOT / "outputs" / "heedmap.ipynb")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.task == "check":
        check(options.tag, options.packages)
    elif options.task == "notes":
        print(notes(options.tag)[1])
    elif options.task == "readme":
        path = ROOT / "README.md"
        text = path.read_text(encoding="utf-8")
        text = published_readme(text, options.repository, options.tag)
        path.write_text(text, encoding="utf-8")
    elif options.task == "space":
        print(write_space(options.out))
    else:
        print(write_colab(options.out))


if __name__ == "__main__":
    sys.exit(main())
