"""A Python function as one side of a timed pair."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gpuwatch.comparing.load_variants import load
from gpuwatch.cuda.driver import checked
from gpuwatch.diff.kernel_arguments import Slot
from gpuwatch.diff.symbols import base_name
from gpuwatch.diff.timing_job import CallJob
from gpuwatch.diff.trial import Trial, TrialTerms
from gpuwatch.errors import UsageError
from gpuwatch.process.inputs import leaves

_CAPTURE_WARM_COUNT = 3  # calls before a capture: libraries allocate memory and tune in the first calls


class CallSideRun:
    """Calls of one Python function on the buffers of trials."""

    def __init__(self, job: CallJob, *, is_pipeline: bool) -> None:
        """Load the job's function.

        Raises UsageError: when the function cannot be loaded.
        """
        self._job, self._is_pipeline = job, is_pipeline
        self.loaded = load(f"{job.file}:{job.function}")
        self._nodes: list[str] = []

    def __call__(self, trial: Trial) -> "TensorCall":
        """Return a call on a trial's buffers as tensors, passed by name if all parameter names match, else by position."""
        torch = import_torch(self._job.name)
        values = {slot.name: _argument(torch, trial, slot) for slot in trial.slots}
        parameters = list(inspect.signature(self.loaded.call).parameters)
        if all(name in values for name in parameters):
            call = partial(self.loaded.call, **{name: values[name] for name in parameters})
        else:
            call = partial(self.loaded.call, *list(values.values())[: len(parameters)])
        timed = self.captured(call) if self._is_pipeline else call
        return TensorCall(timed if self._is_pipeline else call, [values[slot.name] for slot in trial.outputs], timed)

    def captured(self, call: Callable[[], object]) -> Callable[[], object]:
        """Capture a call into a CUDA graph; return a function that replays the graph and returns the call's result."""
        torch = import_torch(self._job.name)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_CAPTURE_WARM_COUNT):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            result = call()
        self._nodes = kernel_nodes(graph.raw_cuda_graph())
        graph.instantiate()

        def replay(_held: object = call) -> object:  # ``_held`` keeps the arguments' memory allocated
            graph.replay()
            return result

        return replay

    def describe(self) -> str:
        """Return the captured graph's kernels as text, or the function's name if no kernel was captured."""
        count = len(self._nodes)
        return f"{count} kernels: {', '.join(self._nodes)}" if count else f"{self._job.function}() of Python"


@dataclass(frozen=True, slots=True)
class TensorCall:
    """A call whose result is copied to the output buffers; ``timed`` is the call without the copy."""

    call: Callable[[], object]
    outputs: list[Any]  # torch has no types
    timed: Callable[[], object]

    def __call__(self) -> None:
        found = [leaf for leaf in leaves(self.call()) if hasattr(leaf, "data_ptr")]
        count, most = len(found), len(self.outputs)
        if count > most:
            raise UsageError(f"expected a function that returns at most {most} tensors, found one that returns {count}")
        for result, output in zip(found, self.outputs, strict=False):
            if result.data_ptr() != output.data_ptr():
                output.reshape(-1)[: result.numel()].copy_(result.reshape(-1))


def kernel_nodes(graph: int) -> list[str]:
    """Return name and grid of each kernel of a captured graph, in the order of the graph's nodes."""
    from cuda.bindings import driver

    handle = driver.CUgraph(graph)
    status, _, count = driver.cuGraphGetNodes(handle, 0)
    checked((status,))
    found = []
    for node in checked(driver.cuGraphGetNodes(handle, count)):
        if checked(driver.cuGraphNodeGetType(node)) == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            parameters = checked(driver.cuGraphKernelNodeGetParams(node))
            name = checked(driver.cuFuncGetName(parameters.func)) if int(parameters.func) else b"a kernel"
            found.append(f"{base_name(name.decode())} grid={parameters.gridDimX}x{parameters.gridDimY}x{parameters.gridDimZ}")
    return found


def load_inputs(text: str, slots: tuple[Slot, ...], seed: int, base: TrialTerms) -> tuple[TrialTerms, Mapping[str, int]]:
    """Return terms and sizes from a call of FILE.py:FUNCTION, which returns the arguments by name or in order.

    Raises UsageError: when the function cannot be loaded, or an argument has no value.
    """
    make = load(text).call
    made: Any = make(seed=seed) if "seed" in inspect.signature(make).parameters else make()
    values: dict[str, Any] = made if isinstance(made, dict) else dict(zip((slot.name for slot in slots), made, strict=False))
    arrays, scalars, sizes = {}, dict(base.scalars), {}
    for slot in slots:
        value = values.get(slot.name)
        if value is None:
            raise UsageError(f"--inputs: {text}: expected a value of {slot.name}, found none; return one")
        if slot.is_pointer:
            arrays[slot.name] = _array(value)
        elif slot.is_float:
            scalars[slot.name] = float(value)
        else:
            sizes[slot.name] = int(value)
    return replace(base, scalars=scalars, arrays=arrays), sizes


def import_torch(name: str) -> Any:
    """Return torch.

    Raises UsageError: when torch is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise UsageError(f"{name}: expected torch for a Python function, found none; run: pip install torch") from None


def _array(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu()
        value = value.float().numpy() if "bfloat16" in str(value.dtype) else value.numpy()
    return np.asarray(value)


def _argument(torch: Any, trial: Trial, slot: Slot) -> Any:
    if not slot.is_pointer:
        return trial.scalars[slot.name] if slot.is_float else int(trial.scalars[slot.name])
    count = trial.count_of(slot.name)
    kind = {"bf16": "i2"}.get(slot.kind, slot.kind if slot.itemsize == 1 else slot.kind.replace("u", "i"))
    spelled = {"shape": (count,), "typestr": f"{'|' if slot.itemsize == 1 else '<'}{kind}", "version": 3}
    view = type("DeviceBuffer", (), {"__cuda_array_interface__": spelled | {"data": (trial.places[slot.name], False)}})()
    tensor = torch.as_tensor(view, device="cuda")
    tensor = tensor.view(torch.bfloat16) if slot.kind == "bf16" else tensor
    return tensor.reshape(trial.shape_of(slot.name))
