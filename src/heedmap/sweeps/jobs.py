"""The jobs of a sweep: read from a manifest, checked before a model is loaded, named by a hash.

A job is a call of `generate`, `edit` or `locate` with its arguments:

    {"task": "edit", "source": "a red house", "target": "a blue house", "seed": 7, "steps": 30}

Besides, it may have "model", "weights" by word, and "truths": the mask files or boxes of words.
A manifest is JSONL or CSV with one job a line, or TOML. In TOML the plural of an argument is a list
("prompts", "seeds", "targets"), and each combination of such lists and of weights is a job.
"""

import csv
import hashlib
import inspect
import itertools
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heedmap.backends import loading
from heedmap.backends.prompts import prompt_table
from heedmap.backends.registry import check_names, usual_size
from heedmap.checks import check_int, check_one_of, check_prompt, check_text
from heedmap.errors import ArgumentError, HeedmapError, quoted
from heedmap.io import reading
from heedmap.io.schemas import MAX_WHOLE
from heedmap.maps.masks import place, region
from heedmap.options import GenerateOptions
from heedmap.parsing import parse_value
from heedmap.pipelines.arguments import resolve_options
from heedmap.pipelines.editing import check_effect, edit, resolve_edits
from heedmap.pipelines.generation import generate
from heedmap.pipelines.input_images import locate, open_image, resolve_location
from heedmap.text.concepts import checked_concepts
from heedmap.text.weights import parse_weights, spelled, token_weights, weighed

TASKS: Mapping[str, Callable[..., Any]] = {
    "generate": generate,
    "edit": edit,
    "locate": locate,
}
"""The function of each task."""
_SIGNATURES = {task: inspect.signature(function) for task, function in TASKS.items()}
_ABOUT_JOB = ("task", "model", "weights", "truths")
_NOT_IN_JOBS = {"edits", "preview", "progress"}
_TEXTS = {"task", "model", "prompt", "source", "target", "negative", "picture", "image"}


@dataclass(frozen=True)
class Job:
    """A call of `generate`, `edit` or `locate`, checked.

    Attributes:
        id: 16 hexadecimal digits of the SHA-256 of its settings.
        line: its line in the manifest, or its number in a list or a TOML product, from 1.
        task: the function that is called.
        model: the model as in `load`; None for the embedded model.
        arguments: the keyword arguments of the call, without the pipeline.
        truths: by word or phrase, the mask file or the box (left, top, right, bottom) in pixels
            with which the word's map is compared.
        shape: equal for jobs that can be generated in one batch.
    """

    id: str
    line: int
    task: str
    model: str | None
    arguments: dict[str, Any]
    truths: dict[str, Any]
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
    if isinstance(source, str | Path):
        path = reading.path_of(source)
        name = str(path)
        root = path.parent
        rows = _rows(path)
        unit = "job" if path.suffix.lower() == ".toml" else "line"
    else:
        name = "the list"
        root = Path()
        rows = enumerate(source, 1)
        unit = "line"
    checker = _Checker(root.resolve(), None if model is None else str(model), dtype)
    jobs: dict[str, Job] = {}
    errors: list[str] = []
    for line, row in rows:
        try:
            job = checker.job(line, row)
            if job.id in jobs:
                raise ArgumentError(f"it is the same job as line {jobs[job.id].line}")
            jobs[job.id] = job
        except HeedmapError as error:
            errors.append(f"{unit} {line}: {error}")
    if errors or not jobs:
        listed = (
            errors if len(errors) <= 5 else [*errors[:5], f"and {len(errors) - 5} more"]
        )
        most = "; ".join(listed) or "there are no jobs: expected one a line"
        raise ArgumentError(f"{name} cannot run: {most}")
    return list(jobs.values())


def in_units(jobs: Iterable[Job], batch: int = 1) -> list[list[Job]]:
    """Return the jobs in lists, each for one call of a pipeline, those of one model in a row.

    Images of one shape share a call, at most `batch` of them.
    """
    shapes: dict[tuple[str | None, str], list[Job]] = {}
    for job in jobs:
        shapes.setdefault((job.model, job.shape), []).append(job)
    units: list[list[Job]] = []
    for same in shapes.values():
        most = batch if same[0].task == "generate" else 1
        units += [same[at : at + most] for at in range(0, len(same), most)]
    return sorted(units, key=lambda unit: (unit[0].model or "", unit[0].line))


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the line and the content of each job of a file."""
    data = reading.read_bytes(path, most=2**32)
    kind = path.suffix.lower()
    check_one_of("the ending of the manifest", kind, (".jsonl", ".csv", ".toml"))
    try:
        text = data.decode("utf-8-sig")
        if kind == ".jsonl":
            lines = enumerate(text.split("\n"), 1)
            yield from (
                (line, parse_value(part)) for line, part in lines if part.strip()
            )
        elif kind == ".csv":
            reader = csv.DictReader(text.splitlines(keepends=True), strict=True)
            for cells in reader:
                cells = {name: cell for name, cell in cells.items() if cell}
                texts = {name: cell for name, cell in cells.items() if name in _TEXTS}
                values = {name: parse_value(cell) for name, cell in cells.items()}
                yield reader.line_num, values | texts
        else:
            yield from enumerate(_product(tomllib.loads(text)), 1)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, csv.Error) as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from error


def _product(fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each combination of the lists of a TOML file."""
    check_one_of("task", task := fixed.get("task", "generate"), TASKS)
    names = {*_SIGNATURES[task].parameters, *_ABOUT_JOB}
    weights = fixed.pop("weights", {})
    if not isinstance(weights, dict):
        raise ArgumentError("weights is no table: expected one such as {red = [1, 2]}")
    known = [*names, *(f"{name}s" for name in names)]
    for name, value in fixed.items():
        close = get_close_matches(name, known[len(names) :], n=1, cutoff=0.8)
        if isinstance(value, list) and close and name not in known:
            raise ArgumentError(
                f"there is no argument {name}: did you mean {close[0]}?"
            )
    plurals = [
        name for name in fixed if name not in names and name.removesuffix("s") in names
    ]
    axes = {("weights", word): values for word, values in weights.items()}
    axes |= {(name.removesuffix("s"), ""): fixed.pop(name) for name in plurals}
    lists = [
        values if isinstance(values, list) else [values] for values in axes.values()
    ]
    for values in itertools.product(*lists):
        row = dict(fixed)
        for (name, word), value in zip(axes, values, strict=True):
            row[name] = {**row.get(name, {}), word: value} if word else value
        yield row


class _Checker:
    """The checks of jobs, by the same functions as those of the calls, without weights."""

    def __init__(self, root: Path, model: str | None, dtype: str) -> None:
        self._root = root
        self._model = model
        self._dtype = dtype
        self._outline = cache(loading.outline)
        # By model and shape.
        self._options: dict[tuple[str | None, str], GenerateOptions] = {}

    def job(self, line: int, row: Any) -> Job:
        """Check a job of a manifest."""
        if not isinstance(row, Mapping):
            raise ArgumentError(
                f"it is {quoted(row)}: expected a JSON object with the arguments"
            )
        try:
            row = json.loads(json.dumps(dict(row), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"a job is plain JSON: {error}") from error
        about = {name: row.pop(name, None) for name in _ABOUT_JOB}
        task = about["task"] or "generate"
        model = about["model"] or self._model
        check_one_of("task", task, TASKS)
        check_text("model", model or "")
        settings = {**row, **about, "task": task, "model": model, "dtype": self._dtype}
        identity = hashlib.sha256(
            json.dumps(settings, sort_keys=True).encode()
        ).hexdigest()[:16]
        if task == "locate" and "image" in row and "picture" not in row:
            row["picture"] = row.pop("image")
        pipe = self._outline(model)
        check_names(pipe, row, _SIGNATURES[task].parameters.keys() - _NOT_IN_JOBS)
        check_int("the seed", row.get("seed"), least=0, most=MAX_WHOLE)
        weights = about["weights"] or {}
        truths = about["truths"] or {}
        if not isinstance(weights, dict) or not isinstance(truths, dict):
            raise ArgumentError(
                "weights and truths are tables: expected a value for each word"
            )
        for name in {"picture", "image"} & row.keys() if task != "generate" else ():
            row[name] = self._path(row[name])
        if weights:
            name = (
                "target"
                if row.get("target")
                else "source"
                if task == "edit"
                else "prompt"
            )
            parsed = parse_weights(check_prompt(row.get(name)))
            spans = weighed(parsed, prompt_table(pipe, parsed.text), weights)
            row[name] = spelled(parsed.text, spans)
        truths = {word: self._path(where) for word, where in truths.items()}
        shape = json.dumps(
            [task, {**row, "prompt": None, "seed": None}], sort_keys=True
        )
        job = Job(identity, line, task, model, row, truths, shape)
        self._check(job, pipe)
        return job

    def _path(self, value: Any) -> Any:
        return str(self._root / value) if isinstance(value, str) else value

    def _check(self, job: Job, pipe: Any) -> None:
        try:
            _SIGNATURES[job.task].bind(pipe, **job.arguments)
        except TypeError as error:
            raise ArgumentError(f"{job.task}: {error}") from error
        given = dict(job.arguments)
        seed = given.pop("seed")
        if job.task == "edit":
            text = given.pop("source")
            target = given.pop("target", None)
            check_text("target", target or "")  # a list would be several jobs
            source, (target,), _ = resolve_edits(edit, pipe, text, target, seed, given)
            plan = source.plan(target)
            check_effect([plan])
            options = source.sampling
            table = plan.table
        else:
            key = job.model, job.shape
            prompt = check_prompt(given.pop("prompt"))
            if job.task == "locate":
                image = open_image(given.pop("picture"))
                options, _ = resolve_location(pipe, image, prompt, seed, given)
                self._options[key] = options
            elif key not in self._options:  # once for all prompts and seeds
                options, _ = resolve_options(generate, pipe, seed, given)
                self._options[key] = options
            options = self._options[key]
            parsed = parse_weights(prompt)
            checked_concepts(options.concepts)
            if not parsed.spans and not job.truths:
                return
            table = prompt_table(pipe, parsed.text, options.arguments)
            token_weights(parsed.spans, table)
        size = options.size or usual_size(pipe)
        for word, where in job.truths.items():
            table.find(word)
            if job.task != "locate":  # whose picture may have another size
                truth(where, word, size, size)


def truth(
    where: Any, word: str, own: tuple[int, int], size: tuple[int, int]
) -> np.ndarray:
    """Return the mask of a word's truth, bool (H, W), at a size (W, H).

    `where` is the path of a mask file of any size, or a box in pixels of a picture of the size
    `own`.
    """
    name = quoted(word)
    if isinstance(where, str):
        where = reading.read_photograph(Path(where)).convert("L")
        own = where.size
    mask = Image.fromarray(region(place(where, name), *own, name) >= 0.5)
    return np.asarray(mask.resize(size, Image.Resampling.NEAREST))
