"""The package: what it imports, what an import costs, which names are public; its documents."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from packaging.version import Version

import heedmap

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "heedmap"
FILES = sorted(SOURCE.rglob("*.py"))
SITE = ROOT / "scripts" / "site"  # the site's build checks the links of its pages
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("scripts/**/*.md"), *SOURCE.rglob("*.md")]
PAGES = [page for page in PAGES if SITE not in page.parents]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

# --- what is declared -------------------------------------------------------------------------

MODULES = {
    "huggingface-hub": "huggingface_hub",
    "pillow": "PIL",
    "typing-extensions": "typing_extensions",
}
"""The modules of packages whose names differ."""


def requirements(*extras: str) -> set[str]:
    """The packages that heedmap requires, with those of some extras."""
    lines = [*PROJECT["project"]["dependencies"]]
    for extra in extras:
        lines += PROJECT["project"]["optional-dependencies"][extra]
    return {re.split(r"[^\w.-]", line)[0].lower() for line in lines} - {"heedmap"}


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    ("folder", "extras"), [("", ()), ("app", ("app",)), ("sweeps", ("sweep",))]
)
def test_modules_import_only_declared_packages(folder: str, extras: tuple[str, ...]):
    declared = {MODULES.get(name, name) for name in requirements(*extras)}
    known = declared | set(sys.stdlib_module_names) | {"heedmap"}
    for path in FILES:
        package = path.relative_to(SOURCE).parts[0]
        if folder in (package, "") and (folder or package not in ("app", "sweeps")):
            assert imported_packages(path) <= known, path


def test_requirements_are_pinned():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert requirements(*PROJECT["project"]["optional-dependencies"]) <= pins


def test_version_and_licence_are_stated_alike():
    version = Version(PROJECT["tool"]["hatch"]["version"]["fallback-version"])
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    (cited,) = re.findall("^version: (.+)$", citation, re.MULTILINE)
    assert Version(cited).release <= version.release
    assert f"\nlicense: {PROJECT['project']['license']}\n" in citation
    installed = heedmap.__version__
    assert installed == "unknown" or Version(installed).release >= version.release


# --- names and documents ----------------------------------------------------------------------


def test_public_names_are_those_that_type_checkers_see():
    tree = ast.parse((SOURCE / "__init__.pyi").read_text("utf-8"))
    names = []
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or node.module == "heedmap":
            continue
        module = import_module(node.module or "heedmap")
        for alias in node.names:
            assert getattr(heedmap, alias.name) is getattr(module, alias.name)
            names.append(alias.name)
    assert sorted(names) == heedmap.__all__
    assert {*names} <= {*dir(heedmap)}
    with pytest.raises(AttributeError):
        heedmap.nonsense  # noqa: B018


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_a_file_and_a_heading(page: Path):
    for link in re.findall(r"\]\((?!https://)([^)]+)\)", page.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            assert anchor in [one.lower().replace(" ", "-") for one in headings], link


# --- what an import costs ---------------------------------------------------------------------

PROBE = """
import json, sys
try:
    {code}
except SystemExit as stop:
    assert not stop.code, stop.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded_by(code: str, folder: Path) -> set[str]:
    """The modules and packages that a fresh interpreter has after running `code`."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(code=code)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def import_of(*packages: str) -> str:
    """The statement that imports the modules of some packages and files."""
    modules = []
    for path in FILES:
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] in packages:
            modules.append(".".join(["heedmap", *parts]).removesuffix(".__init__"))
    return f"import {', '.join(modules)}"


# Without the backends, `inspect` and the page of a run are read and shown.
LIGHT = ("checks", "errors", "figures", "io", "maps", "options", "page", "results", "text", "tiny")
MODEL = {"torch", "diffusers", "transformers", "accelerate", "scipy"}
HEAVY = MODEL | {"matplotlib", "numpy", "PIL"}
CLI = "from heedmap.cli import app; app"
RUN = "import heedmap; run = heedmap.Run.load('run'); run.maps['house'].overlay()"


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import heedmap", HEAVY | {"typer", "rich"}),
        (import_of("text"), HEAVY - {"PIL"}),
        (import_of(*LIGHT), {"torch", "diffusers"}),
        ("import heedmap.cli.inspect, heedmap.results.grids", {"matplotlib"}),
        (f"{CLI}(['--help'])", HEAVY | {"rich", "msgspec", "asyncio", "heedmap.maps"}),
        (f"{CLI}(['generate', '--help'])", HEAVY | {"rich", "msgspec", "asyncio"}),
        (f"{CLI}(['words', 'a red house', '--json'])", MODEL - {"transformers"} | {"matplotlib"}),
        pytest.param(
            f"{CLI}(['inspect', 'run', '--refined', '--quiet'])",
            MODEL | {"tokenizers", "skimage", "matplotlib.pyplot", "rich", "heedmap.pipelines"},
            marks=pytest.mark.slow,
        ),
        pytest.param(RUN, {"torch", "diffusers"}, marks=pytest.mark.slow),
    ],
    ids=lambda value: value[-40:] if isinstance(value, str) else "",
)
def test_libraries_are_loaded_where_they_are_needed(code: str, unwanted: set[str], tmp_path: Path):
    if "run" in code:
        from making import random_run, with_refined

        with_refined(random_run("a house")).save(tmp_path / "run", overlays=False)
    assert not loaded_by(code, tmp_path) & unwanted
