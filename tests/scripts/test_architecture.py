"""The picture of the architecture page: what the folders are, and which imports from which."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

import architecture


def test_the_picture_is_up_to_date():
    found = architecture.PICTURE.read_text(encoding="utf-8")
    assert found == architecture.drawn(), "run python scripts/architecture.py, and look at it"


def test_it_is_drawn_by_the_command_that_the_page_names():
    """Whatever else the tests have on their path."""
    folder = Path(architecture.__file__).parent
    code = "import architecture; print(architecture.drawn(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, check=True, encoding="utf-8"
    )
    assert done.stdout == architecture.drawn()


def test_it_is_an_svg_with_each_folder_of_the_house_on_its_floor():
    root = ET.fromstring(architecture.drawn())
    names = {
        node.text: int(node.attrib["y"])
        for node in root.iter("{http://www.w3.org/2000/svg}text")
        if node.attrib.get("font-weight") == "600"
    }
    floors = architecture.house().FLOORS
    folders = {path.parent.name for path in architecture.SOURCE.glob("*/__init__.py")}
    assert set(names) == folders | {"checks", "errors", "options"} == set().union(*floors)
    heights = [{names[name] for name in floor} for floor in floors]
    assert all(len(height) == 1 for height in heights)  # of one floor, at one height
    assert all(min(low) > max(high) for low, high in pairwise(heights))


def test_every_import_is_an_arrow_or_a_way_over_arrows():
    folders = {path.parent.name for path in architecture.SOURCE.glob("*/__init__.py")}
    imports = architecture.imported(folders)
    for name, others in imports.items():  # read again, as text
        found: set[str] = set()
        for path in (architecture.SOURCE / name).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            found |= set(re.findall(r"^\s*from heedmap\.(\w+)", text, re.M))
            found |= set(re.findall(r"^\s*from heedmap import (\w+)", text, re.M))
        assert others == found & folders - {name}
    reached: dict[str, set[str]] = {name: set() for name in imports}
    arrows = architecture.needed(imports)
    for _ in imports:
        for start, end in arrows:
            reached[start] |= {end} | reached[end]
    for name, others in imports.items():
        assert others <= reached[name]


def test_arrows_that_others_tell_are_left_out():
    arrows = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert architecture.needed(arrows) == [("a", "b"), ("a", "d"), ("b", "c"), ("d", "c")]


def test_two_folders_in_one_place_are_told(monkeypatch):
    monkeypatch.setattr(architecture, "COLUMN", {})
    with pytest.raises(SystemExit, match="COLUMN"):
        architecture.drawn()
