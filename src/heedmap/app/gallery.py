"""The results that a visitor sees, over HTTP: listed, opened, renamed, deleted, taken along.

A result is asked for by its name on the visitor's own shelf, and whose that is the visitor's cookie
says (`result_store`, `visitors`): no path is taken from anybody.
"""

import asyncio
import io
import re
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from heedmap import checks
from heedmap.app import archives, messages
from heedmap.app.answers import FileAnswer, shut_off
from heedmap.app.labels import sentence_for
from heedmap.app.middleware import body_of, client_of
from heedmap.app.quotas import Quota, StreamQuota
from heedmap.app.result_store import ResultStore, Shelf, Shelved, read_result
from heedmap.app.visitors import visitor_of
from heedmap.errors import ArgumentError, RunError, plural
from heedmap.figures.formats import png
from heedmap.files.writing import sealed
from heedmap.results import comparisons
from heedmap.results.pairs import Pair
from heedmap.results.runs import Run

_LISTED = 500  # results that are told of
_PACKED, _PACKED_OWN = 8, 2  # zips and sheets that are made at a time, in all and for one visitor
_SENT, _SENT_OWN = 16, 4  # that are being sent
_SHOWN = 100, 60  # lists and pictures at a time
_ROWS = 12  # runs that are compared
_WORDS = 24  # of which
_TALK = 4096  # bytes of a new name
_FACES = {"run": "image.png", "edit": "edited/image.png", "explanation": "image.png"}
_TYPES = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}


class Gallery:
    """What is asked of results.

    Args:
        store: that holds them.
    """

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._packing = Quota(_PACKED, own=_PACKED_OWN)
        self._looking = Quota(_SHOWN[0], own=_SHOWN[1])
        self._sending = StreamQuota(_SENT, own=_SENT_OWN)
        self._drawing = threading.Lock()  # one sheet at a time

    def routes(self) -> list[Route]:
        """Where it is asked."""
        get: dict[str, Any] = {"methods": ["GET"]}
        post: dict[str, Any] = {"methods": ["POST"]}
        return [
            Route("/results", self._list, **get),
            Route("/results/{name}.zip", self._pack, **get),
            Route("/results/{name}/page", self._show, **get),
            Route("/results/{name}/picture", self._picture, **get),
            Route("/results/{name}/name", self._rename, **post),
            Route("/results/{name}/end", self._delete, **post),
            Route("/comparison", self._compare, **get),
        ]

    def _shelf(self, request: Request) -> Shelf:
        return self._store.shelf(visitor_of(request.headers.get("cookie", "")))

    async def _list(self, request: Request) -> Response:
        shelf = self._shelf(request)
        with self._looking.take(client_of(request.scope)):
            found = await asyncio.to_thread(shelf.results)
        told = {"results": [asdict(one) for one in found[:_LISTED]], "all": len(found)}
        return JSONResponse(told, headers={"cache-control": "private, no-store"})

    async def _pack(self, request: Request) -> Response:
        folder = self._folder(request)
        with ExitStack() as held:
            file = held.enter_context(tempfile.TemporaryFile())
            with self._packing.take(client_of(request.scope)):
                await asyncio.to_thread(archives.zip_result, folder, file)
            name = quote(f"heedmap-{folder.name}.zip")
            told = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
            return FileAnswer(file, "application/zip", told, held.pop_all(), self._sending)

    async def _show(self, request: Request) -> Response:
        """The page of a result, as it was saved."""
        return self._own_file(request, "index.html", "text/html")

    async def _picture(self, request: Request) -> Response:
        """A picture that stands for a result; of a grid that of one edit, by its number from 1."""
        found = self._told(request, request.path_params["name"])
        if found.kind != "grid":
            return self._own_file(request, _FACES[found.kind], "image/png")
        said = request.query_params.get("cell", "1")
        number = int(said) if re.fullmatch("[0-9]{1,4}", said) else 0
        if not 1 <= number <= found.cells:
            raise HTTPException(
                404, f"This grid has no such cell: expected a number from 1 to {found.cells}."
            )
        return self._own_file(request, f"cells/{number:03d}/image.png", "image/png")

    async def _rename(self, request: Request) -> Response:
        said = await body_of(request.headers, request.receive, most=_TALK)
        told = messages.parsed(messages.NewName, said)
        if told is None:
            raise HTTPException(422, "That is no name: expected up to 500 letters.")
        name, shelf = request.path_params["name"], self._shelf(request)
        return JSONResponse({"name": await asyncio.to_thread(shelf.rename, name, told.name)})

    async def _delete(self, request: Request) -> Response:
        await body_of(request.headers, request.receive, most=_TALK)
        await asyncio.to_thread(self._shelf(request).delete, request.path_params["name"])
        return JSONResponse({})

    async def _compare(self, request: Request) -> Response:
        """Results below one another on one sheet, as `heedmap compare` draws it.

        Where it is looked at in the dark, it is on dark paper; what is taken along never is.
        """
        asked = request.query_params
        words = [checks.text("word", word, "house", most=_TALK) for word in asked.getlist("word")]
        kind, scale = asked.get("format", "png"), asked.get("scale", "shared")
        checks.one_of("the format", kind, _TYPES)
        checks.one_of("scale", scale, ("shared", "word", "raw"))
        names, shelf = asked.getlist("run"), self._shelf(request)
        if not 1 <= len(names) <= _ROWS or len(words) > _WORDS:
            raise ArgumentError(
                f"{plural(len(names), 'result')} and {plural(len(words), 'word')} are to be "
                f"compared: expected 1 to {_ROWS} results and at most {_WORDS} words"
            )
        with self._packing.take(client_of(request.scope)):
            how = {"scale": scale, "kind": kind, "dark": "dark" in asked and "take" not in asked}
            data = await asyncio.to_thread(self._sheet, shelf, names, words, **how)
        told = {"content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'"}
        if asked.get("take"):
            told["content-disposition"] = f'attachment; filename="heedmap-comparison.{kind}"'
        with ExitStack() as held:
            file = held.enter_context(io.BytesIO(data))
            return FileAnswer(file, _TYPES[kind], told, held.pop_all(), self._sending)

    def _sheet(
        self, shelf: Shelf, names: list[str], words: list[str], *, scale: Any, kind: Any, dark: bool
    ) -> bytes:
        with self._drawing:
            runs = [run for name in names for run in _runs(shelf, name)]
            if len(runs) > _ROWS:
                raise ArgumentError(
                    f"{len(runs)} pictures are to be compared: expected at most {_ROWS}, an edit "
                    "counts as two"
                )
            found = words or comparisons.common_words(runs)
            laid = comparisons.laid(runs, found, scale=scale)
            if dark and kind == "png":
                return png(laid.image(dark=True))
            return sealed(laid.figure().data(kind))

    def _own_file(self, request: Request, file: str, kind: str) -> Response:
        """A file of a result that heedmap wrote there: no link, and nothing of anybody else's."""
        folder = self._folder(request)
        path = folder / file
        within = (path, *path.parents[: len(Path(file).parts) - 1])
        if any(one.is_symlink() for one in within):
            raise HTTPException(404, "This result is not as it was saved: make it again.")
        return shut_off(path, kind)

    def _told(self, request: Request, name: str) -> Shelved:
        try:
            return self._shelf(request).result(name)
        except RunError as error:
            raise HTTPException(404, sentence_for(error)) from error

    def _folder(self, request: Request) -> Path:
        try:
            return self._shelf(request).folder(request.path_params["name"])
        except RunError as error:
            raise HTTPException(404, sentence_for(error)) from error


def _runs(shelf: Shelf, name: str) -> list[Run]:
    """The runs of a result, as they are compared: an edit is two."""
    kind = shelf.result(name).kind
    found = read_result(shelf.folder(name)) if kind in ("run", "edit") else None
    if isinstance(found, Run):
        return [found]
    if isinstance(found, Pair):
        return [found.source, found.edited]
    an = "an" if kind == "explanation" else "a"
    raise ArgumentError(f"the result {name} is {an} {kind}: choose runs or edits to compare")
