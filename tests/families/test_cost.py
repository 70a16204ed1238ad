"""The cost of recording where people run it: launches on a GPU, and waits for it.

Both are exact numbers; the device is `devices.OnGpu`.
"""

import devices
import numpy as np
import pytest

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
    [("sd1", 25), ("sd3", 20), ("flux", 22), ("zimage", 20), ("lumina2", 20), ("krea", 45)],
)
def test_a_gpu_records_as_a_cpu_does_and_waits_for_nothing(load, family, launches):
    """The images are to the bit, and a pass beyond the first has few launches more, and no wait."""
    pipe = load(family)
    arguments = TABLE[family].arguments()

    def run(options=None, steps=2):
        if options is None:
            return paint(pipe, "a red house", steps=steps, **arguments), None
        with hm.trace(pipe, **options) as trace:
            image = paint(pipe, "a red house", steps=steps, **arguments)
        return image, trace.maps[0]["house"].values

    on_cpu = [run(options)[1] for options in OPTIONS]
    devices.move(pipe)
    with devices.gpu() as counts:

        def measure(options=None):
            """The image and values of 2 steps, and the launches and waits of a pass more."""
            begin = counts.copy()
            made = run(options)
            middle = counts.copy()
            run(options, steps=4)
            cost = {
                name: (counts[name] - middle[name] - (middle[name] - begin[name])) / 2
                for name in counts
            }
            return *made, cost

        run()  # some models keep what they compute at first
        plain, _, bare = measure()
        for options, expected in zip(OPTIONS, on_cpu, strict=True):
            image, values, traced = measure(options)
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)
            assert traced["waits"] == bare["waits"], options
            if "edits" not in options:
                np.testing.assert_array_equal(image, plain)
            if not options.keys() & {"concepts", "edits", "places"}:
                branches = len(options.get("branches", {"conditional"}))
                assert traced["launches"] - bare["launches"] <= branches * launches, options
