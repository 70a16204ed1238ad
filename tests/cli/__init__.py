import pytest

pytest.register_assert_rewrite("cli.calling")  # a failure in a helper is explained too
