"""Libraries that some models need, and that need not be installed: which one an error is about."""

from importlib.util import find_spec

from heedmap.errors import listed

# What is suggested to be installed is one of these, whatever a model's files say.
_MODULES = {
    "accelerate": "accelerate",
    "beautifulsoup4": "bs4",
    "ftfy": "ftfy",
    "peft": "peft",
    "protobuf": "google.protobuf",
    "scipy": "scipy",
    "sentencepiece": "sentencepiece",
    "torchsde": "torchsde",
    "torchvision": "torchvision",
}
# transformers, without sentencepiece, takes its files for those of tiktoken, and says so.
_MEANT = {"read a `tiktoken` file": "sentencepiece protobuf", "beautiful soup": "beautifulsoup4"}
_MOST = 10  # errors that led to one another


def lacking(error: BaseException) -> str:
    """What is not installed, in words that follow on "needs"; empty if that is not the reason.

    Args:
        error: of diffusers or transformers, or what it made of one.
    """
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and len(chain) < _MOST:
        chain.append(cause)
    lines = [" ".join(str(one).lower().split()) for one in chain]
    read = [
        line
        for one, line in zip(chain, lines, strict=True)
        if isinstance(one, ImportError) or any(meant in line for meant in _MEANT)
    ]
    said = " ".join([*read, *(meant for key, meant in _MEANT.items() if key in " ".join(read))])
    found = [name for name in _MODULES if name in said and not _is_there(_MODULES[name])]
    if not found:
        return ""
    which = "which is" if len(found) == 1 else "which are"
    return f"{listed(found, 'and')}, {which} not installed: `pip install {' '.join(found)}`"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # what it is in is not there; or it was put in its place
        return False
