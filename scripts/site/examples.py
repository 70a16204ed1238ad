"""Results of the embedded models that pages link, and the notebooks as pages."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

HOUSE = "a red house next to a blue tree"


KINDS = ("run", "joint", "edit", "ablation", "explanation", "grid")
"""The results that pages link, by the names of their files."""


def write_results(folder: Path, *, quick: bool) -> None:
    """Write the page of a result of each kind as `<folder>/<kind>.html`.

    Args:
        folder: where the pages are written.
        quick: whether a run of two steps stands for all of them.
    """
    import heedmap as hm

    pipe = hm.load()
    pipe.set_progress_bar_config(disable=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        if quick:
            hm.generate(pipe, HOUSE, seed=7, steps=2).save(Path(saved, "run"))
        else:
            for kind, result in _results(pipe).items():
                result.save(Path(saved, kind))
        for kind in KINDS:
            page = Path(saved, "run" if quick else kind, "index.html")
            shutil.copyfile(page, folder / f"{kind}.html")


def _results(pipe: Any) -> dict[str, Any]:
    import heedmap as hm

    joint = hm.load("joint")
    joint.set_progress_bar_config(disable=True)
    run = hm.generate(pipe, HOUSE, seed=7, keep={"layer", "step", "head"})
    car = HOUSE.replace("house", "car")
    weights = {"red": [-1, 0, 1, 3]}
    return {
        "run": run,
        "joint": hm.generate(joint, HOUSE, seed=1, keep={"layer", "step"}),
        "edit": hm.edit(pipe, HOUSE, car, seed=7),
        "ablation": hm.ablate(pipe, run, "house"),
        "explanation": hm.explain(pipe, run, "house", at=(40, 80)),
        "grid": hm.grid(pipe, "a red house", weights=weights, seeds=[3]),
    }


def notebook_page(path: Path, folder: Path, images: str, *, run: bool) -> str:
    """Return a notebook as a page.

    Args:
        path: the notebook.
        folder: where the page's images are written.
        images: that folder as the notebook would link it.
        run: whether its cells are run; otherwise they have no output.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter

    notebook: Any = nbformat.read(path, as_version=4)
    if run:
        NotebookClient(notebook, timeout=1200).execute()
    text, parts = MarkdownExporter().from_notebook_node(notebook)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in parts["outputs"].items():
        (folder / f"{path.stem}-{name}").write_bytes(data)
    text = text.replace("](output_", f"]({images}/{path.stem}-output_")
    return _with_formulas(_with_links(text))


def _with_links(text: str) -> str:
    """Return a notebook's text with links to GitHub's anchors in place of Jupyter's."""
    from documents import slug

    def link(found: re.Match[str]) -> str:
        return f"](#{slug(found[1].replace('-', ' '))})"

    return re.sub(r"\]\(#([^)]+)\)", link, text)


def _display(formula: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    return f'<div class="formula">{convert(formula[1], display="block")}</div>'


def _with_formulas(text: str) -> str:
    """Return Markdown with its LaTeX as MathML, which browsers show without scripts."""
    from latex2mathml.converter import convert

    parts = re.split(r"(^```.*?^```$|^    [^\n]*$)", text, flags=re.MULTILINE | re.DOTALL)
    for n in range(0, len(parts), 2):
        block = re.sub(r"\$\$(.+?)\$\$", _display, parts[n])
        parts[n] = re.sub(r"\$([^$\n]+)\$", lambda f: convert(f[1]), block)
    return "".join(parts)
