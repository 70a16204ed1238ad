"""What is typed, read: verbs and options, and one sentence for what is none of them."""

from collections.abc import Iterable
from contextlib import nullcontext
from difflib import get_close_matches
from inspect import signature
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from heedmap.cli.console import failures_told
from heedmap.cli.interrupts import as_python_has_it, interruptible
from heedmap.cli.parsing import Refused, check_option
from heedmap.errors import ArgumentError, listed, quoted
from heedmap.options import OWN_NAMES

# Typer's own has no public name; that of older ones is click's.
_UsageError: Any = typer.BadParameter.__bases__[0]


_HYPHEN = "\ue000"  # stands for one while lines are broken: none is broken behind it


class _Help(typer.Context.formatter_class):
    """A page of help whose lines are broken at spaces alone."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(self, rows: Any, *args: Any, **kwargs: Any) -> None:
        held = [(name, said.replace("-", _HYPHEN)) for name, said in rows]
        super().write_dl(held, *args, **kwargs)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


def _help(command: Any, ctx: Any) -> str:
    made = _Help(width=ctx.terminal_width, max_width=ctx.max_content_width)
    command.format_help(ctx, made)
    return made.getvalue().rstrip("\n")


class Verb(TyperCommand):
    """A verb; what its options cannot be is said as it is of an argument in Python."""

    def get_help(self, ctx: Any) -> str:
        """Its page of help."""
        return _help(self, ctx)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        arguments: list[Any] = [one for one in self.params if one.param_type_name == "argument"]
        for one in arguments:  # "<list[str]>" says nothing to who knows no Python
            one.display_type_rich = _no_type

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the verb in its help: braces would look as if there were a choice."""
        pieces = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; whatever reads them for Typer words its refusals in its own way."""
        if ctx.resilient_parsing:  # a shell completes what is typed: nothing is wrong yet
            return super().parse_args(ctx, args)
        given, rest = read_typed(self, ctx, args)
        if given.get("help"):
            return super().parse_args(ctx, args)
        for one in self.params:
            if one.name in given:
                annotation = signature(self._function()).parameters[one.name].annotation
                check_option(_said(one), given[one.name], annotation)
        if rest:
            looks = any(one.name == "word" for one in self.params)
            after = ", and a word to look at after --word" if looks else ""
            raise ArgumentError(
                f"{quoted(rest[0])} is more than `{_path(self)}` takes: put the words of one text "
                f"into one pair of quotation marks, and call it once for each text{after}"
            )
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            said: Any = error.param
            if said.required and given.get(said.name) in (None, (), []):
                what = f"{said.help[:1].lower()}{said.help[1:].rstrip('.')}"
                more = f"`{_path(self)} --help` tells what else it takes"
                raise ArgumentError(f"{_said(said)} is missing: expected {what}; {more}") from error
            if isinstance(error, Refused):
                raise ArgumentError(f"{_said(said)} is {error.message}") from error
            raise ArgumentError(
                f"{_said(said)} is {quoted(given.get(said.name))}, which cannot be read: see "
                f"`{_path(self)} --help`"
            ) from error

    def invoke(self, ctx: Any) -> Any:
        """Run it; the app has ways of its own to be ended."""
        as_python_has_it()
        with nullcontext() if self.name == "app" else interruptible():
            return super().invoke(ctx)

    def _function(self) -> Any:
        return self.callback


def own_name(option: str) -> str:
    """Return heedmap's name of an option that is written as in diffusers, or with underscores."""
    name = option.replace("-", "_")
    theirs = ("num_inference_steps", "guidance_scale", "negative_prompt")
    return OWN_NAMES[name] if name in theirs else name.replace("_", "-")


class Verbs(TyperGroup):
    """The verbs; whatever a user can cause ends in one sentence on stderr and exit code 2."""

    def get_help(self, ctx: Any) -> str:
        """The page that lists them."""
        return _help(self, ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each verb with its whole sentence, on lines as long as there is room."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, verb.get_short_help_str(limit=1000)) for name, verb in found if verb]
            )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what stands before the verb."""
        with failures_told():
            if not ctx.resilient_parsing:
                read_typed(self, ctx, args)
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is named."""
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            begun = [name for name in self.commands if args[0] and name.startswith(args[0])]
            near = begun or get_close_matches(args[0][:100], self.commands)[:1]
            hint = f"did you mean {listed(near, 'or')}?" if near else "`heedmap --help` lists them"
            raise ArgumentError(f"there is no verb {quoted(args[0])}: {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with failures_told():
            return super().invoke(ctx)


def _no_type(ctx: Any) -> None:
    """What is shown of an argument's type in the help: nothing."""


def read_typed(command: Any, ctx: Any, args: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """What was typed, by the names of parameters, and what is left over.

    Raises:
        ArgumentError: for an option that is not there, has no value, or has one and takes none.
    """
    try:
        given, rest, _ = command.make_parser(ctx).parse_args([*args])
    except _UsageError as error:
        name = getattr(error, "option_name", None)
        if name is None:
            raise ArgumentError(f"this cannot be read: see `{_path(command)} --help`") from error
        option = next((one for one in command.get_params(ctx) if name in one.opts), None)
        if option is None:
            raise _unknown(command, ctx, name) from error
        if option.is_flag:
            raise ArgumentError(f"{name} has a value: expected none behind it") from error
        raise ArgumentError(f"{name} has no value: expected one behind it") from error
    return given, rest


def _unknown(command: Any, ctx: Any, name: str) -> ArgumentError:
    """The error of an option that a verb has not, with the nearest, or the verb that has it."""
    every = [opt for one in command.get_params(ctx) for opt in (*one.opts, *one.secondary_opts)]
    known = [opt for opt in every if opt.startswith("--")]
    near = get_close_matches(name[:100], known)
    own = [opt for opt in known if opt.rstrip("s") == name.rstrip("s")]  # --step for --steps
    others = [] if own or ctx.parent is None else _verbs_with(ctx.parent.command, name)
    if others:
        named = listed([f"`heedmap {name}`" for name in others], "and")
        hint = f"{named} {'has' if len(others) == 1 else 'have'} one"
    elif near:
        hint = f"did you mean {(own or near)[0]}?"
    else:
        hint = f"`{_path(command)} --help` lists them; a text that begins with - follows --"
    return ArgumentError(f"`{_path(command)}` has no option {quoted(name)[1:-1]}: {hint}")


def _verbs_with(verbs: Any, option: str) -> list[str]:
    every = {name: [one.opts for one in verb.params] for name, verb in verbs.commands.items()}
    return [name for name, options in every.items() if any(option in opts for opts in options)]


def _path(command: Any) -> str:
    return "heedmap" if isinstance(command, Verbs) else f"heedmap {command.name}"


def _said(one: Any) -> str:
    """What an option or an argument is called where it is typed."""
    name = max(one.opts, key=len)
    return name if name.startswith("-") else (one.metavar or name).strip("[].")
