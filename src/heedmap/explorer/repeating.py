"""How a run is repeated: the command and the Python for it, from its settings alone.

A command holds every option that decides the picture, each number to its last digit, so that it
reads back as the settings of the run. What has no option (a scheduler, LoRAs, rules) is named
beside it, and `heedmap repeat` draws with that too.
"""

from collections.abc import Iterable, Mapping

from heedmap.explorer import spelling
from heedmap.files.reports import GridReport
from heedmap.files.settings import EditTerms, Scheduler, Settings
from heedmap.files.values import Window
from heedmap.options import DrawOptions, EditKind, EditOptions, LocateOptions
from heedmap.tiny import card
from heedmap.tiny.card import EMBEDDED

__all__ = ["nameless_option", "repeat_edit", "repeat_grid", "repeat_run"]

_USUAL_KEEP = tuple(DrawOptions.keep)
_NAMELESS = "MODEL is a folder to which pipe.save_pretrained wrote the model: it had no name."
"""Of a pipeline that was put together in Python."""
_RUN = "RUN is the folder that this page is in."
_YOURS = "given.png is your picture: it lies in the folder of the source, and of each edit."


def nameless_option(settings: Settings) -> str:
    """What `repeat` and `explain` need beside the folder of a run whose model had no name."""
    return "--model MODEL" if _is_nameless(settings) else ""


def _is_nameless(settings: Settings) -> bool:
    """Whether the model is noted by the pipeline's class alone (`pipelines.name_of`)."""
    return settings.model == settings.pipeline


def repeat_run(settings: Settings, *, negative: bool = False) -> list[list[str]]:
    """The ways to repeat a run, each as [name, text to copy, what it leaves out].

    Args:
        settings: of the run.
        negative: whether the negative prompt's maps were recorded too.
    """
    if settings.edit is not None:
        return repeat_edit(settings)
    if settings.located is not None:
        return _look_again(settings)
    if settings.given is not None:  # the source of edits, which nothing draws but an edit
        return _ways(settings, "", "", [])[-1:]
    options, named = _shared(settings)
    placed = [spelling.confine_flag(edit) for edit in settings.edits]
    options += [f"--confine {spelling.shell_quoted(said)}" for said in placed if said]
    rules = [spelling.rule(edit) for edit in settings.edits]
    if rules and all(rules):
        named.append(f"edits=[{', '.join(rules)}]")
    if settings.tokens == "all":
        named.append('tokens="all"')
    more_options, more_named = _concepts(settings)
    options, named = options + more_options, named + more_named
    if negative:
        named.append('branches={"negative"}')
    more = ["the maps of the negative prompt"] if negative else []
    if not all(placed):
        more.append("edits of the attention")
    more += _batch(settings, least=1)
    return _ways(
        settings,
        _command("generate", [settings.prompt], [*options, *_kept(settings)]),
        f"run = hm.generate({', '.join(['pipe', spelling.literal(settings.prompt), *named])})",
        more,
    )


def _look_again(settings: Settings) -> list[list[str]]:
    """The ways to look at a run's picture again, which lies in its folder."""
    options, named = _shared(settings)
    if settings.tokens == "all":
        named.append('tokens="all"')
    more_options, more_named = _concepts(settings)
    options, named = options + more_options, named + more_named
    picture = "RUN/image.png"
    texts = [spelling.literal(picture), spelling.literal(settings.prompt)]
    ways = _ways(
        settings,
        _command("locate", [picture, settings.prompt], [*options, *_kept(settings)]),
        f"run = hm.locate({', '.join(['pipe', *texts, *named])})",
        [],
    )
    named_run = (said if _RUN in said else f"{_RUN} {said}".strip() for _, _, said in ways)
    return [[*way[:2], said] for way, said in zip(ways, named_run, strict=True)]


def _concepts(settings: Settings) -> tuple[list[str], list[str]]:
    """What was looked for beside the prompt: as options, and as an argument in Python."""
    sought = [*settings.concepts]
    options = [f"--concept {spelling.shell_quoted(one)}" for one in sought]
    return options, [f"concepts={spelling.literal(sought)}"] if sought else []


def repeat_edit(settings: Settings) -> list[list[str]]:
    """The ways to repeat an edit, from the settings of its edited run.

    Args:
        settings: of the run.
    """
    edit, prompt = settings.edit, settings.prompt
    assert edit is not None
    kind = edit.kind_asked
    options, named = _shared(settings)
    for option, name, window in (
        ("--cross", "cross", edit.cross),
        ("--self", "self_attention", edit.self_attention),
    ):
        low, high = map(spelling.number, window)
        options.append(f"{option} {low}:{high}")
        named.append(f"{name}=({low}, {high})")
    more_options, more_named, more = _terms(edit, edit.windows, kind)
    options, named = options + more_options, named + more_named
    more += _batch(settings, least=2)
    texts = [spelling.literal(edit.source), spelling.literal(prompt)]
    return _ways(
        settings,
        _command("edit", [edit.source, prompt], [*options, *_kept(settings)]),
        f"pair = hm.edit({', '.join(['pipe', *texts, *named])})",
        more,
    )


def repeat_grid(about: GridReport, settings: Settings) -> list[list[str]]:
    """The ways to repeat a grid, from what its cells have in common.

    Args:
        about: the grid.
        settings: of one of its edits.
    """
    options, named = _shared(settings, seeded=False)
    seeds, count = list(about.seeds), len(about.seeds)
    more: list[str] = []
    if seeds:  # older versions noted none
        if seeds == [*range(seeds[0], seeds[0] + count)]:
            options.append(f"--seed {seeds[0]}" + (f" --count {count}" if count > 1 else ""))
        else:
            more.append(f"the seeds ({', '.join(map(str, seeds))})")
        named.append(f"seeds={seeds[0] if count == 1 else seeds}")
    if about.weights:
        lists = {
            word: ",".join(map(spelling.number, values)) for word, values in about.weights.items()
        }
        options += [f"--weight {spelling.shell_quoted(f'{w}={v}')}" for w, v in lists.items()]
        pairs = (
            f"{spelling.literal(word)}: [{', '.join(map(spelling.number, values))}]"
            for word, values in about.weights.items()
        )
        named.append(f"weights={{{', '.join(pairs)}}}")
    for option, name, windows in (
        ("--cross", "cross", about.cross),
        ("--self", "self_attention", about.self_attention),
    ):
        if windows:  # older versions noted none
            spans = [tuple(map(spelling.number, window)) for window in windows]
            options.append(f"{option} {','.join(f'{low}:{high}' for low, high in spans)}")
            said = ", ".join(f"({low}, {high})" for low, high in spans)
            named.append(f"{name}={said if len(spans) == 1 else f'[{said}]'}")
    more_options, more_named, unsaid = _terms(about, about.words, about.kind)
    targets = list(about.targets or ())
    texts = [spelling.literal(about.source)]
    if targets:
        texts.append(spelling.literal(targets[0] if len(targets) == 1 else targets))
    return _ways(
        settings,
        _command("grid", [about.source, *targets], [*options, *more_options, *_kept(settings)]),
        f"grid = hm.grid({', '.join(['pipe', *texts, *named, *more_named])})",
        [*more, *unsaid],
    )


def _terms(
    edit: EditTerms, windows: Mapping[str, Window], kind: EditKind | None
) -> tuple[list[str], list[str], list[str]]:
    """What edits note alike: options, the same as arguments in Python, and what has no option."""
    options: list[str] = []
    named: list[str] = []
    if windows:
        spans = {
            word: (spelling.number(low), spelling.number(high))
            for word, (low, high) in windows.items()
        }
        options += [
            f"--words {spelling.shell_quoted(f'{w}={a}:{b}')}" for w, (a, b) in spans.items()
        ]
        pairs = ", ".join(f"{spelling.literal(w)}: ({a}, {b})" for w, (a, b) in spans.items())
        named.append(f"words={{{pairs}}}")
    if kind is not None:
        options.append(f"--kind {kind}")
        named.append(f"kind={spelling.literal(kind)}")
    if edit.renormalize:
        options.append("--renormalize")
        named.append("renormalize=True")
    if edit.only:
        options.append(f"--only {spelling.shell_quoted(edit.only)}")
        named.append(f"only={spelling.literal(edit.only)}")
    options += [f"--protect {spelling.shell_quoted(word)}" for word in edit.protect]
    if edit.protect:
        named.append(f"protect={spelling.literal([*edit.protect])}")
    for name, value, usual in (
        ("threshold", edit.threshold, EditOptions.threshold),
        ("blend_from", edit.blend_from, EditOptions.blend_from),
    ):
        if edit.only and value != usual:  # of what is not blended an older version noted its own
            options.append(f"--{name.replace('_', '-')} {spelling.number(value)}")
            named.append(f"{name}={spelling.number(value)}")
    more: list[str] = []
    if edit.self_cells != EditOptions.self_cells:
        named.append(f"self_cells={edit.self_cells}")
        more.append("the largest grid of self-attention")
    return options, named, more


def _ways(settings: Settings, command: str, call: str, more: Iterable[str]) -> list[list[str]]:
    """The command, the Python, and what repeats a run with all that its settings note."""
    given = settings.arguments
    loaded = _loaded(settings)
    left = [*(["other arguments of the pipeline"] if given else []), *more, *loaded]
    python: list[str] = []
    if len(spelling.arguments(given)) < len(given):
        python.append("what was passed as an object (see the settings)")
    if not all(map(spelling.rule, settings.edits)):
        python.append("the edits of the attention (see the settings)")
    python += [part for part in more if part.startswith("the batch")] + loaded
    option = nameless_option(settings)
    yours = [_YOURS] if settings.given else []
    without = [f"Not in it: {_listed(left)}.", *yours] if left else yours
    beside = [f"Add {_listed(python)}.", *yours] if python else yours
    nameless = [_NAMELESS] if option else []
    return [
        ["On the command line", command, " ".join(without + nameless)],
        ["In Python", _python(settings, call), " ".join(beside)],
        [
            "With all that was noted, and compared to the byte",
            f"heedmap repeat RUN {option}".rstrip(),
            " ".join([_RUN, *nameless]),
        ],
    ]


def _command(verb: str, texts: Iterable[str], options: Iterable[str]) -> str:
    """A command line; a text that begins as an option does stands behind two dashes."""
    quoted = [spelling.shell_quoted(text) for text in texts]
    if any(text.startswith(("-", "'-", "$'-")) for text in quoted):
        return " ".join([f"heedmap {verb}", *options, "--", *quoted])
    return " ".join([f"heedmap {verb}", *quoted, *options])


def _shared(settings: Settings, *, seeded: bool = True) -> tuple[list[str], list[str]]:
    """Options of the command line, and the same as arguments in Python."""
    model = settings.model
    embedded = card.defaults() if model == EMBEDDED else None
    usual = {n: getattr(embedded, n, None) for n in ("steps", "guidance", "size")}
    if settings.located is not None:
        usual |= {"steps": LocateOptions.steps, "guidance": settings.guidance}
    named_model = nameless_option(settings) or f"--model {spelling.shell_quoted(model)}"
    options = [] if model == EMBEDDED else [named_model]
    options += ["--image given.png"] if settings.given else []
    named: list[str] = ['image="given.png"'] if settings.given else []
    for name in ("seed", "steps", "guidance")[not seeded :]:
        value = getattr(settings, name)
        if value is not None and value != usual.get(name):
            options.append(f"--{name} {spelling.number(value)}")
            named.append(f"{name}={spelling.number(value)}")
    if "size" not in settings.defaults and settings.size != usual["size"]:
        width, height = settings.size
        options.append(f"--size {width}x{height}")
        named.append(f"size=({width}, {height})")
    if settings.negative is not None:  # an empty one is not none: SDXL then encodes it
        options.append(f"--negative {spelling.shell_quoted(settings.negative)}")
        named.append(f"negative={spelling.literal(settings.negative)}")
    if settings.keep != _USUAL_KEEP:
        named.append(f"keep={spelling.literal([*settings.keep])}")
    device, dtype = _placed(settings)
    options += [f"--device {device}"] if device else []
    options += [f"--dtype {dtype}"] if dtype else []
    named += spelling.arguments(settings.arguments)
    return options, named


def _batch(settings: Settings, least: int) -> list[str]:
    """What to say of the batch, where it had more pictures than that."""
    several = settings.batch_place is not None and settings.batch_place[1]
    many = several and several > least
    return [f"the batch of {several} pictures that it was drawn in"] if many else []


def _placed(settings: Settings) -> tuple[str, str]:
    """The device, and the precision where it is not the one taken there; empty if not noted."""
    device = settings.device if settings.device in ("cpu", "cuda", "mps") else ""
    usual = "float32" if device in ("", "cpu") else "float16"
    known = settings.dtype in ("float32", "float16", "bfloat16") and settings.dtype != usual
    return device, settings.dtype if known else ""


def _kept(settings: Settings) -> list[str]:
    """The option for the axes that were kept, where they are not the usual ones."""
    if settings.keep == _USUAL_KEEP:
        return []
    return [f"--keep {spelling.shell_quoted(','.join(settings.keep))}"]


def _loaded(settings: Settings) -> list[str]:
    """What was done to the model after it was loaded."""
    said: list[str] = []
    noted = settings.schedulers.get("scheduler") if settings.model == EMBEDDED else None
    if noted is not None and not _is_own(noted):
        said.append(f"the scheduler ({settings.scheduler})")
    said += ["the LoRAs"] if settings.loras else []
    said += ["the adapters"] if settings.adapters else []
    said += ["the attention processors"] if settings.attention else []
    return said


def _is_own(noted: Scheduler) -> bool:
    """Whether it is the embedded model's own scheduler; what is not noted is usual."""
    kind, own = card.scheduler()
    return noted.kind == kind and all(noted.config.get(key) == own[key] for key in own)


def _python(settings: Settings, call: str) -> str:
    model = settings.model
    device, dtype = _placed(settings)
    if _is_nameless(settings):
        return (
            f"import heedmap as hm\n\n# pipe: the pipeline that drew it, which had no name\n{call}"
        )
    given = [] if model == EMBEDDED else [spelling.literal(model)]
    given += [f"device={spelling.literal(device)}"] if device else []
    given += [f"dtype={spelling.literal(dtype)}"] if dtype else []
    return f"import heedmap as hm\n\npipe = hm.load({', '.join(given)})\n{call}"


def _listed(parts: list[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
