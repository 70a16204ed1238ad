"""The tutorial runs from its first cell to its last, and shows what it talks about."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parents[2] / "scripts" / "tutorial.ipynb"


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_tutorial_is_kept_without_what_it_made():
    notebook = nbformat.read(TUTORIAL, 4)
    nbformat.validate(notebook)
    for cell in code_cells(notebook):
        assert not cell.outputs and cell.execution_count is None, "clear the outputs"


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path):
    notebook = nbformat.read(TUTORIAL, 4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    shown: dict[str, dict] = {}
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.output_type != "error"
            shown.setdefault(cell.source.splitlines()[-1], {}).update(output.get("data", {}))
    for name in ("run", "pair"):
        page = shown[name]["text/html"]
        assert page.startswith("<iframe srcdoc=") and "sandbox=" in page
    pictures = [name for name, data in shown.items() if "image/png" in data]
    assert {"house", "run.sheet()", 'run.timeline("house")', "strip.sheet()"} <= set(pictures)
    assert not list(tmp_path.iterdir()), "nothing was asked to be saved"
