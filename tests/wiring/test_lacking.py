"""Libraries that are not installed are named, with the command; nothing else is suggested."""

import sys

import pytest

from heedmap.wiring import lacking as module
from heedmap.wiring.lacking import lacking

SCIPY = "scipy, which is not installed: `pip install scipy`"
SENTENCEPIECE = (
    "protobuf and sentencepiece, which are not installed: `pip install protobuf sentencepiece`"
)
# What diffusers 0.42 and transformers 5 say.
THEIRS = {
    "\nLMSDiscreteScheduler requires the scipy library but it was not found in your environment. "
    "You can install it with pip: `pip install\nscipy`\n": SCIPY,
    "Make sure to install scipy if you want to use beta sigmas.": SCIPY,
    "X requires the torchsde library but it was not found in your environment. You can install it "
    "with pip: `pip install torchsde`": "torchsde, which is not installed: `pip install torchsde`",
    "PEFT backend is required for this method.": "peft, which is not installed: `pip install peft`",
    "X requires the Beautiful Soup library but it was not found in your environment.": (
        "beautifulsoup4, which is not installed: `pip install beautifulsoup4`"
    ),
}
TIKTOKEN = (
    "`tiktoken` is required to read a `tiktoken` file. Install it with `pip install tiktoken`."
)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is installed."""
    monkeypatch.setattr(module, "_is_there", lambda name: False)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("said", THEIRS)
def test_what_is_lacking_is_told_in_our_words(said: str):
    assert lacking(ImportError(said)) == THEIRS[said]


@pytest.mark.usefixtures("bare")
def test_the_library_that_is_meant_is_told_and_not_the_one_that_they_fall_back_to():
    assert lacking(ValueError(TIKTOKEN)) == SENTENCEPIECE


@pytest.mark.usefixtures("bare")
def test_it_is_found_behind_other_errors():
    error = OSError("cannot load")
    error.__cause__ = ImportError("Make sure to install scipy")
    assert lacking(error) == SCIPY
    error.__cause__ = error  # no end
    assert lacking(error) == ""


@pytest.mark.usefixtures("bare")
def test_a_model_cannot_say_what_is_to_be_installed():
    assert lacking(ModuleNotFoundError("No module named 'evil'", name="evil")) == ""
    assert lacking(ValueError("there is no folder models/scipy")) == ""


def test_what_is_installed_is_not_lacking(monkeypatch: pytest.MonkeyPatch):
    assert lacking(ImportError("accelerate is broken")) == ""
    monkeypatch.setitem(sys.modules, "scipy", None)  # as where it is not installed
    assert lacking(ImportError("torch needs scipy")) == SCIPY
    monkeypatch.setitem(sys.modules, "google", None)
    assert lacking(ImportError("protobuf")).startswith("protobuf, which is not")
