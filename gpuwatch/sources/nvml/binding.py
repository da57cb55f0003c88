"""The binding: which pynvml this is, whether the driver answers, and what each of its error codes means to us."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.utf8 import clean_text

# pynvml has neither stubs nor annotations; everything it returns is converted where it is received.
Api: TypeAlias = Any
Handle: TypeAlias = Any

# Codes as in nvml.h.  NVMLError is unhashable, so errors are told apart by their ``value``, never by class.
TIMEOUT, INSUFFICIENT_SIZE, NOT_FOUND, SUCCESS = 10, 7, 6, 0
_LOST = {15: "the GPU fell off the bus or is otherwise lost", 16: "the GPU must be reset before it can be used again"}
_GONE = {
    1: "NVML is not initialised",
    9: "the NVIDIA driver is not loaded: load the kernel module (modprobe nvidia), or check that the device is passed through",
    12: "no NVIDIA driver found: libnvidia-ml.so.1 was not found, or is no library: install the NVIDIA driver, or start the container with its driver libraries mounted",
    18: "library and kernel module differ in version (upgraded under a running system?): reload the module or reboot",
}
GONE_OR_LOST = frozenset({*_LOST, *_GONE})  # after one of these nothing more needs to be asked
_NO_PERMISSION, _FUNCTION_NOT_FOUND = 4, 13
_FORBIDDEN = "no permission to use the GPU: give this user read and write access to /dev/nvidiactl and /dev/nvidia*"
# The driver will never answer this question: not for this GPU, not to this user, or it does not know it.
PERMANENT = frozenset({2, 3, 4, 13, 25, 26})


def official() -> Api:
    """The pynvml module of nvidia-ml-py.  Raises SourceGoneError if it is missing or another package shadows it."""
    fix = "run: pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py"
    try:
        import pynvml
    except ImportError as error:
        raise SourceGoneError(f"the NVML binding cannot be imported ({error}); install nvidia-ml-py") from error
    # An abandoned fork on the package index, itself named pynvml, installs a module of the same name.
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise SourceGoneError(f"the module pynvml is not NVIDIA's nvidia-ml-py; {fix}")
    return pynvml


def start(api: Api) -> None:
    """Load the library and initialise it.  Raises SourceGoneError, saying which part is missing."""
    try:
        api.nvmlInit()
    except api.NVMLError as error:
        if error.value == _NO_PERMISSION:
            raise SourceGoneError(_FORBIDDEN) from error
        raise SourceGoneError(_GONE.get(error.value, f"NVML does not start: {error_text(error)}{too_old(error)}")) from error


def too_old(error: Exception) -> str:
    """Return an addition to the error where a library lacks a function without which nothing can be read."""
    missing = error.value == _FUNCTION_NOT_FOUND  # type: ignore[attr-defined]  # as in ``treat``
    return ": libnvidia-ml.so.1 is older than this program needs; install a newer NVIDIA driver" if missing else ""


def treat(error: Exception, uuid: str | None = None) -> None:
    """Raise what somebody above can treat; come back for errors that only mean "no answer this time"."""
    code = error.value  # type: ignore[attr-defined]  # an NVMLError, whose class is only known to the untyped binding
    if code in _GONE:
        raise SourceGoneError(_GONE[code]) from error
    if code in _LOST:
        if uuid is None:
            raise SourceGoneError(_LOST[code]) from error
        raise DeviceLostError(uuid, _LOST[code]) from error


def lost(error: Exception, uuid: str) -> NoReturn:
    """For calls without which nothing can be asked of a GPU: whatever went wrong, it is lost (or everything is)."""
    treat(error, uuid)
    forbidden = error.value == _NO_PERMISSION  # type: ignore[attr-defined]  # as in ``treat``
    raise DeviceLostError(uuid, _FORBIDDEN if forbidden else f"the driver does not find it: {error_text(error)}") from error


def asked(api: Api, function: str, *args: Any, uuid: str | None = None) -> Any:
    """One call's answer, None where there is none.  Raises SourceGoneError, DeviceLostError."""
    call = getattr(api, function, None)  # an older binding lacks newer functions
    if call is None:
        return None
    try:
        return read_text(lambda: call(*args))
    except api.NVMLError as error:
        treat(error, uuid)
        return None


def read_text(ask: Callable[[], Any]) -> Any:
    """Return the binding's answer; text that is not UTF-8, which it refuses to decode, with its bad bytes replaced."""
    try:
        return ask()
    except UnicodeDecodeError as error:
        return clean_text(error.object)


def error_text(error: Exception) -> str:
    """An NVMLError in the driver's own words."""
    return str(read_text(lambda: str(error)))
