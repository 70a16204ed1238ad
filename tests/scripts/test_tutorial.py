"""The lesson runs from its first cell to its last, and what it tells is so."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parents[2] / "scripts" / "tutorial.ipynb"
KOREAN = TUTORIAL.with_name("tutorial.ko.ipynb")
# Run after the first cell of code, which silences tqdm: fewer steps; cells look at step 8.
FEWER = """
from functools import partial
import heedmap as hm
from heedmap import tiny
from msgspec import structs
card = tiny.defaults()
tiny.defaults = lambda name: structs.replace(card, steps=14)
hm.grid = partial(hm.grid, steps=2)
"""
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

assert (by_heads[1] == small_rows[:, 2:]).all(), "a head has columns of its own, of all positions"
assert max(off_torch) < 1e-5 and max(*off_layer.values(), off_block) < 1e-4
assert 0.01 < added.median() < 1, "cross-attention changes a position in part"
scores = torch.randn(77, dtype=torch.float64)
derivatives = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
size = jacobian_size(scores.softmax(-1).numpy())
assert abs(float(derivatives.norm()) - size) < 1e-9
assert gradients["as it is"][-1] < 0.01 and min(gradients["divided by √d"]) > 0.1
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


@pytest.mark.parametrize("path", [TUTORIAL, KOREAN], ids=lambda path: path.name)
def test_a_tutorial_is_saved_without_outputs_and_its_links_lead_somewhere(path: Path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    for cell in code_cells(notebook):
        assert not cell.outputs and cell.execution_count is None, "clear the outputs"
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    headings = {line.replace(" ", "-") for line in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert {link[1:] for link in links if link.startswith("#")} <= headings
    assert len(links) > 12
    for link in links:
        assert link.startswith("#") or (path.parent / link).is_file()


def test_the_korean_tutorial_is_the_english_one_with_other_texts():
    english, korean = (nbformat.read(path, 4) for path in (TUTORIAL, KOREAN))
    assert len(english.cells) == len(korean.cells)
    formulas = r"\$\$.+?\$\$"
    for cell, other in zip(english.cells, korean.cells, strict=True):
        assert (other.id, other.cell_type) == (cell.id, cell.cell_type)
        if cell.cell_type == "code":
            assert other.source == cell.source
        else:
            assert re.search("[가-힣]", other.source) and other.source != cell.source
            assert re.findall(formulas, other.source) == re.findall(formulas, cell.source)
            assert len(other.source.split("\n\n")) == len(cell.source.split("\n\n"))


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path):
    notebook = nbformat.read(TUTORIAL, 4)
    notebook.cells.insert(2, nbformat.v4.new_code_cell(FEWER))
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS))
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    shown: dict[str, dict] = {}
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", f"litter: {output['text']}"
            shown.setdefault(cell.source.splitlines()[-1], {}).update(output.get("data", {}))
    page = shown["why"]["text/html"]
    assert "<iframe srcdoc=" in page and "sandbox=" in page
    pictures = {name for name, data in shown.items() if "image/png" in data}
    assert {
        "run",
        'run.timeline("house")',
        "pair.figure()",
        "strip.figure()",
        "plt.show()",
    } < pictures
    assert not list(tmp_path.iterdir()), "nothing was asked to be saved"
