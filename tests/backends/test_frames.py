"""The calls of a pipeline that run now."""

from heedmap.backends import frames


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
    assert frames.running(pipe) == []

    def within():
        return [frame.f_locals["output_type"] for frame in frames.running(pipe)]

    assert pipe(within, "one") == ["one"]
    assert pipe(lambda: pipe(within, "two"), "one") == ["two", "one"]
    assert pipe(lambda: other(within), "one") == ["one"], "another one of the class is another"
    assert other(lambda: frames.running(pipe)) == []


def test_whether_the_end_is_said():
    pipe, quiet = Pipe(), Quiet()
    assert pipe(lambda: frames.says_end(pipe)) is True
    assert pipe(lambda: frames.says_end(pipe), "latent") is False
    assert quiet(lambda: frames.says_end(quiet)) is False
