"""A release is of one version and date everywhere, and what is published beside it is complete."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
import yaml
from huggingface_hub import SpaceCardData
from nbformat import NotebookNode

import release

ROOT = Path(__file__).parents[2]
CHANGES = "# Changelog\n\n## [1.2.0] - 2026-12-01\n\n- New.\n\n## [1.1.0] - 2026-11-01\n\n- Old.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The documents of a repository that is ready to be released as 1.2.0."""
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\ndate-released: 2026-12-01\n")
    return tmp_path


def test_a_release_that_agrees_passes(root: Path):
    names = ("heedmap-1.2.0-py3-none-any.whl", "heedmap-1.2.0.tar.gz")
    release.check("v1.2.0", [Path("dist", name) for name in names], root)
    assert release.notes("v1.2.0", root)[1] == "- New."
    assert release.notes("v1.1.0", root)[1] == "- Old."


@pytest.mark.parametrize("tag", ["1.2.0", "v1.2", "v1.2.0.dev1", "v1.3.0", "v1.1.0"])
def test_a_tag_that_the_documents_do_not_state_is_refused(root: Path, tag: str):
    with pytest.raises(SystemExit):
        release.check(tag, [], root)


@pytest.mark.parametrize("name", ["heedmap-1.2.1-py3-none-any.whl", "heedmap-1.2.0.dev1.tar.gz"])
def test_a_package_of_another_version_is_refused(root: Path, name: str):
    with pytest.raises(SystemExit):
        release.check("v1.2.0", [Path(name)], root)


def test_another_date_is_refused(root: Path):
    (root / "CITATION.cff").write_text("version: 1.2.0\ndate-released: 2026-12-02\n")
    with pytest.raises(SystemExit):
        release.check("v1.2.0", [], root)


def test_links_of_the_readme_lead_to_the_tag():
    text = (ROOT / "README.md").read_text("utf-8")
    shown = release.published_readme(text, "https://host/owner/name", "v1.2.0")
    targets = re.findall(r"\]\(([^)]+)\)", shown)
    assert targets and all(target.startswith("https://") for target in targets)
    assert "https://host/owner/name/raw/v1.2.0/outputs/gallery/red-house-blue-tree.png" in targets
    assert "\npip install heedmap\n" in shown and "<this repository>" not in shown
    with pytest.raises(SystemExit):
        release.published_readme(shown, "https://host/owner/name", "v1.2.0")


def test_the_space_is_complete(tmp_path: Path):
    folder = release.write_space(tmp_path / "space")
    assert {path.name for path in folder.iterdir()} == {"README.md", "app.py", "requirements.txt"}
    front = (folder / "README.md").read_text("utf-8").split("---")[1]
    card = SpaceCardData(**yaml.safe_load(front))
    assert (folder / str(card.app_file)).exists() and card.sdk == "gradio"
    tree = ast.parse((folder / "app.py").read_text("utf-8"))
    assert len(tree.body) == 2


def test_the_notebook_for_colab_installs_before_it_imports(tmp_path: Path):
    notebook: NotebookNode = nbformat.read(release.write_colab(tmp_path / "x.ipynb"), as_version=4)
    nbformat.validate(notebook)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert code[0] == release.INSTALL
    assert len(code) > 20


def test_workflows_call_what_exists():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
        assert {need for job in jobs.values() for need in _needs(job)} <= set(jobs)
        for step in (step for job in jobs.values() for step in job["steps"]):
            for word in step.get("run", "").split():
                assert not word.startswith(("scripts/", ".ci/")) or (ROOT / word).exists(), word


def _needs(job: dict) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs
