"""A device that stands for a GPU: its tensors are computed on the CPU, and waits are counted.

Its tensors and the CPU's may not be mixed, as on a GPU. A wait is a copy to the host, or one from
it that is not `non_blocking`; a list, or a tensor of the host, as an index is such a copy. All
operations but views are launches, since torch makes some within others.
"""

from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from heedmap.mathematics import probabilities


class _Backend(backend_registration._DummyBackendModule):
    def is_available(self):
        return False  # other tests shall not choose it

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


backend_registration._setup_privateuseone_for_python_backend("gpu", _Backend())
GPU = torch.device("gpu", 0)
VIEWS = (
    "view", "_unsafe_view", "transpose", "permute", "expand", "select", "slice", "unsqueeze",
    "alias", "detach", "t", "as_strided", "split", "squeeze", "unflatten", "unbind", "chunk",
    "lift_fresh", "_fused_sdp_choice",
)  # fmt: skip
WAITS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero")
COUNTS = {"launches": 0, "waits": 0}


class OnGpu(Tensor):
    """A tensor of the device, which stands for one of the CPU."""

    def __new__(cls, host):
        made = Tensor._make_wrapper_subclass(
            cls, host.shape, strides=host.stride(), storage_offset=host.storage_offset(),
            dtype=host.dtype, device=GPU,
        )  # fmt: skip
        made.host = host
        return made

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if function is scaled_dot_product_attention:
                return _attend(*args, **(kwargs or {}))
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})

    def __getitem__(self, index):
        _count_waits(index)
        return OnGpu(self.host[_on_host(index)])

    def __setitem__(self, index, value):
        _count_waits(index)
        COUNTS["waits"] += _is_copied(value)
        self.host[_on_host(index)] = _on_host(value)

    def tolist(self):
        return self.cpu().tolist()

    def data_ptr(self):
        return self.host.data_ptr()


def _is_copied(one):
    return isinstance(one, list) or (isinstance(one, Tensor) and one.device != GPU)


def _count_waits(index):
    """Count the parts of an index that are copied, and masks, whose size the host must know."""
    for one in index if isinstance(index, tuple) else (index,):
        is_mask = isinstance(one, Tensor) and one.dtype == torch.bool
        COUNTS["waits"] += is_mask or _is_copied(one)


def _on_host(tree):
    return tree_map(lambda one: one.host if isinstance(one, OnGpu) else one, tree)


def _on_gpu(tree):
    return tree_map(lambda one: OnGpu(one) if isinstance(one, Tensor) else one, tree)


def _attend(*args, **kwargs):
    return OnGpu(scaled_dot_product_attention(*_on_host(args), **_on_host(kwargs)))


def _kernel(kernel_of, *inputs):
    """The kernel of the CPU, which gives a log-sum as those of CUDA do."""
    kernel = kernel_of(*_on_host(inputs))
    if kernel is None or not isinstance(inputs[0], OnGpu):
        return kernel

    return lambda inputs: _on_gpu(kernel(_on_host(inputs)))


def _make(make, data, *args, device=None, **kwargs):
    if isinstance(data, OnGpu):
        return data
    made = make(data, *args, **kwargs)
    return made if device is None else made.to(device)


def _compute(function, args, kwargs):
    """Compute an operation on the CPU, and count it."""
    name = function.__name__.partition(".")[0]
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    is_on_gpu = any(isinstance(one, OnGpu) for one in tensors)
    target = torch.device(kwargs.get("device") or (GPU if is_on_gpu else "cpu"))
    if name in ("_to_copy", "copy_"):
        devices = {target, tensors[0].device} if name == "_to_copy" else {x.device for x in tensors}
        COUNTS["waits"] += len(devices) > 1 and not kwargs.get("non_blocking", False)
    elif is_on_gpu and not all(isinstance(one, OnGpu) or not one.ndim for one in tensors):
        raise RuntimeError(f"{name} mixes devices")
    COUNTS["waits"] += is_on_gpu and name in WAITS
    COUNTS["launches"] += name not in (*VIEWS, *WAITS)
    options = {key: one for key, one in kwargs.items() if key not in ("device", "pin_memory")}
    if target != GPU and "device" in kwargs:
        options["device"] = target
    made = function(*_on_host(args), **_on_host(options))
    if name.endswith("_"):
        return args[0]
    return _on_gpu(made) if target == GPU else made


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})


@contextmanager
def gpu():
    """Have the device within the block."""
    with ExitStack() as stack:
        for name in ("tensor", "as_tensor"):
            make = partial(_make, getattr(torch, name))
            stack.enter_context(patch.object(torch, name, make))
        kernel = partial(_kernel, probabilities._kernel)
        stack.enter_context(patch.object(probabilities, "_kernel", kernel))
        stack.enter_context(_Mode())
        yield


def move(pipe):
    """Move the weights of a pipeline to the device."""
    for part in pipe.components.values():
        for module in part.modules() if isinstance(part, torch.nn.Module) else ():
            for name, one in module.named_parameters(recurse=False):
                setattr(module, name, torch.nn.Parameter(OnGpu(one.detach()), requires_grad=False))
            for name, one in module.named_buffers(recurse=False):
                setattr(module, name, OnGpu(one))
