"""What type checkers, help and notebooks see behind the prompts: the options, each of them."""

import dataclasses
import inspect
from typing import get_type_hints

import heedmap
from heedmap import options
from heedmap.drawing import keywords


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
