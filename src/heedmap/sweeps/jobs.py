"""The jobs of a sweep: read from a manifest, checked before a model is loaded, named by a hash.

A job is a call of `generate`, `edit` or `locate` with its arguments:

    {"task": "edit", "source": "a red house", "target": "a blue house", "seed": 7, "steps": 30}

Besides, it may have "model".
A manifest is JSONL with one job a line, or TOML. In TOML the plural of an argument is a list
("prompts", "seeds", "targets"), and each combination of such lists is a job.
"""

import hashlib
import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, product
from pathlib import Path
from typing import Any

from heedmap.backends import loading
from heedmap.backends.registry import check_names
from heedmap.checks import check_int, check_one_of, check_prompt, check_text
from heedmap.errors import ArgumentError, HeedmapError, quoted
from heedmap.io import reading
from heedmap.io.schemas import MAX_WHOLE, to_json
from heedmap.options import GenerateOptions
from heedmap.parsing import parse_value
from heedmap.pipelines.arguments import resolve_options
from heedmap.pipelines.editing import check_effect, edit, resolve_edits
from heedmap.pipelines.generation import generate, steering_of
from heedmap.pipelines.input_images import locate, open_image, resolve_location
from heedmap.recording.recorder import RecordingSpec
from heedmap.text.weights import parse_weights

TASKS: Mapping[str, Callable[..., Any]] = {
    "generate": generate,
    "edit": edit,
    "locate": locate,
}
"""The function of each task."""
_SIGNATURES = {task: inspect.signature(function) for task, function in TASKS.items()}
_NOT_IN_JOBS = {"edits", "guide", "preview", "progress"}


@dataclass(frozen=True)
class Job:
    """A call of `generate`, `edit` or `locate`, checked.

    Attributes:
        id: 16 hexadecimal digits of the SHA-256 of its settings.
        line: its line in the manifest, or its number in a list or a TOML product, from 1.
        task: the function that is called.
        model: the model as in `load`; None for the embedded model.
        arguments: the keyword arguments of the call, without the pipeline.
        shape: the JSON of its task and of its arguments without prompt and seed. Jobs of one
            shape can be generated in one batch.
    """

    id: str
    line: int
    task: str
    model: str | None
    arguments: dict[str, Any]
    shape: str


def read_jobs(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    model: str | Path | None = None,
    dtype: str = "auto",
) -> list[Job]:
    """Read and check the jobs of a manifest, or of a list of mappings.

    `model` is that of jobs that name none, and `dtype` the precision of all. ArgumentError if a job
    is wrong or occurs twice, with the lines; RunError if the file is missing.
    """
    unit = "line"
    root = Path()
    if isinstance(source, str | Path):
        path = reading.path_of(source)
        root = path.parent
        rows = _rows(path)
        if path.suffix.lower() == ".toml":
            unit = "job"
    else:
        rows = enumerate(source, 1)
    defaults = {"task": "generate", "model": None if model is None else str(model)}
    jobs: dict[str, Job] = {}
    errors: list[str] = []
    for line, row in rows:
        try:
            job = _job(line, row, root.resolve(), defaults, dtype)
            if job.id in jobs:
                raise ArgumentError(f"it is the same job as line {jobs[job.id].line}")
            jobs[job.id] = job
        except HeedmapError as error:
            errors.append(f"{unit} {line}: {error}")
    if not errors and not jobs:
        errors.append("there are no jobs")
    if errors:
        raise ArgumentError(f"the jobs cannot run: {'; '.join(errors[:5])}")
    return list(jobs.values())


def _kind(job: Job) -> tuple[str, str]:
    return job.model or "", job.shape


def in_units(jobs: Iterable[Job], batch: int = 1) -> list[list[Job]]:
    """Return the jobs in lists, each for one call of a pipeline, those of one model in a row.

    Images of one shape share a call, at most `batch` of them.
    """
    units: list[list[Job]] = []
    for _, jobs_of_kind in groupby(sorted(jobs, key=_kind), _kind):
        same = list(jobs_of_kind)
        most = batch if same[0].task == "generate" else 1
        units += [same[at : at + most] for at in range(0, len(same), most)]
    return units


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the line and the content of each job of a file."""
    data = reading.read_bytes(path, most=2**32)
    kind = path.suffix.lower()
    check_one_of("the ending of the manifest", kind, (".jsonl", ".toml"))
    try:
        text = data.decode("utf-8-sig")
        if kind == ".toml":
            yield from enumerate(_product(tomllib.loads(text)), 1)
            return
        for line, part in enumerate(text.split("\n"), 1):
            if part.strip():
                yield line, parse_value(part)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from error


def _product(fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each combination of the lists of a TOML file."""
    task = fixed.get("task", "generate")
    check_one_of("task", task, TASKS)
    names = {*_SIGNATURES[task].parameters, "task", "model"}
    axes: dict[str, list[Any]] = {}
    for name in [*fixed]:
        singular = name.removesuffix("s")
        if name not in names and singular in names:
            values = fixed.pop(name)
            axes[singular] = values if isinstance(values, list) else [values]
    for values in product(*axes.values()):
        yield {**fixed, **dict(zip(axes, values, strict=True))}


@lru_cache(4)
def _outline(model: str | None) -> Any:
    return loading.outline(model)


@lru_cache(1000)
def _generate_options(model: str | None, shape: str) -> GenerateOptions:
    """Return the options of all jobs of `generate` of a model and a shape."""
    _, arguments = json.loads(shape)
    options, _ = resolve_options(
        generate,
        _outline(model),
        None,
        arguments,
    )
    return options


def _job(
    line: int,
    row: Any,
    root: Path,
    defaults: Mapping[str, Any],
    dtype: str,
) -> Job:
    """Check a job of a manifest, by the same functions as its call, without weights."""
    try:
        arguments = {**defaults, **to_json(row)}
    except TypeError as error:
        raise ArgumentError(
            f"it is {quoted(row)}: expected a JSON object with the arguments"
        ) from error
    identity = json.dumps({**arguments, "dtype": dtype}, sort_keys=True)
    task = arguments.pop("task")
    model = arguments.pop("model")
    check_one_of("task", task, TASKS)
    check_text("model", model or "")
    pipe = _outline(model)
    check_names(
        pipe,
        arguments,
        _SIGNATURES[task].parameters.keys() - _NOT_IN_JOBS,
    )
    check_int("the seed", arguments.get("seed"), least=0, most=MAX_WHOLE)
    for name in {"picture", "image"} & arguments.keys():
        arguments[name] = str(root / str(arguments[name]))
    shared = {name: arguments[name] for name in arguments.keys() - {"prompt", "seed"}}
    job = Job(
        hashlib.sha256(identity.encode()).hexdigest()[:16],
        line,
        task,
        model,
        arguments,
        json.dumps([task, shared], sort_keys=True),
    )
    _check(job, pipe)
    return job


def _check(job: Job, pipe: Any) -> None:
    try:
        _SIGNATURES[job.task].bind(pipe, **job.arguments)
    except TypeError as error:
        raise ArgumentError(f"{job.task}: {error}") from error
    rest = dict(job.arguments)
    seed = rest.pop("seed")
    if job.task == "edit":
        text = rest.pop("source")
        target = rest.pop("target", None)
        check_text("target", target or "")  # a list would be several jobs
        source, (target,), _ = resolve_edits(edit, pipe, text, target, seed, rest)
        check_effect([source.plan(target)])
        return
    prompt = check_prompt(rest.pop("prompt"))
    if job.task == "locate":
        image = open_image(rest.pop("picture"))
        options, _ = resolve_location(pipe, image, prompt, seed, rest)
    else:
        options = _generate_options(job.model, job.shape)
    RecordingSpec(options)
    steering_of(pipe, [parse_weights(prompt)], options)
