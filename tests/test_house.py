"""The house: who may import whom, what an import costs, which names are public."""

import ast
import collections
import dataclasses
import graphlib
import importlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import heedmap
from heedmap import options
from heedmap.app import options as app_options

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "heedmap"

# A folder imports only from folders on floors below its own. The ground, three files, serves all.
FLOORS: list[set[str]] = [
    {"errors", "checks", "options"},
    {"files", "tiny"},
    {"text", "attention", "figures"},
    {"maps"},
    {"wiring", "explorer"},
    {"recording", "models", "results"},
    {"drawing"},
    {"app"},
    {"cli"},
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
KNOW_DIFFUSERS = {"wiring", "recording", "models", "drawing"}
KNOW_TORCH = KNOW_DIFFUSERS | {"attention", "app"}
HEAVY = {"torch", "diffusers", "transformers", "accelerate", "matplotlib", "numpy", "PIL", "scipy"}


def room(path: Path) -> str:
    """The folder that a file is in, as a floor has it; those of the ground are files alone."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names of all a file imports, at the top, inside functions, and for types only."""
    names: set[str] = set()
    package = ["heedmap", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(names)


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix()
)


@each_file
def test_a_folder_imports_only_from_folders_below(path: Path):
    here = room(path)
    assert here in FLOOR, f"{here} stands on no floor: give it one here"
    for name in imports(path):
        if name.partition(".")[0] != "heedmap" or name == "heedmap.__version__":
            continue
        other = name.split(".")[1] if "." in name else ""
        if other not in FLOOR:
            # `from heedmap import x` or `import heedmap`: the public names come from above.
            assert FLOOR[here] == len(FLOORS) - 1, f"{here} imports {name} from the roof"
        elif other != here and other not in FLOORS[0]:
            assert FLOOR[other] < FLOOR[here], f"{here} imports {name}, which is not below it"


def module_of(name: str) -> str:
    """The module that an imported name is, or is in."""
    parts = name.split(".")
    while not (SOURCE.joinpath(*parts[1:]).with_suffix(".py")).exists():
        parts = parts[:-1]
        if SOURCE.joinpath(*parts[1:], "__init__.py").exists():
            break
    return ".".join(parts)


@each_file
def test_a_folder_is_entered_by_its_door(path: Path):
    for name in imports(path):
        parts = module_of(name).split(".") if name.startswith("heedmap.") else []
        if len(parts) > 2 and parts[1] != room(path):
            door = importlib.import_module(f"heedmap.{parts[1]}")
            assert parts[2] in door.__all__, f"{parts[1]} does not hand out {parts[2]}"


def test_no_circle_within_a_folder():
    below = {
        path: {module_of(name) for name in imports(path) if name.startswith("heedmap.")}
        for path in FILES
    }
    names = {
        path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in FILES
    }
    graph = {names[path].removesuffix(".__init__"): found for path, found in below.items()}
    list(graphlib.TopologicalSorter(graph).static_order())


@each_file
def test_knows_only_the_libraries_of_its_floor(path: Path):
    here = room(path)
    known = {name.partition(".")[0] for name in imports(path)}
    assert not known & {"diffusers", "transformers"} or here in KNOW_DIFFUSERS
    assert "torch" not in known or here in KNOW_TORCH
    if here == "text":
        assert known <= set(sys.stdlib_module_names) | {"heedmap"}


@each_file
def test_imports_only_what_is_declared(path: Path):
    packages = {
        "scikit-image": "skimage",
        "pillow": "PIL",
        "typing-extensions": "typing_extensions",
    }
    extras = ("app",) if room(path) == "app" else ()
    declared = {packages.get(name, name) for name in requirements(*extras)}
    known = {name.partition(".")[0] for name in imports(path)}
    assert known <= declared | set(sys.stdlib_module_names) | {"heedmap"}


@each_file
def test_reads_no_file_that_could_run_code(path: Path):
    assert not {name.partition(".")[0] for name in imports(path)} & {"pickle", "marshal", "shelve"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in {"eval", "exec", "torch.load", "np.load"}


@each_file
def test_a_file_is_read_in_one_go(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 350


def test_no_room_for_odds_and_ends():
    assert not [p for p in FILES if re.search("util|helper|common|misc", p.stem)]


def defaults_of(*kinds: type) -> set[str]:
    """The names of fields that have a default which says something."""
    every = [one for kind in kinds for one in dataclasses.fields(kind)]
    return {one.name for one in every if one.default not in (dataclasses.MISSING, None)}


# Where a default lives, and where a second one would be looked for.
HOMES = {
    "options.py": (
        FLOOR.keys() - {"files"},  # what an older file may leave out is what held then
        defaults_of(options.LoadOptions, options.GenerateOptions, options.EditOptions),
    ),
    "app/options.py": ({"app", "cli"}, defaults_of(app_options.Options, app_options.Limits)),
}
OTHERS = {
    ("maps/heatmap.py", "threshold"),  # a word's mask is cut at another height than a blend
    ("app/archives.py", "size"),  # of what is read of a file
}
# What the command line alone has: where nothing is said, one picture is drawn, and so on.
ITS_OWN = {
    ("cli/comparing.py", "scale"),
    ("cli/console.py", "right"),
    ("cli/generating.py", "count"),
    ("cli/grids.py", "count"),
    ("cli/options.py", "kind"),
}


def defaults_in(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """The names in a file that are given a default in its code, and what that is."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            every = [*node.args.posonlyargs, *node.args.args]
            late = every[len(every) - len(node.args.defaults) :]
            yield from zip((arg.arg for arg in late), node.args.defaults, strict=True)
            for arg, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if value is not None:
                    yield arg.arg, value
        elif isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and line.value is not None:
                    yield ast.unparse(line.target), line.value


@each_file
def test_a_default_has_one_home(path: Path):
    """A second number for what an option is by default would be another default some day."""
    file = path.relative_to(SOURCE).as_posix()
    known = {
        name
        for home, (folders, names) in HOMES.items()
        if room(path) in folders and file != home
        for name in names
    }
    for name, value in defaults_in(path):
        if (file, name) in OTHERS | ITS_OWN or not (name in known or room(path) == "cli"):
            continue
        said = [part.value for part in ast.walk(value) if isinstance(part, ast.Constant)]
        second = [one for one in said if one not in (None, False, "")]
        assert not second, f"{file}:{value.lineno}: {name} = {second}"


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("cli/serving.py", "class Bounds:\n    max_steps: int = 100"),
        ("cli/serving.py", "def serve(*, port: Annotated[int, typer.Option(min=0)] = 7860): ..."),
        ("app/worker.py", "class Worker:\n    def __init__(self, device: str = 'auto'): ..."),
        ("drawing/editing.py", "def edit(*, cross=0.8): ..."),
    ],
)
def test_a_second_home_is_found(file: str, line: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(line, encoding="utf-8")
    with pytest.raises(AssertionError, match=rf"^{file}:[12]: "):
        test_a_default_has_one_home(path)


@each_file
def test_functions_are_short_and_take_few_arguments(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            args = node.args
            assert len([*args.posonlyargs, *args.args, *args.kwonlyargs]) <= 12, node.name
            assert node.end_lineno - node.lineno < 80, node.name


@each_file
def test_each_module_has_tests_of_its_own(path: Path):
    """In the folder of the same name; what a door says is tested with what is behind it."""
    if path.stem.startswith("__"):
        return
    name = path.relative_to(SOURCE).as_posix()
    own = (ROOT / "tests" / name).with_name(f"test_{path.name}")
    assert own.exists(), f"{name} has no {own.relative_to(ROOT)}"


# --- names ------------------------------------------------------------------------------------


def test_public_names_resolve():
    for name in heedmap.__all__:
        value = getattr(heedmap, name)
        assert getattr(value, "__name__", name) == name
        assert value.__doc__, f"{name} has no docstring"
    assert list(heedmap.__all__) == sorted(heedmap.__all__)
    assert set(heedmap.__all__) <= set(dir(heedmap))


def test_type_checkers_see_the_same_names():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: (node.module or "").removeprefix("heedmap.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == heedmap._HOME
    assert sorted(seen) == heedmap.__all__


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        heedmap.nonsense  # noqa: B018


@each_file
def test_modules_have_what_they_announce(path: Path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    module = importlib.import_module(".".join(("heedmap", *parts)).removesuffix(".__init__"))
    assert module.__doc__, "a module says what it is for"
    for name in getattr(module, "__all__", []):
        assert hasattr(module, name) or importlib.import_module(f"{module.__name__}.{name}")


@cache
def mentioned() -> collections.Counter[str]:
    """How often src, scripts and README use each name, apart from where it is defined."""
    told = (ROOT / "README.md").read_text(encoding="utf-8")
    names = collections.Counter(re.findall(r"heedmap(?:\.\w+)*\.(\w+)", told))
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                names[node.id] += 1
            elif isinstance(node, ast.Attribute):
                names[node.attr] += 1
            elif isinstance(node, ast.ImportFrom):
                names.update(alias.name for alias in node.names)
    return names


@each_file
def test_nothing_is_there_for_the_tests_alone(path: Path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list:
            own = sum(isinstance(n, ast.Name) and n.id == node.name for n in ast.walk(node))
            assert mentioned()[node.name] > own, f"nobody uses {node.name}: delete it"


# --- what is declared -------------------------------------------------------------------------


@cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(*extras: str) -> set[str]:
    wanted = list(project()["project"]["dependencies"])
    for extra in extras:
        wanted += project()["project"]["optional-dependencies"][extra]
    return {re.split(r"[^\w.-]", line)[0].lower() for line in wanted} - {"heedmap"}


def test_every_requirement_is_pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)
    names = [line.partition("==")[0].lower().replace("_", "-") for line in pins]
    assert len(names) == len(set(names))
    build = {re.split(r"[^\w.-]", line)[0] for line in project()["build-system"]["requires"]}
    extras = project()["project"]["optional-dependencies"]
    assert requirements(*extras) | build <= set(names)


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *ROOT.glob("scripts/*.md"), *SOURCE.rglob("*.md")],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_links_lead_somewhere(page: Path):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_the_citation_says_what_the_project_says():
    """Line by line: the file is YAML, which no dependency reads."""
    said = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M))
    assert said["version"] == project()["project"]["version"]
    assert said["license"] == project()["project"]["license"]
    (author,) = project()["project"]["authors"]
    assert f"  - name: {author['name']}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_version_is_the_one_declared():
    assert heedmap.__version__ in {project()["project"]["version"], "unknown"}  # not installed


# --- what it costs ----------------------------------------------------------------------------

PROBE = """
import json, sys
try:
    {code}
except SystemExit as stop:
    assert not stop.code, stop.code
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})), file=sys.stderr)
"""


def loaded_by(code: str, folder: Path) -> set[str]:
    """The top-level modules that a fresh interpreter has after running `code`."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(code=code)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_import_costs_nothing(tmp_path: Path):
    assert not loaded_by("import heedmap", tmp_path) & (HEAVY | {"typer", "rich"})


@pytest.mark.parametrize(
    "verb",
    ["", "generate", "edit", "grid", "repeat", "inspect", "compare", "words", "layers", "app"],
)
def test_help_loads_nothing_heavy(verb: str, tmp_path: Path):
    code = f"from heedmap.cli import app; app({[*verb.split(), '--help']!r})"
    assert not loaded_by(code, tmp_path) & HEAVY


def test_help_is_instant(tmp_path: Path):
    """At most 0.4 s, median of five, for `heedmap --help` in a fresh process."""
    command = [sys.executable, "-m", "heedmap.cli", "--help"]
    costs: list[float] = []
    for _ in range(6):
        before, start = os.times(), time.perf_counter()
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        wall, after = time.perf_counter() - start, os.times()
        work = sum(after[2:4]) - sum(before[2:4])
        # Where other programs hold the cores, waiting for them is not the command's cost.
        costs.append(wall if os.getloadavg()[0] < (os.cpu_count() or 1) else work)
    assert statistics.median(costs[1:]) <= 0.4, costs  # the first may compile bytecode


def test_words_loads_no_torch(tmp_path: Path):
    """Runs on the embedded model's tokenizer."""
    code = "from heedmap.cli import app; app(['words', 'a red house', '--json'])"
    assert not loaded_by(code, tmp_path) & {"torch", "diffusers", "matplotlib"}


def test_matplotlib_is_loaded_when_a_figure_is_drawn(tmp_path: Path):
    code = "import heedmap.cli.inspecting, heedmap.results.grids, heedmap.results.comparisons"
    assert not loaded_by(code, tmp_path) & {"matplotlib", "torch"}


def test_the_readmes_tables_are_the_cards():
    import readme

    card = json.loads((SOURCE / "tiny" / "model" / "card.json").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, table in readme.tables(card).items():
        assert readme.marked(name, table) in text, "run python scripts/readme.py --table"
    for kind, words in card["draws"].items():
        if kind not in ("relations", "settings"):  # told in other words
            assert ", ".join(words) in text
