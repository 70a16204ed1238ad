"""Advice that nobody needs is kept back; all else that libraries log comes through."""

import logging

import pytest
from making import random_pipeline

import heedmap as hm
from heedmap.backends.loading import silence_logs
from heedmap.recording.tracing import trace

LONG = "a red house " * 40
IMPORTS = "transformers.utils.import_utils"
NEEDLESS = "`CLIPImageProcessor` requires torchvision (not installed); falling back"


@pytest.fixture
def read_logs(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """What reaches the logs of transformers and diffusers."""
    every = [logging.getLogger(name) for name in ("transformers", "diffusers")]
    for logger in every:
        logger.addHandler(caplog.handler)
        monkeypatch.setattr(logger, "propagate", False)  # transformers passes on where CI is set
    yield lambda: [record.getMessage() for record in caplog.records]
    for logger in every:
        logger.removeHandler(caplog.handler)


def test_only_needless_messages_are_silenced(read_logs):
    logger = logging.getLogger(IMPORTS)
    with silence_logs():
        logger.warning(NEEDLESS)
        logger.warning("something else")
    logger.warning(NEEDLESS)
    assert read_logs() == ["something else", NEEDLESS]


def test_a_cut_prompt_gives_one_warning_by_heedmap(read_logs):
    pipe = random_pipeline()
    before = [list(handler.filters) for handler in logging.getLogger("diffusers").handlers]
    warned_by_heedmap = pytest.warns(hm.HeedmapWarning, match="does not read")
    with warned_by_heedmap as warned, trace(pipe) as recorder:
        pipe([LONG, "a cat"], num_inference_steps=2, output_type="latent")
        pipe(LONG, num_inference_steps=2, output_type="latent")
    assert len(warned) == 2 and read_logs() == []  # once a call
    assert before == [handler.filters for handler in logging.getLogger("diffusers").handlers]
    assert [maps.tokens.unread == "" for maps in recorder.maps] == [False, True, False]
    pipe(LONG, num_inference_steps=1, output_type="latent")  # without a trace it is theirs to tell
    assert any("truncated" in one for one in read_logs())
