"""The lesson runs from its first cell to its last, and what it tells is so."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parents[2] / "scripts" / "tutorial.ipynb"
# Run after the last cell: what the text says of the numbers, and what they are by other hands.
CHECKS = """
q, k, v = (torch.tensor(one) for one in (Q, K, V))
torch.testing.assert_close(
    torch.tensor(whole.output).float(),
    torch.nn.functional.scaled_dot_product_attention(q, k, v), atol=1e-5, rtol=1e-4,
)
assert np.abs(whole.probabilities[head, place] - row).max() < 1e-6
assert np.abs(whole.probabilities[..., recording.positions] - recorded).max() < 1e-5
assert np.abs(why.attention.probabilities - row).max() < 1e-5
assert 0.1 < row[tokens.index("house")] < 0.5 and factor > 1.05, "a row with something to see"
assert np.abs(same - smooth).max() < 1e-5

saturated, divided = largest["as it is"], largest["divided by √d"]
assert saturated == sorted(saturated) and saturated[-1] > 0.9 and max(divided) < 0.2
assert whole.unscaled_probabilities.max(-1).mean() > 1.5 * whole.probabilities.max(-1).mean()
assert (masked.probabilities[..., ~seen] == 0).all()
assert np.abs(np.corrcoef([one.ravel() for one in heads]) - np.eye(len(heads))).max() < 0.9

assert written[0][1:5] == ["je", "suis", "étudiant", "<end>"]
assert written[1][1:] == ["elle", "est", "un", "peintre", "heureux", "<end>"] and mixed == written
first, second = ("I am a student".split(), "she is a happy painter".split())
assert shares[0][2, first.index("student")] > 0.5 and (shares[0][:, 5:] == 0).all()
assert shares[1][3, second.index("painter")] > 0.5 < shares[1][4, second.index("happy")]
assert correct > 0.95 and pointing > 0.95

assert abs(one_alone.probabilities[0] - 0.99) < 1e-9
assert np.abs(shuffled.output - whole.output).max() < 1e-12
"""


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_tutorial_is_saved_without_outputs():
    notebook = nbformat.read(TUTORIAL, 4)
    nbformat.validate(notebook)
    for cell in code_cells(notebook):
        assert not cell.outputs and cell.execution_count is None, "clear the outputs"


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path):
    notebook = nbformat.read(TUTORIAL, 4)
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS))
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    shown: dict[str, dict] = {}
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", f"litter: {output['text']}"
            shown.setdefault(cell.source.splitlines()[-1], {}).update(output.get("data", {}))
    for name in ("run", "why"):
        page = shown[name]["text/html"]
        assert page.startswith("<img ") or ("<iframe srcdoc=" in page and "sandbox=" in page)
    pictures = [name for name, data in shown.items() if "image/png" in data]
    assert {'run.timeline("house")', "pair.figure()", "strip.figure()", "plt.show()"} < {*pictures}
    assert not list(tmp_path.iterdir()), "nothing was asked to be saved"
