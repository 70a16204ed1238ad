"""A tokenizer for all tests of texts."""

import pytest
from making import build_tokenizer
from transformers import CLIPTokenizer


@pytest.fixture(scope="module")
def clip() -> CLIPTokenizer:
    """A tokenizer of 77 tokens."""
    return build_tokenizer()
