import pytest

pytest.register_assert_rewrite("app.serving")  # a failure in a helper is explained too
