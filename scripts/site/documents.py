"""Pages of the site from pages with includes: sections of documents, and links between them."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

INCLUDE = re.compile(
    r"^<!-- include (?P<path>[^\s#]+)(?:#(?P<anchor>\S+))?(?: without (?P<without>.+))? -->$"
)
"""A line of a page that stands for a document, or for a section of one."""
HEADING = re.compile(r"^(?P<marks>#+) (?P<text>.+)$")
LINK = re.compile(r"(?P<start>!?\[[^\]]*\])\((?P<target>[^()\s]+)\)")
MARK = re.compile(r"^<!-- /?[\w ]+ -->\n", re.MULTILINE)
"""A mark around a table that a script writes: a table needs a paragraph's end before it."""
FENCE = re.compile(r"^ *```")


@dataclass(frozen=True)
class Section:
    """A part of a document: its heading, the text below it, and all deeper headings."""

    level: int
    """Number of #."""
    slug: str
    """Anchor of the heading, as GitHub makes it."""
    start: int
    """First line, from 0."""
    stop: int
    """The line behind the last one."""


@dataclass(frozen=True)
class Piece:
    """Lines of a page, with the document that they come from.

    Attributes:
        document: path of the document in the repository; the links of `lines` are relative to it.
        lines: Markdown.
    """

    document: str
    lines: tuple[str, ...]


@dataclass
class Site:
    """Pages made of documents.

    Attributes:
        root: folder of the repository.
        repository: address of the repository, or "" if links to its files are to be text.
        pages: text of each page, by its path in the site.
        copied: files that pages show or link, by their path in the site.
    """

    root: Path
    repository: str = ""
    pages: dict[str, str] = field(default_factory=dict)
    copied: dict[str, Path] = field(default_factory=dict)
    _homes: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, sources: Mapping[str, str]) -> None:
        """Make pages of texts with includes.

        Args:
            sources: text of each page, by its path in the site.

        Raises:
            ValueError: if an included section does not exist, if two pages include the same one,
                or if a page links to nothing.
        """
        expanded = {page: self._expand(page, text) for page, text in sources.items()}
        for page, pieces in expanded.items():
            parts = [self._page_text(page, piece) for piece in pieces]
            text = MARK.sub("\n", "\n".join(parts) + "\n")
            if self.repository:
                text = text.replace("<this repository>", self.repository)
            self.pages[page] = _with_anchors(text)

    def assign(self, document: str, page: str) -> None:
        """Say that a document which is no Markdown is on a page."""
        self._homes[document, ""] = page

    def add_text(self, page: str, document: str, text: str) -> None:
        """Make a page of the text of a document that was assigned to it."""
        piece = Piece(document, tuple(text.splitlines()))
        self.pages[page] = _with_anchors(self._page_text(page, piece))

    def missing(self, document: str) -> list[str]:
        """Return the sections of a document's second level that are on no page."""
        found = sections(self._read(document))
        slugs = [section.slug for section in found if section.level == 2]
        return [slug for slug in slugs if (document, slug) not in self._homes]

    def _read(self, document: str) -> list[str]:
        return (self.root / document).read_text(encoding="utf-8").splitlines()

    def _expand(self, page: str, text: str) -> list[Piece]:
        """Split a page's text at its includes, and put the included lines in their place."""
        home = f"scripts/site/pages/{page}"
        self._homes.setdefault((home, ""), page)
        pieces = []
        own: list[str] = []
        for line in text.splitlines():
            include = INCLUDE.match(line)
            if include is None:
                own.append(line)
                continue
            is_title = not pieces and not own
            if own:
                pieces.append(Piece(home, tuple(own)))
            own = []
            skipped = (include["without"] or "").split()
            pieces.append(
                self._included(page, include["path"], include["anchor"], skipped, is_title)
            )
        pieces.append(Piece(home, tuple(own)))
        return pieces

    def _included(
        self, page: str, document: str, anchor: str | None, skipped: list[str], is_title: bool
    ) -> Piece:
        """Return the lines of an include, and note which of the document's headings they hold."""
        lines = self._read(document)
        found = sections(lines)
        by_slug = {section.slug: section for section in found}
        wanted = {anchor, *skipped} - {None}
        if unknown := wanted - set(by_slug):
            raise ValueError(f"{page}: {document} has no section {sorted(unknown, key=str)}")
        whole = Section(level=1, slug="", start=0, stop=len(lines))
        section = by_slug[anchor] if anchor else whole
        left_out = [by_slug[slug] for slug in skipped]
        dropped = {n for one in left_out for n in range(one.start, one.stop)}
        kept = [n for n in range(section.start, section.stop) if n not in dropped]
        for heading in found:
            if heading.start in kept:
                self._note(document, heading.slug, page)
        self._homes.setdefault((document, ""), page)
        shift = 1 - section.level if is_title else 0
        text = [lines[n] for n in kept]
        return Piece(document, tuple(_shifted(text, shift)))

    def _note(self, document: str, slug: str, page: str) -> None:
        other = self._homes.setdefault((document, slug), page)
        if other != page:
            raise ValueError(f"{document}#{slug} is on {other} and on {page}")

    def _page_text(self, page: str, piece: Piece) -> str:
        """Return the lines of a piece with links that hold on a page."""
        lines = []
        for line, is_code in _lines_and_code(piece.lines):
            if not is_code:
                line = LINK.sub(lambda link: self._link(page, piece.document, link), line)
            lines.append(line)
        return "\n".join(lines)

    def _link(self, page: str, document: str, link: re.Match[str]) -> str:
        start, target = link["start"], link["target"]
        if re.match(r"[a-z]+:", target):
            return link[0]
        path, _, anchor = target.partition("#")
        folder = posixpath.dirname(document)
        file = posixpath.normpath(posixpath.join(folder, path)) if path else document
        if not path and not self._homes.get((document, anchor)):
            return link[0]  # a heading of a page's own text
        if home := self._home(file, anchor):
            return f"{start}({_relative(home, page)}{'#' if anchor else ''}{anchor})"
        pages = "scripts/site/pages/"
        if file.startswith(pages):  # a page or a file that the build makes
            return f"{start}({_relative(file.removeprefix(pages), page)}{target[len(path) :]})"
        if not (self.root / file).exists():
            raise ValueError(f"{document} links to {target}, which does not exist")
        if start.startswith("!"):
            copy = f"assets/{PurePosixPath(file).name}"
            self.copied[copy] = self.root / file
            return f"{start}({_relative(copy, page)})"
        if self.repository:
            kind = "tree" if (self.root / file).is_dir() else "blob"
            return f"{start}({self.repository}/{kind}/main/{file})"
        return start[1:-1]

    def _home(self, document: str, anchor: str) -> str | None:
        """Return the page of a document's heading."""
        if (document, "") not in self._homes:
            return None
        home = self._homes.get((document, anchor))
        if home is None:
            raise ValueError(f"no page has {document}#{anchor}")
        return home


def slug(heading: str) -> str:
    """Return the anchor of a heading's text, as GitHub makes it."""
    text = LINK.sub(lambda link: link["start"].lstrip("!")[1:-1], heading)
    kept = re.sub(r"[^\w\- ]", "", text.lower())
    return kept.replace(" ", "-")


def sections(lines: list[str]) -> list[Section]:
    """Return the sections of a document, in the order of their headings."""
    headings = []
    slugs: dict[str, int] = {}
    for number, (line, is_code) in enumerate(_lines_and_code(lines)):
        heading = None if is_code else HEADING.match(line)
        if heading is None:
            continue
        name = slug(heading["text"])
        count = slugs.get(name, 0)
        slugs[name] = count + 1
        headings.append((number, len(heading["marks"]), f"{name}-{count}" if count else name))
    found = []
    for index, (start, level, name) in enumerate(headings):
        ends = [number for number, other, _ in headings[index + 1 :] if other <= level]
        stop = ends[0] if ends else len(lines)
        found.append(Section(level, name, start, stop))
    return found


def _lines_and_code(lines: tuple[str, ...] | list[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it belongs to a block of code."""
    inside = False
    for line in lines:
        fence = bool(FENCE.match(line))
        yield line, inside or fence
        inside = inside != fence


def _shifted(lines: list[str], levels: int) -> Iterator[str]:
    """Yield lines with headings moved by a number of levels."""
    for line, is_code in _lines_and_code(lines):
        heading = None if is_code else HEADING.match(line)
        if heading is None:
            yield line
            continue
        marks = "#" * max(1, len(heading["marks"]) + levels)
        yield f"{marks} {heading['text']}"


def _with_anchors(text: str) -> str:
    """Return Markdown whose headings have GitHub's anchors."""
    lines = text.splitlines()
    anchors = {section.start: section.slug for section in sections(lines)}
    named = [f"{line} {{#{anchors[n]}}}" if n in anchors else line for n, line in enumerate(lines)]
    return "\n".join(named) + "\n"


def _relative(target: str, page: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
