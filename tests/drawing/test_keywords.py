"""What type checkers, help and notebooks see behind the prompts: the options, each of them."""

import dataclasses
import inspect
import pydoc
import re
from typing import get_type_hints

import pytest

import heedmap
from heedmap import options
from heedmap.drawing import keywords
from heedmap.errors import ArgumentError


def test_keywords_are_the_options():
    def fields(*kinds: type) -> dict[str, object]:
        every = {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}
        return {name: hint for name, hint in every.items() if name != "arguments"}

    said = get_type_hints(keywords.GenerateKeywords)
    assert said == fields(options.GenerateOptions)
    said = get_type_hints(keywords.EditKeywords)
    assert said == fields(options.DrawOptions, options.EditOptions)
    windows = {"cross", "self_attention"}
    assert said.keys() - get_type_hints(keywords.GridKeywords).keys() == windows


def test_help_names_every_option():
    for function, kinds in (
        (heedmap.generate, [options.GenerateOptions]),
        (heedmap.edit, [options.EditOptions, options.DrawOptions]),
        (heedmap.grid, [options.EditOptions, options.DrawOptions]),
    ):
        parameters = inspect.signature(function).parameters
        for kind in kinds:
            for one in dataclasses.fields(kind):
                if one.name != "arguments":
                    assert parameters[one.name].default == getattr(kind, one.name), one.name
        assert parameters["arguments"].kind is inspect.Parameter.VAR_KEYWORD


@pytest.mark.parametrize("draw", [heedmap.generate, heedmap.edit, heedmap.grid])
def test_help_explains_every_option(draw):
    """Each one once, by the text of the class that has it."""
    page = pydoc.plain(pydoc.render_doc(draw))
    for name in inspect.signature(draw).parameters:
        if name != "arguments":  # `options` tells of it
            assert len(re.findall(rf"^ +(?:[|] +)?{name}: \S", page, re.M)) == 1, name
    words = " ".join(page.split())
    assert "denoising steps; the model's own default if None." in words
    if draw is not heedmap.generate:
        said = "fraction of the run from which latents are blended, below 1; before, maps"
        assert said in words
    assert words.index("guidance: ") < words.index("Raises:")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stepps", "did you mean steps?"),
        ("size_", "did you mean size?"),
        ("guidence", "did you mean guidance?"),
        ("keeps", "did you mean keep?"),
        ("strenght", "leave it out"),
        ("cross_attention_kwargz", "did you mean cross_attention_kwargs?"),
        ("arguments", ""),
        ("self", ""),
        ("prompts", "did you mean"),
    ],
)
def test_a_name_that_nobody_takes(pipe, name: str, hint: str):
    said = rf"^StableDiffusionPipeline takes no argument {name}: .*{re.escape(hint)}"
    for draw in (
        lambda: heedmap.generate(pipe, "a cat", **{name: 1}),
        lambda: heedmap.edit(pipe, "a cat", "a dog", **{name: 1}),
        lambda: heedmap.grid(pipe, "a cat", "a dog", **{name: 1}),
    ):
        with pytest.raises(ArgumentError, match=said):
            draw()


def test_what_an_edit_does_not_take(pipe):
    for name, hint in (("seeds", "seed"), ("tokens", ""), ("self_atention", "self_attention")):
        with pytest.raises(ArgumentError, match=f"takes no argument {name}: .*{hint}"):
            heedmap.edit(pipe, "a cat", "a dog", **{name: 1})
    with pytest.raises(ArgumentError, match=r"takes no argument seeds: did you mean seed\?"):
        heedmap.generate(pipe, "a cat", seeds=1)
    with pytest.raises(ArgumentError, match="callback_on_step_end is 3: expected a function"):
        heedmap.generate(pipe, "a cat", callback_on_step_end=3)


def test_a_pipeline_may_be_given_by_name(pipe):
    with pytest.raises(ArgumentError, match=r"did you mean steps\?"):
        heedmap.generate(pipe=pipe, prompt="a cat", stepps=1)
    assert heedmap.generate(pipe=pipe, prompt="a cat", seed=1, steps=1).settings.seed == 1
