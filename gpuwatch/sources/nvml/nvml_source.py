"""The source ``nvml``: the driver's answers as readings."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from annotate.evidence import Device, Event, Lane, PowerRecord, ProcessList, Reading, Visibility
from gpuwatch import clock
from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.host import processes as host
from gpuwatch.interfaces import RareReading
from gpuwatch.sources.nvml import binding, compiled_loop, device_facts
from gpuwatch.sources.nvml.binding import Api
from gpuwatch.sources.nvml.compiled_loop import CompiledLoop
from gpuwatch.sources.nvml.enumeration import RollCall
from gpuwatch.sources.nvml.events import EventWait
from gpuwatch.sources.nvml.power_record import DensePower
from gpuwatch.sources.nvml.process_lists import ProcessLists
from gpuwatch.sources.nvml.questions import Questions, Row
from gpuwatch.sources.nvml.rare_readings import RareQuestions
from gpuwatch.sources.nvml.signals import SIGNALS


class _NvmlGpu:
    """Cached state of one GPU.  The source drops the state of a lost GPU, and builds a new one when the GPU answers."""

    def __init__(
        self, api: Api, board: device_facts.BoardHandles, driver_version: str | None, identities: host.Identities
    ) -> None:
        self.board = board
        self.lock = threading.Lock()  # one per GPU: a hanging probe must not block the others
        self.rows: dict[tuple[str, ...], Row] = {}
        self.loops: dict[tuple[tuple[str, ...], tuple[str, ...]], CompiledLoop | None] = {}
        self.questions = Questions(api, board, driver_version)
        self.lists = ProcessLists(api, board.uuid, board.handle, identities, host.visibility())
        self.power = DensePower(api, board.uuid, board.board_handle)
        self.rare = RareQuestions(api, board)


class Nvml:
    """The driver, through NVIDIA's binding.  Raises SourceGoneError: when no driver answers or the binding is missing.

    ``api`` is the pynvml module, or in tests a second copy of it over a test library.
    """

    name = "nvml"
    simulated = False

    def __init__(self, api: Api | None = None) -> None:
        self._api = binding.official() if api is None else api
        self._lock = threading.Lock()
        self._gpus: dict[str, _NvmlGpu] = {}
        self._identities = host.Identities()
        self._visibility = host.visibility()
        self._events: EventWait | None = None
        self._closed = False
        self._roll = RollCall(self._api)
        self._boards: tuple[device_facts.BoardHandles, ...] = ()
        binding.start(self._api)
        self._driver_version: str | None = binding.asked(self._api, "nvmlSystemGetDriverVersion")

    def begin_listing(self) -> None:
        """Start to query the GPUs in threads; the next ``devices`` waits for these answers."""
        with suppress(SourceGoneError):  # ``devices`` reports the error
            self._roll.begin()

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs with their current facts, and update ``unanswered``, which names the other listed GPUs.

        Raises SourceGoneError: when the driver lists none, or none answers.
        """
        self._check_open()
        present = self._roll.call()
        with self._lock:
            for board, _ in present:
                if board.uuid not in self._gpus:
                    self._gpus[board.uuid] = _NvmlGpu(self._api, board, self._driver_version, self._identities)
        if not present:
            raise SourceGoneError(
                f"the driver lists GPUs, but none of them answers: {'; '.join(self.unanswered)}"
                if self.unanswered
                else "the driver is loaded but lists no GPU: run nvidia-smi, and check that the GPU is passed to this container"
            )
        self._register_events(tuple(board for board, _ in present))
        return tuple(device for _, device in present)

    def _register_events(self, boards: tuple[device_facts.BoardHandles, ...]) -> None:
        """Store these boards; if the list changed, close the event set, so that ``events`` opens a new set."""
        with self._lock:
            deaf = self._events if [board.uuid for board in boards] != [board.uuid for board in self._boards] else None
            self._boards = boards
            if deaf is not None:
                self._events = None
        if deaf is not None:
            deaf.close()

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The listed GPUs that did not answer the last enumeration, each with the reason."""
        return tuple(f"GPU {index}: {why}" for index, why in self._roll.missing.items())

    def read(self, uuid: str, lane: Lane, names: Sequence[str]) -> Reading:
        with self._answering(uuid) as gpu:
            row = gpu.rows.get(names if isinstance(names, tuple) else tuple(names)) or self._row(gpu, tuple(names))
            begin_ns = clock.now_ns()
            values = row.ask()
            end_ns = clock.now_ns()
        return Reading(uuid=uuid, lane=lane, at_ns=end_ns, took_ns=end_ns - begin_ns, **values)

    def _row(self, gpu: _NvmlGpu, names: tuple[str, ...]) -> Row:
        with gpu.lock:
            row = gpu.rows.get(names)
            if row is None:
                row = gpu.rows[names] = gpu.questions.row(names)
            return row

    def series(self, uuid: str, row: Sequence[str], pulse: Sequence[str]) -> CompiledLoop | None:
        """Return the compiled loop over a row and a pulse; None if the loop cannot be opened.

        Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
        """
        gpu, names = self._gpu(uuid), (tuple(row), tuple(pulse))
        if names not in gpu.loops:
            whole, part = (self._row(gpu, each) for each in names)
            try:
                gpu.loops[names] = compiled_loop.open_loop(self._api, uuid, whole, part, partial(self._forget, uuid))
            except OSError:  # no free descriptor: retry later
                return None
        return gpu.loops[names]

    def read_process_list(self, uuid: str, *, utilization: bool = False) -> ProcessList:
        with self._answering(uuid) as gpu:
            begin_ns = clock.now_ns()
            processes, is_whole = gpu.lists.processes(utilization=utilization)
            end_ns = clock.now_ns()
        return ProcessList(
            uuid=uuid,
            at_ns=end_ns,
            took_ns=end_ns - begin_ns,
            processes=processes,
            visibility=self._visibility if is_whole else Visibility.UNKNOWN,
            use_asked=utilization,
        )

    def power_record(self, uuid: str) -> PowerRecord:
        with self._answering(uuid) as gpu:
            begin_ns = clock.now_ns()
            times, watts = gpu.power.gained()
            end_ns = clock.now_ns()
        return PowerRecord(uuid=uuid, at_ns=end_ns, took_ns=end_ns - begin_ns, sample_at_ns=times, sample_w=watts)

    def read_rare(self, uuid: str) -> RareReading:
        """Read a board's signals for the metrics page.

        Raises DeviceLostError, SourceGoneError: when the GPU or the driver is gone.
        """
        with self._answering(uuid) as gpu:
            return gpu.rare.read()

    def events(self, timeout_s: float) -> tuple[Event, ...]:
        self._check_open()
        if not self._boards:
            self.devices()
        with self._lock:
            if self._events is None:
                boards = [(board.uuid, board.handle) for board in self._boards if board.parent_uuid is None]
                self._events = EventWait(self._api, boards)
            waiting = self._events
        return waiting.wait(timeout_s)

    def supported(self, uuid: str) -> frozenset[str]:
        """Return the signals that this GPU supports, found by a probe of each."""
        gpu = self._gpu(uuid)
        with gpu.lock:
            return frozenset(name for name in SIGNALS if gpu.questions.chosen(name) is not None)

    def notes(self, uuid: str) -> Mapping[str, str]:
        """Return how this GPU is read: binding, counters, clock of the power record, events, locked clocks."""
        gpu = self._gpu(uuid)
        with gpu.lock:
            counters = gpu.questions.counters
        kinds = self._events.kinds.get(gpu.board.parent_uuid or uuid) if self._events is not None else None
        return {
            "binding": f"nvidia-ml-py {_binding_version()}",
            "slow-down time": counters,
            "power record": f"stamped by the {gpu.power.stamped_by} clock" if gpu.power.stamped_by else "no sample yet",
            "events": ", ".join(sorted(kinds)) if kinds else ("none" if self._events is not None else "not requested yet"),
            "locked clocks": "only application clocks can be read back; a range locked with nvidia-smi -lgc cannot",
        }

    def close(self) -> None:
        """Release the driver.  A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            gpus, self._gpus = self._gpus, {}
            waiting = self._events
        held = [each for gpu in gpus.values() for each in (gpu.questions.gpm.close, gpu.rare.close)]
        for release in held + ([waiting.close] if waiting else []):
            with suppress(DeviceLostError, SourceGoneError):  # a lost GPU or driver has already freed its objects
                release()
        with suppress(self._api.NVMLError):
            self._api.nvmlShutdown()

    def _check_open(self) -> None:
        if self._closed:
            raise SourceGoneError("the source is closed")

    def _gpu(self, uuid: str) -> _NvmlGpu:
        gpu = self._gpus.get(uuid)
        if gpu is not None:
            return gpu
        self._check_open()
        board = device_facts.board(self._api, uuid)
        with self._lock:
            return self._gpus.setdefault(uuid, _NvmlGpu(self._api, board, self._driver_version, self._identities))

    @contextmanager
    def _answering(self, uuid: str) -> Iterator[_NvmlGpu]:
        """Yield a GPU to read; drop a lost GPU's state."""
        gpu = self._gpu(uuid)
        try:
            yield gpu
        except DeviceLostError:
            self._forget(uuid)
            raise

    def _forget(self, uuid: str) -> None:
        # A reset invalidates the handle, so the next call finds the GPU by its UUID.
        with self._lock:
            self._gpus.pop(uuid, None)


def _binding_version() -> str:
    from importlib import metadata  # takes 10 ms of a daemon's start

    try:
        return metadata.version("nvidia-ml-py")
    except metadata.PackageNotFoundError:
        return "of unknown version"
