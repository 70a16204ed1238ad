"""What the verbs take: how the texts of their options are read, and what is none."""

from pathlib import Path

import pytest
import typer

from cli.calling import bad, call, good, raising
from heedmap import cli
from heedmap.cli import parsing
from heedmap.errors import ArgumentError
from heedmap.models import pipelines


@pytest.mark.parametrize(
    ("text", "size"),
    [("512x768", (512, 768)), ("64X32", (64, 32)), ("8×16", (8, 16)), ("512", (512, 512))],
)
def test_sizes(text: str, size: tuple[int, int]):
    assert parsing.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "x", "x512", "512x", "5.5x4", "-8x8", "8x8x8", "8 by 8", "٨x٨", "1_0x8"]
)
def test_what_is_no_size(text: str):
    with pytest.raises(typer.BadParameter, match=": expected WxH in pixels"):
        parsing.parse_size(text)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("0:3", [0, 1, 2]),
        ("7:", [7, 8, 9]),
        (":2", [0, 1]),
        ("4", [4]),
        ("-1", [9]),
        ("-3:-1", [7, 8]),
    ],
)
def test_ranges(text: str, taken: list[int]):
    assert list(range(10))[parsing.parse_range(text)] == taken
    assert parsing.parse_range(
        parsing.show_range(parsing.parse_range(text))
    ) == parsing.parse_range(text)


@pytest.mark.parametrize("text", ["", ":", "a:b", "1:2:3", "1.5"])
def test_what_is_no_range(text: str):
    with pytest.raises(typer.BadParameter, match=": expected a range of steps"):
        parsing.parse_range(text)


def test_numbers_are_written_in_plain_digits():
    reads = (parsing.parse_window, parsing.parse_windows, parsing.parse_range)
    for odd in ("٨", "0_1", "0_0:1"):
        for read in (*reads, parsing.parse_numbers):
            with pytest.raises(typer.BadParameter):
                read(odd)
    for odd in ("cat=٨", "cat=0:1_0:2", "cat=0:1:1_0", "cat=0,1_0,...,30"):
        with pytest.raises(typer.BadParameter):
            parsing.parse_strip(odd)
    with pytest.raises(typer.BadParameter):
        parsing.parse_box("cat=0,0,1_0,8")


def test_lists():
    assert parsing.parse_axes("head, layer,step") == {"layer", "step", "head"}
    assert parsing.parse_numbers("0, 2") == [0, 2]
    assert parsing.parse_names("up, mid,") == ["up", "mid"]
    assert parsing.parse_axes("step,layer") == {"step", "layer"}
    assert parsing.parse_axes("all") == {"layer", "step", "head"}
    assert parsing.parse_over("heads, layers") == ["layers", "heads"]
    assert parsing.parse_over("steps") == ["steps"]
    with pytest.raises(typer.BadParameter, match=r"^'0;2': expected whole numbers with commas"):
        parsing.parse_numbers("0;2")
    with pytest.raises(ArgumentError, match=r"^--keep is \['layer', 'time'\]: expected a list of"):
        parsing.parse_axes("layer,time")


@pytest.mark.parametrize(
    ("text", "window"), [("0.8", (0, 0.8)), ("0", (0, 0)), ("0.2:0.6", (0.2, 0.6)), ("0:1", (0, 1))]
)
def test_windows(text, window):
    assert parsing.parse_window(text) == window


@pytest.mark.parametrize("text", ["", "x", "0.2:", ":", "nan", "0.8:0.2", "1.1", "-0.1", "0:1:2"])
def test_what_is_no_window(text):
    with pytest.raises(typer.BadParameter, match="expected a part of the run"):
        parsing.parse_window(text)


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        ("0.8", [(0, 0.8)]),
        ("0, 0.5,1", [(0, 0), (0, 0.5), (0, 1)]),
        ("0,0.2,…,1", [(0, 0), (0, 0.2), (0, 0.4), (0, 0.6), (0, 0.8), (0, 1)]),
        ("0,0.25,...,0.75,1", [(0, 0), (0, 0.25), (0, 0.5), (0, 0.75), (0, 1)]),
        ("1,0.5,…,0", [(0, 1), (0, 0.5), (0, 0)]),
        ("0,0.2,…,0.2,1", None),
        ("0,0.5,…,1", [(0, 0), (0, 0.5), (0, 1)]),
        ("0.2:0.6,0.4", [(0.2, 0.6), (0, 0.4)]),
    ],
)
def test_lists_of_windows(text, windows):
    if windows is None:
        with pytest.raises(typer.BadParameter):
            parsing.parse_windows(text)
        return
    assert parsing.parse_windows(text) == windows


@pytest.mark.parametrize(
    "text", ["…", "0,…,1", "0,0.2,…", "0,0.3,…,1", "0,0,…,1", "0,0.2,…,-1", "0:1,0:2,…,3", "…,0,1",
             "0,1e-9,…,1", "0,nan,…,1"]
)  # fmt: skip
def test_dots_that_lead_nowhere(text):
    with pytest.raises(typer.BadParameter, match="expected two numbers before the dots"):
        parsing.parse_windows(text)


@pytest.mark.parametrize(
    ("text", "strip"),
    [
        ("red=-2:3:6", ("red", [-2, -1, 0, 1, 2, 3])),
        ("red house=0:1:4", ("red house", [0, 0.333333, 0.666667, 1])),
        ("red=0,1,3", ("red", [0, 1, 3])),
        ("red=-1,0,…,2", ("red", [-1, 0, 1, 2])),
        ("red=2.5", ("red", [2.5])),
        ("a=b = 3:1:2", ("a=b", [3, 1])),
    ],
)
def test_strips(text, strip):
    assert parsing.parse_strip(text) == strip


@pytest.mark.parametrize("text", ["red", "=1", "red=", "red = ", ""])
def test_what_is_no_strip(text):
    with pytest.raises(typer.BadParameter, match=": expected a word and its weights, as in red=-2"):
        parsing.parse_strip(text)


@pytest.mark.parametrize(
    "value",
    ["x", "1:2", "1:2:1", "1:2:1.5", "1:1:3", "1:2:3:4", "nan", "inf:2:3", "1,,2", "1:2:9999"],
)
def test_what_are_no_weights(value):
    with pytest.raises(typer.BadParameter, match=": expected A:B:N, such as"):
        parsing.parse_strip(f"red={value}")


def test_windows_of_words():
    assert parsing.parse_word_window("cat=0.3") == ("cat", (0, 0.3))
    assert parsing.parse_word_window("red cat=0.1:0.3") == ("red cat", (0.1, 0.3))
    for text in ("cat", "cat=", "=0.3"):
        with pytest.raises(typer.BadParameter, match=": expected a word and its window, as in"):
            parsing.parse_word_window(text)
    with pytest.raises(typer.BadParameter, match="expected a part of the run"):
        parsing.parse_word_window("cat=2")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate"], "Error: PROMPT is missing: expected what to draw; `heedmap"),
        (["generate", "a", "--size", "12x"], "--size is '12x': expected WxH in pixels, such"),
        (["generate", "a", "--steps", "0"], "--steps is 0: expected a whole number of at least 1"),
        (["generate", "a", "--count", "0"], "--count is 0: expected a whole number from 1 to 1"),
        (["generate", "a", "--guidance", "nan"], "--guidance is nan: expected a finite number"),
        (["generate", "a", "--seed", "-1"], "--seed is -1: expected a whole number of at"),
        (["generate", "a", "--device", "tpu"], "--device is 'tpu': expected auto, cpu, cuda or "),
        (["generate", "a", "--keep", "time"], "--keep is time: expected layer, step or head, "),
        (["generate", "a", "--confine", "a"], "--confine is 'a': expected a word and its box"),
        (["generate", "a", "--confine", "a=1,2,3"], "is '1,2,3': expected LEFT,TOP,RIGHT,BOTTOM"),
        (["inspect", "x", "--steps", "late"], "--steps is 'late': expected a range of steps"),
        (["inspect", "x", "--heads", "all"], "--heads is 'all': expected whole numbers"),
        (["inspect", "x", "--over", "steps,heads"], "is 'steps,heads': expected steps, "),
        *(
            (["app", f"--max-{what}", str(10**30)], f"Error: --max-{what} is 1{'0' * 30}: expected")
            for what in ("size", "steps", "upload", "results")
        ),
        *(
            ([*verb, "--concept", "="], "Error: the concept '=' has no word: expected one to look")
            for verb in (["generate", "a"], ["locate", "none.png", "a"])
        ),
        (["compare"], "Error: RUN is missing: expected the folders of two or more saved runs; "),
    ],
)
def test_usage_errors(arguments: list[str], sentence: str):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr and result.stderr.count("\n") == 1


VERBS = typer.main.get_command(cli.app).commands
ARGUMENTS = {
    "compare": ["x", "y"],
    "locate": ["x", "a"],
    "ablate": ["x", "a"],
    "layers": [],
    "app": [],
}
TEXTS = {"--model", "--word", "--negative", "--only", "--protect", "--layer", "--layers"}
TEXTS |= {"--concept"}  # a text that is no word is told of as itself
TEXTS |= {"--host", "--name", "--auth"}  # read later


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        (verb, option.opts[0])
        for verb, command in VERBS.items()
        for option in command.params
        if option.param_type_name == "option" and not option.is_flag
        if option.opts[0] not in TEXTS
    ],
)
def test_nonsense_for_an_option_is_told_before_anything_is_done(verb: str, option: str, desk: Path):
    nonsense = "" if option in ("--out", "--image") else "="
    result = call(verb, *ARGUMENTS.get(verb, ["x"]), option, nonsense)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"Error: {option} is ") and result.stderr.count("\n") == 1
    assert ": expected " in result.stderr
    assert list(desk.iterdir()) == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_explained(verb: str):
    page = " ".join(good(verb, "--help").split())
    for command in VERBS[verb].params:
        assert command.help, f"{verb} {command.name} has no help"
        assert " ".join(command.help.split()) in page


@pytest.mark.parametrize(
    "arguments",
    [
        *(["generate", "a", "-o", ""], ["edit", "a", "b", "-o", ""], ["repeat", "x", "-o", ""]),
        *(["inspect", "x", "--out", ""], ["compare", "x", "y", "-o", ""], ["app", "-o", ""]),
        *(["inspect", ""], ["repeat", ""], ["compare", "x", ""]),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_not_the_folder_one_is_in(arguments):
    result = call(*arguments)
    assert result.exit_code == 2 and result.stdout == ""
    assert "is '': expected a file or folder; write . for the one you are in\n" in result.stderr


@pytest.mark.parametrize("name", ["mine.png", "My Photo.JPEG"])
def test_a_picture_in_the_place_of_a_prompt_is_told_so(desk: Path, name: str):
    parsing.check_words("SOURCE", name, "do this")  # there is none of that name
    parsing.check_words("SOURCE", f"{name}\0" + "x" * 9999 + ".png", "do this")
    (desk / name).touch()
    (desk / "house").touch()
    parsing.check_words("SOURCE", "house", "do this")  # a word, whatever lies here
    with pytest.raises(ArgumentError) as caught:
        parsing.check_words("SOURCE", name, "do this")
    assert str(caught.value) == (
        f"SOURCE is '{name}', which is the file of a picture: expected the words of a prompt; do "
        "this"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["edit", "mine.png", "a cat", "a dog"], "SOURCE is 'mine.png', which is the file of a"),
        (["grid", "a cat", "mine.png"], "pass it as --image mine.png"),
        (["locate", "a cat", "mine.png"], "PROMPT is 'mine.png', which is the file of a picture"),
        (["generate", "mine.png"], "`heedmap locate` looks at a picture of yours"),
        (["edit", "--image", "mine.png", "a cat"], "the same words and the same weights"),
        (["generate", " "], "has no words"),
        (["generate", "a (cat:2"], "is not closed"),
        (["locate", "mine.png", ""], "has no words"),
        (["edit", "a cat", ""], "has no words"),
        (["edit", "a (red:2) cat", "a dog", "a (red:2) cat"], "the same words and the same"),
        (["edit", "a cat", "a dog", "--only", "cow->dog"], "'cow' is not in the prompt"),
        (["edit", "a cat", "a dog", "--only", "cat->cow"], "'cow' is not in the prompt"),
        (["grid", "a cat", "a dog", "a cow", "--only", "cat->dog"], "'dog' is not in the prompt"),
        (["edit", "a cat", "a dog", "--only", "cat"], "--only is 'cat': expected a word, an arrow"),
    ],
)
def test_that_is_told_before_a_model_is_loaded(desk: Path, monkeypatch, arguments, said: str):
    monkeypatch.setattr(pipelines, "load", raising(AssertionError("no model is needed")))
    (desk / "mine.png").touch()
    assert said in bad(*arguments)
    assert [path.name for path in desk.iterdir()] == ["mine.png"]
