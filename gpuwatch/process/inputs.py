"""The randomness of a measured call's inputs: zeros and repeated values switch fewer transistors than real data.

Inputs are tensors of torch and arrays of numpy, and lists, tuples and mappings of tensors and arrays.  ``facts`` copies some
values of each to the host, but nothing while a CUDA graph is being captured.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwatch.process import torch_state
from gpuwatch.wire.messages import FactValue

SAMPLED_COUNT = 65_536
# A scalar, a mask or an index next to a matrix does not describe the arithmetic.
_SMALL_RATIO = 0.1


@dataclass(frozen=True, slots=True)
class _InputSample:
    """The statistics of a sample of one tensor."""

    dtype: str
    size_bytes: int
    zero_ratio: float
    unique_ratio: float

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype


def facts(*tensors: object) -> dict[str, FactValue]:
    """Return facts about the inputs: total bytes, and types and worst ratios of large float inputs, else of all large inputs.

    The ratio of distinct values is relative to the largest possible count: an eight-bit type has 256 values.  During a
    capture, and without an input to sample, there are no facts.
    """
    if torch_state.capturing():
        return {}
    samples = [found for tensor in leaves(tensors) if (found := _sample(tensor)) is not None]
    if not samples:
        return {}
    total_bytes = sum(found.size_bytes for found in samples)
    chosen = [found for found in samples if found.is_float] or samples
    largest_bytes = max(found.size_bytes for found in chosen)
    chosen = [found for found in chosen if found.size_bytes >= _SMALL_RATIO * largest_bytes]
    return {
        "input_zero_ratio": max(found.zero_ratio for found in chosen),
        "input_unique_ratio": min(found.unique_ratio for found in chosen),
        "input_dtype": ",".join(sorted({found.dtype for found in chosen})),
        "input_bytes": total_bytes,
    }


def has_tensor(values: tuple[object, ...]) -> bool:
    """Return True if any value has a ``dtype``, as the tensors of any library have.

    ``facts`` samples only tensors of torch and numpy.  A window refuses declared inputs without a tensor.
    """
    return any(hasattr(each, "dtype") for each in leaves(values))


def leaves(tree: object) -> Iterator[Any]:
    """Yield every value that is not a tuple, list or mapping, in order."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves(value)
    else:
        yield tree


def _sample(tensor: Any) -> _InputSample | None:  # torch is not a dependency, so a tensor has no type here
    """Sample a tensor or array; return None for other values and unsuitable tensors (empty, meta, sparse, distributed)."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    with contextlib.suppress(AttributeError, RuntimeError, TypeError, ValueError, NotImplementedError):
        if torch is not None and isinstance(tensor, torch.Tensor):
            if tensor.layout is torch.strided and tensor.numel() and tensor.device.type != "meta":
                dtype, size_bytes = str(tensor.dtype).removeprefix("torch."), tensor.numel() * tensor.element_size()
                with torch.no_grad():
                    return _summarize(*_read_torch(torch, tensor.detach()), dtype, size_bytes)
        elif numpy is not None and isinstance(tensor, numpy.ndarray) and tensor.dtype.kind in "fiubc" and tensor.size:
            flat = tensor.reshape(-1) if tensor.flags.c_contiguous else tensor.flat  # reshaping a strided array would copy it
            values = numpy.ascontiguousarray(flat[:: _step(tensor.size)])
            return _summarize(values == 0, values.view(numpy.uint8), str(tensor.dtype), int(tensor.nbytes))
    return None


def _summarize(zero: Any, octets: Any, dtype: str, size_bytes: int) -> _InputSample:
    import numpy as np

    width = octets.size // zero.size
    bits = octets.view(f"u{width}") if width in (1, 2, 4, 8) else octets.view(f"V{width}")
    most_count = min(zero.size, 2.0 ** (8 * width)) if dtype != "bool" else 2
    return _InputSample(dtype, size_bytes, float(zero.mean()), min(1.0, len(np.unique(bits)) / most_count))


def _step(count: int) -> int:
    """Return the sampling step; the step is odd, so that a sample covers more than a few columns of a matrix."""
    return 1 if count <= SAMPLED_COUNT else count // SAMPLED_COUNT | 1


def _read_torch(torch: Any, tensor: Any) -> tuple[Any, Any]:
    """Return the mask of zeros among the sampled values, and the values' bytes, as numpy arrays, with one copy to the host.

    The host's part uses numpy only: torch would start one thread per CPU in the middle of a benchmark.
    """
    import numpy as np

    signed = tensor.is_floating_point() or tensor.is_complex()
    words = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    width = words.element_size()
    words = words.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width])
    if words.device.type == "cpu":
        array = words.numpy()
        flat = array.reshape(-1) if array.flags.c_contiguous else array.flat  # reshaping a strided array would copy it
        sample = np.ascontiguousarray(flat[:: _step(array.size)])
    else:
        sample = _pick_values(torch, words).contiguous().cpu().numpy()
    bits = sample.view(f"u{width}")
    # The shift removes the sign: minus zero is zero.
    return (bits << 1 if signed else bits) == 0, bits.view(np.uint8)


def _pick_values(torch: Any, tensor: Any) -> Any:
    """Return values evenly spread over a tensor on a GPU."""
    count = tensor.numel()
    step = _step(count)
    if _is_dense(tensor):
        return tensor.as_strided(((count - 1) // step + 1,), (step,))
    at = torch.arange(0, count, step, device=tensor.device)
    places = []
    for length in reversed(tensor.shape):
        places.append(at % length)
        at = at // length
    return tensor[tuple(reversed(places))]


def _is_dense(tensor: Any) -> bool:
    """Return True if the elements fill one piece of memory, in any order, so that strided sampling needs no index."""
    expected = 1
    for stride, length in sorted(
        (stride, length) for stride, length in zip(tensor.stride(), tensor.shape, strict=True) if length > 1
    ):
        if stride != expected:
            return False
        expected *= length
    return True
