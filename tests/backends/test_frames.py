"""The calls of a pipeline that run now."""

from heedmap.backends import active_calls


class Pipe:
    """Calls what it is given; `free` says whether its class lets go of its models."""

    def __call__(self, then, output_type="pil"):
        self.maybe_free_model_hooks = None
        return then()


class Quiet:
    def __call__(self, then, output_type="pil"):
        return then()


def test_the_calls_that_run_innermost_first():
    pipe, other = Pipe(), Pipe()
    assert active_calls.running(pipe) == []

    def within():
        return [frame.f_locals["output_type"] for frame in active_calls.running(pipe)]

    assert pipe(within, "one") == ["one"]
    assert pipe(lambda: pipe(within, "two"), "one") == ["two", "one"]
    assert pipe(lambda: other(within), "one") == ["one"], "another one of the class is another"
    assert other(lambda: active_calls.running(pipe)) == []


def test_whether_the_end_is_said():
    pipe, quiet = Pipe(), Quiet()
    assert pipe(lambda: active_calls.says_end(pipe)) is True
    assert pipe(lambda: active_calls.says_end(pipe), "latent") is False
    assert quiet(lambda: active_calls.says_end(quiet)) is False
