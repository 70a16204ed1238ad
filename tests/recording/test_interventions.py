"""Taking part in a run: what an intervention by itself changes, and what it is handed."""

import torch
from making import run

from heedmap.recording.interventions import Intervention
from heedmap.recording.tracing import steered, trace


def test_by_itself_it_takes_no_part(pipe):
    idle = Intervention()
    assert not (idle.steering or idle.edits or idle.watch or idle.after_step or idle.probe)
    assert not idle.predicts
    with trace(pipe) as recorder:
        run(pipe, "a house")
    assert recorder.steerer is None and recorder.predicted is None


def test_what_is_given_back_after_a_step_is_gone_on_with(pipe):
    """Latents of nothing but zeros after the last step are a picture of one colour."""
    calls = []

    def blank(recorder, moment, latents):
        calls.append(moment.step)
        return torch.zeros_like(latents) if moment.step == 2 else latents

    with steered(pipe, after_step=blank):
        images = run(pipe, "a house", steps=3)
    plain = run(pipe, "a house", steps=3)
    assert calls == [0, 1, 2]
    assert images[0].tobytes() != plain[0].tobytes()
    with steered(pipe, after_step=blank):
        other = run(pipe, "a cat", seeds=(9,), steps=3)
    assert other[0].tobytes() == images[0].tobytes()  # no word and no noise is left in them
