"""The table of diffusers' pipelines: current, whole, and of quick refusals."""

import importlib.util
from inspect import signature
from pathlib import Path
from time import process_time

import pytest
from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING

from heedmap.backends.registry import encoding_method, family_named
from heedmap.errors import ModelError

ROOT = Path(__file__).parents[2]
# Not by its name, which is that of a folder of tests.
SPEC = importlib.util.spec_from_file_location("listing", ROOT / "scripts" / "pipelines.py")
listing = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(listing)
KINDS = listing.pipelines()


def test_the_table_of_the_page_is_that_of_the_installed_diffusers():
    text = listing.PAGE.read_text(encoding="utf-8")
    expected = listing.marked(listing.NAME, listing.table())
    assert expected in text, "run python scripts/pipelines.py --write"


def test_all_that_diffusers_lists_as_text_to_image_is_in_the_table():
    """But for videos, and for what takes an image for a ControlNet."""
    kinds = AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values()
    listed = {kind.__name__: signature(kind.__call__).parameters for kind in kinds}
    names = {name for name, taken in listed.items() if "num_frames" not in taken}
    assert {name for name in names if "Control" not in name} <= KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_a_class_is_served_or_refused_at_once_and_by_its_name(name):
    start = process_time()
    try:
        family_named(listing.index_of(name, KINDS[name]))
        assert encoding_method(KINDS[name])
    except ModelError as error:
        assert str(error).startswith(f"{name} ")
    assert process_time() - start < 0.1
