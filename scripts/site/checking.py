"""Links of built pages: each leads to a file, and to an element of it."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Document(HTMLParser):
    """The anchors of an HTML file, and what it refers to."""

    anchors: set[str] = field(default_factory=set)
    references: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors and references of an element."""
        values = dict(attrs)
        self.anchors |= {values[name] or "" for name in ("id", "name") if name in values}
        names = ("href", "src") if tag != "base" else ()
        self.references += [values[name] or "" for name in names if name in values]


def dead_links(folder: Path) -> list[str]:
    """Return a line for each link within a folder of HTML files that leads to nothing."""
    documents = {path.resolve(): _read(path) for path in folder.rglob("*.html")}
    found = []
    for path, document in documents.items():
        if path.name == "404.html":  # its links begin at the root of the site
            continue
        for reference in document.references:
            parts = urlsplit(reference)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target = target / "index.html"
            anchors = documents[target].anchors if target in documents else set()
            anchor = unquote(parts.fragment)
            is_dead = anchor and target.suffix == ".html" and anchor not in anchors
            if not target.exists() or is_dead:
                found.append(f"{path.relative_to(folder.resolve())}: {reference}")
    return sorted(set(found))


def _read(path: Path) -> Document:
    document = Document()
    document.feed(path.read_text(encoding="utf-8"))
    return document
