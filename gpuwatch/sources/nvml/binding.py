"""The NVML binding: its import, the driver's start, the meaning of error codes, and calls that may have no answer."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from gpuwatch.errors import DeviceLostError, SourceGoneError
from gpuwatch.utf8 import clean_text

# pynvml has neither stubs nor annotations; the receiving code converts every value.
Api: TypeAlias = Any
Handle: TypeAlias = Any

# Codes as in nvml.h.  NVMLError is unhashable, so callers compare its ``value``, never its class.
TIMEOUT, INSUFFICIENT_SIZE, NOT_FOUND, SUCCESS = 10, 7, 6, 0
_LOST = {15: "the GPU fell off the bus or is otherwise lost", 16: "the GPU must be reset before it can be used again"}
_GONE = {
    1: "NVML is not initialised",
    9: "the NVIDIA driver is not loaded: load the kernel module (modprobe nvidia), or check that the device is passed through",
    12: "no NVIDIA driver found: libnvidia-ml.so.1 was not found, or is not a library: install the NVIDIA driver, or start the container with its driver libraries mounted",
    18: "library and kernel module differ in version (upgraded under a running system?): reload the module or reboot",
}
GONE_OR_LOST = frozenset({*_LOST, *_GONE})  # after one of these, further calls are useless
_NO_PERMISSION, _FUNCTION_NOT_FOUND = 4, 13
_FORBIDDEN = "no permission to use the GPU: give this user read and write access to /dev/nvidiactl and /dev/nvidia*"
# Codes of calls that never succeed: the GPU or the driver does not support the call, or this user has no permission.
PERMANENT = frozenset({2, 3, 4, 13, 25, 26})


def official() -> Api:
    """Return the pynvml module of nvidia-ml-py.

    Raises SourceGoneError: when the module is missing or not NVIDIA's.
    """
    fix = "run: pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py"
    try:
        import pynvml
    except ImportError as error:
        raise SourceGoneError(f"the NVML binding cannot be imported ({error}); install nvidia-ml-py") from error
    # An abandoned fork on PyPI, itself named pynvml, installs a module of the same name.
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise SourceGoneError(f"the module pynvml is not NVIDIA's nvidia-ml-py; {fix}")
    return pynvml


def start(api: Api) -> None:
    """Load and initialise the library.

    Raises SourceGoneError: with the reason.
    """
    try:
        api.nvmlInit()
    except api.NVMLError as error:
        if error.value == _NO_PERMISSION:
            raise SourceGoneError(_FORBIDDEN) from error
        raise SourceGoneError(_GONE.get(error.value, f"NVML does not start: {error_text(error)}{too_old(error)}")) from error


def too_old(error: Exception) -> str:
    """Return a hint for the error text if the library lacks a required function, otherwise an empty text."""
    missing = error.value == _FUNCTION_NOT_FOUND  # type: ignore[attr-defined]  # as in ``treat``
    return ": libnvidia-ml.so.1 is older than this program needs; install a newer NVIDIA driver" if missing else ""


def treat(error: Exception, uuid: str | None = None) -> None:
    """Raise the gpuwatch error for a missing driver or a lost GPU; return for any other error."""
    code = error.value  # type: ignore[attr-defined]  # an NVMLError, whose class is only known to the untyped binding
    if code in _GONE:
        raise SourceGoneError(_GONE[code]) from error
    if code in _LOST:
        if uuid is None:
            raise SourceGoneError(_LOST[code]) from error
        raise DeviceLostError(uuid, _LOST[code]) from error


def lost(error: Exception, uuid: str) -> NoReturn:
    """Raise DeviceLostError or SourceGoneError for any failure of a call that every reading of a GPU needs."""
    treat(error, uuid)
    forbidden = error.value == _NO_PERMISSION  # type: ignore[attr-defined]  # as in ``treat``
    raise DeviceLostError(
        uuid, _FORBIDDEN if forbidden else f"the driver does not find this GPU: {error_text(error)}"
    ) from error


def asked(api: Api, function: str, *args: Any, uuid: str | None = None) -> Any:
    """Return one call's answer; None if the binding lacks the function or the driver refuses the call.

    Raises SourceGoneError, DeviceLostError: as ``treat``.
    """
    call = getattr(api, function, None)  # an older binding lacks newer functions
    if call is None:
        return None
    try:
        return read_text(lambda: call(*args))
    except api.NVMLError as error:
        treat(error, uuid)
        return None


def read_text(ask: Callable[[], Any]) -> Any:
    """Return the binding's answer.  The binding rejects text that is not UTF-8; such text gets replacement characters."""
    try:
        return ask()
    except UnicodeDecodeError as error:
        return clean_text(error.object)


def error_text(error: Exception) -> str:
    return str(read_text(lambda: str(error)))
