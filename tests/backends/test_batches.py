"""What a batch is estimated to take, by hand, on the devices there are."""

from types import SimpleNamespace

import psutil
import pytest
import torch
from diffusers import UNet2DConditionModel

from heedmap.backends.memory import free_bytes, image_bytes, in_batches, max_batch


def model(widths=(8, 24, 64), dtype=torch.float32):
    """As much of a pipeline as the estimate looks at."""
    unet = UNet2DConditionModel.__new__(UNet2DConditionModel)
    torch.nn.Module.__init__(unet)
    unet.register_to_config(sample_size=4)
    decoder = SimpleNamespace(
        config=SimpleNamespace(**({} if widths is None else {"block_out_channels": widths}))
    )
    return SimpleNamespace(unet=unet, vae=decoder, device=torch.device("cpu"), dtype=dtype)


@pytest.mark.parametrize(
    ("pipe", "size", "expected"),
    [
        # The decoder's second stage at the image's size, six at once, of 4 bytes a number.
        (model(), (64, 40), 6 * 64 * 40 * 24 * 4),
        (model(widths=(32, 8, 99)), (64, 40), 6 * 64 * 40 * 32 * 4),
    ],
)
def test_the_memory_of_an_image_is_estimated_by_its_size_and_type(pipe, size, expected):
    assert image_bytes(pipe, size) == expected


def test_the_free_memory_of_an_accelerator_includes_what_torch_reserved(monkeypatch):
    for name, value in (("memory_reserved", 70), ("memory_allocated", 50)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 4000))
    assert free_bytes(torch.device("cuda")) == 1020
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=5))
    for other in ("mps", "cpu"):
        assert free_bytes(torch.device(other)) == 5


def test_a_batch_without_memory_is_halved():
    sizes = []

    def draw(some, done, left):
        sizes.append(len(some))
        if len(some) > 5:
            raise MemoryError
        return len(some)

    assert in_batches(range(9), 9, draw) == [5, 4]
    assert sizes == [9, 5, 4]


def test_a_batch_fills_four_fifths_of_the_memory(monkeypatch):
    each = image_bytes(model(), (64, 64))
    for share, count in ((10.01, 10), (9.99, 9), (2.01, 2)):
        free = SimpleNamespace(available=int(share * each / 0.8))
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: free)
        assert max_batch(model(), (64, 64)) == count


@pytest.mark.parametrize("things", ["a", "ab"])
def test_one_image_that_does_not_fit_raises_the_memory_error(things):
    drawn = []

    def draw(some, done, left):
        drawn.append(some)
        raise MemoryError

    with pytest.raises(MemoryError):
        in_batches(things, 2, draw)
    assert drawn == ["a"] if things == "a" else ["ab", "a"]
