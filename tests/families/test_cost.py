"""The cost of recording where people run it: launches on a GPU, and waits for it.

Both are exact numbers; the device is `devices.OnGpu`.
"""

from contextlib import ExitStack

import devices
import numpy as np
import pytest
from oracle import denoiser

import heedmap as hm
from families.checking import paint
from families.models import TABLE

OPTIONS = [
    {},
    {"tokens": "all"},
    {"keep": "all"},
    {"branches": {"conditional", "negative"}},
    {"places": [(5, 5), (0, 0, 32, 32)], "budget": True},
    {"concepts": ["at", "he"]},
    {"edits": [hm.Reweight("red", 2.0), hm.Confine("house", (0, 0, 32, 32))]},
]


@pytest.mark.parametrize(
    ("family", "launches"),
    [("sd1", 25), ("sd3", 15), ("flux", 20), ("zimage", 20), ("lumina2", 20), ("krea", 25)],
)
def test_a_gpu_records_as_a_cpu_does_and_waits_for_nothing(load, family, launches):
    """The images are to the bit. From the second step to the last nothing waits."""
    pipe = load(family)
    arguments = TABLE[family].arguments()

    marks = []

    def mark(*_):
        marks.append(devices.COUNTS["waits"])

    def run(options=None, steps=3):
        """The image and all values; the marks are the waits before and after each pass."""
        marks.clear()
        with ExitStack() as stack:
            if options is not None:
                trace = stack.enter_context(hm.trace(pipe, **options))
            model = denoiser(pipe)
            stack.callback(model.register_forward_pre_hook(mark).remove)
            stack.callback(model.register_forward_hook(mark).remove)
            image = paint(pipe, "a red house", steps=steps, **arguments)
        if options is None:
            return image, None
        maps = [trace.maps[0]]
        if "concepts" in options:
            maps += trace.concept_maps
        if "places" in options:
            maps += trace.place_maps
        return image, [one.values for words in maps for one in words.values()]

    on_cpu = [run(options)[1] for options in OPTIONS]
    devices.move(pipe)
    with devices.gpu():

        def measure(options=None):
            """The image and values of 3 steps; in 6, waits after the first, a step's launches."""
            launches = [devices.COUNTS["launches"]]
            made = run(options, steps=3)
            launches.append(devices.COUNTS["launches"])
            run(options, steps=6)
            launches.append(devices.COUNTS["launches"])
            few, many = np.diff(launches)
            return *made, marks[-1] - marks[len(marks) // 6], (many - few) / 3

        run()  # some models keep what they compute at first
        plain, _, own_waits, own_launches = measure()
        for options, expected in zip(OPTIONS, on_cpu, strict=True):
            image, values, waits, launched = measure(options)
            for found, wanted in zip(values, expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
            assert waits == own_waits, options
            if "edits" not in options:
                np.testing.assert_array_equal(image, plain)
            if not options.keys() & {"concepts", "edits", "places"}:
                branches = len(options.get("branches", {"conditional"}))
                assert launched - own_launches <= branches * launches, options
