"""The gallery of a sweep: its data, its links, and what is not a sweep."""

import re
from pathlib import Path

import msgspec
from test_house import loaded_by

import heedmap as hm

JOBS = [
    {"prompt": "a <script>alert(1)</script> house", "seed": 7, "steps": 1},
    {"prompt": "a tree", "seed": 8, "steps": 1, "truths": {"tree": [0, 0, 32, 64]}},
    {"task": "edit", "source": "a red house", "target": "a blue house", "seed": 7, "steps": 1},
]


def data(page: Path) -> dict:
    (text,) = re.findall(r'id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    return msgspec.json.decode(text)


def test_the_gallery_has_each_result(tmp_path):
    hm.sweep(JOBS[:2], "out", pages=False)
    hm.sweep(JOBS[2:], "paged")
    page = hm.gallery("out")
    assert page == Path("out/index.html")
    runs = data(page)["runs"]
    assert [run["prompt"] for run in runs] == [job["prompt"] for job in JOBS[:2]]
    assert all((Path("out") / run["image"]).is_file() for run in runs)
    assert runs[0]["iou"] is None and 0 <= runs[1]["iou"] <= 1
    (edit,) = data(hm.gallery("paged"))["runs"]
    assert edit["source"] == "a red house" and edit["mse_outside"] >= 0
    assert (Path("paged") / edit["page"]).is_file()
    loaded = loaded_by(f"import heedmap; heedmap.gallery({str(tmp_path / 'out')!r})", tmp_path)
    assert not loaded & {"torch", "diffusers", "transformers"}
