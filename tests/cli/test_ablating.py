"""`heedmap ablate`: three runs, a sheet and a file, beside the run; sentences for what is not."""

import json
import os
import webbrowser
from contextlib import contextmanager
from pathlib import Path

import pytest
from making import made_trust

from cli.calling import bad, call, files, good, raising
from heedmap import Ablation, edit, generate
from heedmap.cli.ablating import print_ablation
from heedmap.cli.options import OutputFlags
from heedmap.drawing import repeating
from heedmap.files.notes import to_json
from heedmap.models import pipelines
from heedmap.results.runs import Run

MAPS = ("heat", "refined", "mask")


def test_saved_beside_the_run(model, saved):
    before = files(saved)
    told = good("ablate", saved, "house")
    folder = saved / "ablate" / "house"
    assert {name.partition("/")[0] for name in files(folder)} == {
        "ablate.json", "columns", "columns.npy", "columns.png", "run", "sheet.png", "unread",
        "unread.npy", "unread.png",
    }  # fmt: skip
    assert files(saved) - before == {f"ablate/house/{name}" for name in files(folder)}
    found = Ablation.load(folder)
    assert found.run.image.tobytes() == Run.load(saved).image.tobytes()
    assert found.unread.settings.prompt == "a red"
    lines = told.splitlines()
    (head,) = [line for line in lines if line.startswith("without house")]
    assert "heat: rank" in head and "mask: AUC" in head
    for said, one in (
        ("nothing attends to it", found.trust.columns), ("it is not read", found.trust.unread)
    ):  # fmt: skip
        (row,) = [line for line in lines if line.startswith(said)]
        cells = row.removeprefix(said).split()
        assert cells[:4] == [f"{100 * one.mean:.1f}", "%", f"{100 * one.most:.0f}", "%"]
        assert cells[4:6] == [f"{one.heat.rank:.2f}", f"{one.heat.auc:.2f}"]
        assert cells[-2:] == [f"{one.mask.rank:.2f}", f"{one.mask.auc:.2f}"]
    assert lines[-2].startswith("rank: the rank correlation of a map and the change; AUC: of the")
    assert lines[-1] == f"The pictures beside the heat: {folder / 'sheet.png'}"
    good("ablate", saved, "house", "--quiet")
    assert Ablation.load(saved / "ablate" / "house-2").word == "house"


def test_as_json_and_where_it_is_asked_for(model, saved, desk):
    about = json.loads(good("ablate", saved, "red house", "-o", "without", "--json"))
    found = Ablation.load("without")
    assert (about["folder"], about["sheet"]) == ("without", "without/sheet.png")
    assert about["run"] == str(saved) and about["warnings"] == []
    assert {name: about[name] for name in found.summary()} == found.summary()
    assert about["unread"] == "a"
    assert "without is not empty" in bad("ablate", saved, "red", "-o", "without")
    assert Ablation.load("without").word == "red house"


def test_the_sheet_is_opened(model, saved, desk, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(
        "heedmap.cli.ablating.open_in_browser", lambda uri, page: opened.append(page)
    )
    good("ablate", saved, "house", "-o", "opened")
    assert opened == []
    good("ablate", saved, "house", "-o", "seen", "--open")
    assert opened == ["seen/sheet.png"]


def test_what_is_not_the_run_that_was_saved_is_told(model, saved):
    path = saved / "run.json"
    held = json.loads(path.read_text())
    held["settings"]["seed"] = 4
    path.write_text(json.dumps(held))
    result = call("ablate", saved, "house", "--quiet")
    assert result.exit_code == 0
    assert "the run drawn again is not the one that was saved" in " ".join(result.stderr.split())
    told = call("ablate", saved, "house", "--json")
    (warned,) = json.loads(told.stdout)["warnings"]
    assert told.stderr == f"Warning: {warned}\n" and warned in " ".join(result.stderr.split())


def test_the_address_that_is_opened_is_that_of_the_sheet(model, saved, desk, monkeypatch):
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    good("ablate", saved, "red", "-o", "a sheet", "--open")
    assert addresses == [(desk / "a sheet" / "sheet.png").as_uri()]


def test_a_folder_is_named_after_the_whole_phrase_and_every_step_is_told(model, desk, monkeypatch):
    generate(model, "a red house next to a tree", seed=3, steps=2).save("x")
    steps: list[tuple[int, int]] = []

    @contextmanager
    def bar(label: str, **_):
        yield lambda *at: steps.append(at)

    monkeypatch.setattr("heedmap.cli.ablating.progress_bar", bar)
    told = good("ablate", "x", "red house next to a", "--quiet")
    assert told == f"{Path('x', 'ablate', 'red-house-next-to-a')}\n"
    assert steps == [(done, 3 * 2) for done in range(1, 7)]  # it is drawn again, and twice without


def test_an_interrupt_in_the_moment_of_saving_tells_what_was_saved(model, saved, interrupted):
    result = call("ablate", saved, "house")
    told = f"Interrupted: what was saved before is whole, {saved / 'ablate' / 'house'}.\n"
    assert (result.exit_code, result.stderr) == (130, told)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("cat", "'cat' is not in the prompt"),
        ("", "contains no word to look for"),
        ("a red house", "nothing is left of 'a red house' without 'a red house'"),
    ],
)
def test_refused_before_a_model_is_loaded(saved, monkeypatch, word, said):
    monkeypatch.setattr(repeating, "load_for", raising(AssertionError("loaded")))
    before = files(saved)
    assert said in bad("ablate", saved, word)
    assert files(saved) == before


def test_what_is_missing_or_leads_elsewhere(model, saved, desk):
    assert "RUN" in bad("ablate")
    assert "WORD" in bad("ablate", saved)
    assert "is not a run, edit or grid" in bad("ablate", desk, "house")
    edit(model, "a red house", "a red horse", seed=3, steps=2).save("pair")
    said = bad("ablate", "pair", "red")
    assert "expected one that took nothing from another" in said and "'pair'" in said
    (desk / "other").mkdir()
    (saved / "ablate").symlink_to(desk / "other")
    assert "is a link" in bad("ablate", saved, "house")
    assert not files(desk / "other")


def test_maps_that_a_run_does_not_have_are_told_as_none(capsys):
    trust = to_json(made_trust())
    for way in trust.values():
        if isinstance(way, dict):
            way["refined"] = None
    print_ablation(Path("x"), {"word": "house", "trust": trust})
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " % " in line]
    assert len(rows) == 2 and all(row.count("-") == 2 for row in rows)


def test_the_model_is_loaded_as_it_is_asked_for_or_as_the_run_was(model, saved, monkeypatch):
    loads: list[tuple] = []
    monkeypatch.setattr(pipelines, "load", lambda name, **how: loads.append((name, how)) or model)
    noted = json.loads((saved / "run.json").read_text())["settings"]
    good("ablate", saved, "house", "--quiet")
    other = ("--model", "other", "--device", "cuda", "--dtype", "bfloat16")
    monkeypatch.setattr(OutputFlags, "hidden", False)  # as at a terminal
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    call("ablate", saved, "house", *other)
    assert "TQDM_DISABLE" not in os.environ  # a hub shows bars of its own
    assert loads == [
        (noted["model"], {"device": noted["device"], "dtype": noted["dtype"]}),
        ("other", {"device": "cuda", "dtype": "bfloat16"}),
    ]


def test_figures_of_0_are_figures_and_columns_end_where_their_names_do(capsys):
    print_ablation(Path("x"), {"word": "house", "trust": to_json(made_trust(0.0, 0.0))})
    _, head, *rows = capsys.readouterr().out.splitlines()[:4]
    names = ("change", "up to", *(f"{of}: {one}" for of in MAPS for one in ("rank", "AUC")))
    ends = [head.index(name) + len(name) for name in names]
    for row in rows:
        assert all(row[end - 1] != " " and row[end : end + 1] in ("", " ") for end in ends)
        cells = [row[:end].rpartition("  ")[2] for end in ends]
        assert cells[:2] == ["10.0 %", "50 %"]
        assert [cell.strip().removeprefix("-") for cell in cells[2:]] == ["0.00"] * 6
