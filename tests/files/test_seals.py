"""Seals: a file with one is what other readers took it for, and any change breaks it."""

import io
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import numpy as np
import pytest
from making import made_run
from PIL import Image

from heedmap.files.seals import is_sealed, sealed

KINDS = ("png", "svg", "pdf", "gif")


def figure(kind: str) -> bytes:
    run = made_run()
    return run.animation("house").gif() if kind == "gif" else run.figure().data(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_changes_a_byte_breaks_the_seal(tmp_path: Path, kind):
    path, data, random = tmp_path / "x", sealed(figure(kind)), Random(0)
    path.write_bytes(data)
    assert is_sealed(path)
    assert sealed(figure(kind)) == data
    for at in [*range(12), *range(-120, 0), *random.sample(range(len(data)), 30)]:
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes(changed)
        assert not is_sealed(path), at
    for other in (figure(kind), data + b"\n", data[:-1], sealed(data)[:-1], b"", b"heedmap"):
        path.write_bytes(other)
        assert not is_sealed(path)
    assert not is_sealed(tmp_path) and not is_sealed(tmp_path / "none")


def test_a_sealed_figure_is_the_same_to_other_readers():
    for kind in ("png", "gif"):
        plain, marked = (Image.open(io.BytesIO(d)) for d in (figure(kind), sealed(figure(kind))))
        assert np.array_equal(np.asarray(plain), np.asarray(marked))  # and all of it is read
        assert getattr(plain, "n_frames", 1) == getattr(marked, "n_frames", 1)
        if kind == "png":
            assert marked.info["Software"].startswith("heedmap ")
        Image.open(io.BytesIO(sealed(figure(kind)))).verify()
    plain, marked = (ElementTree.fromstring(d) for d in (figure("svg"), sealed(figure("svg"))))
    assert ElementTree.tostring(plain) == ElementTree.tostring(marked)
    marked = sealed(figure("pdf"))
    assert marked.startswith(figure("pdf")) and b"%%EOF" in marked[-1024:]
    assert marked[len(figure("pdf")) :].startswith(b"%") and marked.endswith(b"\n")


def test_the_seal_of_a_gif_stands_before_its_end():
    marked = sealed(figure("gif"))
    assert marked[-1:] == b";" and marked[:-1].endswith(b"\0")
    assert marked.rindex(b"!\xfe") == len(figure("gif")) - 1


def test_what_is_no_figure_has_no_seal():
    assert sealed(b"notes") == b"notes"
