"""What a wheel or a source archive must hold: the embedded models, and the files of the pages.

python .ci/packed.py FILE...    in the checkout
"""

import sys
import tarfile
import zipfile
from pathlib import Path

MODELS = {"heedmap/tiny/model/": 24, "heedmap/tiny/joint/": 16}  # MiB at most
PAGES = ("heedmap/page/assets/", "heedmap/app/")


def wanted() -> dict[str, int]:
    """Sizes of the files by their name within a wheel.

    Raises:
        AssertionError: if the checkout itself lacks some.
    """
    found: dict[str, int] = {}
    for folder, most in MODELS.items():
        files = {_name(path): path.stat().st_size for path in Path("src", folder).rglob("*.*")}
        assert any(name.endswith("/diffusion_pytorch_model.safetensors") for name in files)
        assert sum(files.values()) <= most * 2**20, f"{sum(files.values()) / 2**20:.1f} MiB"
        found |= files
    for folder in PAGES:
        scripts = list(Path("src", folder).glob("*.js"))
        assert scripts, f"no scripts in {folder}"
        styles = Path("src", folder).glob("*.css")
        found |= {_name(path): path.stat().st_size for path in (*scripts, *styles)}
    return found


def packed(path: Path) -> dict[str, int]:
    """Sizes of the files that a wheel or a source archive holds, by the same names."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {entry.filename: entry.file_size for entry in archive.infolist()}
    with tarfile.open(path) as archive:
        names = {entry.name.partition("/src/")[2]: entry.size for entry in archive.getmembers()}
        return {name: size for name, size in names.items() if name}


def _name(path: Path) -> str:
    return path.relative_to("src").as_posix()


if __name__ == "__main__":
    files = wanted()
    for path in map(Path, sys.argv[1:]):
        held = packed(path)
        missing = sorted(name for name, size in files.items() if held.get(name) != size)
        assert not missing, f"{path.name} lacks {missing}"
        size = path.stat().st_size / 2**20
        print(f"{path.name}: {size:.1f} MiB, {len(files)} files of the model and the pages")
