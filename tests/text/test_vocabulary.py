"""Words that a model was not taught, and the one sentence that says so."""

import pytest

from heedmap.backends import loading
from heedmap.text.vocabulary import said_of, untaught

KNOWN = {"a", "red", "house", "next", "to", "Café", "snow", "covered"}


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("a red house", ()),
        ("A RED, house! (next to)", ()),
        ("a Horse next to a horse, a robot", ("Horse", "robot")),
        ("a cafe\u0301", ()),  # another Unicode form
        ("a cafe", ("cafe",)),
        ("a \uff52\uff45\uff44 hou\u017fe", ("\uff52\uff45\uff44", "hou\u017fe")),  # wide, long s
        ("a ho\u00aduse", ("ho\u00aduse",)),  # a soft hyphen
        ("a snow\u2011covered house", ()),
        ("a snow-covered house", ()),
        ("a snow-white house", ("snow-white",)),
        ("two 2 집", ("two", "2", "집")),
        ("<my-cat> house", ()),
        (", . !", ()),
        ("", ()),
    ],
)
def test_what_is_not_in_the_vocabulary(text: str, strange: tuple[str, ...]):
    assert untaught([text], KNOWN) == strange


def test_it_is_what_the_tokenizer_reads():
    """A word is taught exactly where it has the tokens of one that is."""
    tokenizer = loading.tokenizer()
    spelled = (
        "red",
        "Red",
        "RED",
        "\uff52\uff45\uff44",
        "re\u00add",
        "r\u0435d",
        "balloon\u017f",
        "balloons",
    )

    def read(word: str) -> list[int]:
        return tokenizer(word)["input_ids"]

    taught = ("red", "balloons")
    for word in spelled:
        assert (untaught([word], taught) == ()) == (read(word) in [*map(read, taught)]), ascii(word)


def test_words_of_several_texts_are_named_once_in_order():
    assert untaught(["a horse", "a robot, a horse"], KNOWN) == ("horse", "robot")


def test_without_a_vocabulary_nothing_is_known():
    assert untaught(["a horse"], None) is None


def test_the_sentence():
    taught = "that this model was taught: it does what it can"
    assert said_of([]) == ""
    assert said_of(["horse"]) == f"'horse' is not a word {taught}"
    assert said_of(["horse", "robot"]) == f"'horse' and 'robot' are not words {taught}"
    assert said_of(["\x1b[31m"]).isprintable()
