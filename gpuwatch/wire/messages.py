"""The messages between a client and the daemon: one line of JSON each, request and reply in turn.

A newer side may add fields, which an older one ignores, and message types, which an older one refuses with code
``unknown-message``.  Any other change needs a new protocol number; both sides support a range of numbers.
"""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from gpuwatch.utf8 import clean_tree
from gpuwatch.wire.bound_errors import explain_bound, one_line
from gpuwatch.wire.mark_bounds import ROOTS_COUNT, Own
from gpuwatch.wire.shown import Shown, ShownGpu

PROTOCOL, OLDEST_PROTOCOL = 2, 1  # since 2 verdicts have budgets; a client of protocol 1 gets schema 1
LINE_BYTES = 1 << 20  # far above any declared facts; the daemon refuses a longer line
ANSWER_BYTES = 16 << 20  # above any daemon's answer: 64 GPUs of a window have verdicts of 60 kB each
# Bounds of a client's messages.  Every text, list and map of a request has a bound; a test finds a missing bound.
DECLARED_COUNT, DECLARED_LENGTH = 256, 16_384  # the second is the total length of a message's names and facts
NAME_LENGTH = 64  # of a claim, rule, limit, fact or version
LABEL_LENGTH, RUN_LENGTH, PARENT_LENGTH = 256, 64, 64
PATH_LENGTH, SOURCE_LENGTH = 4096, 4096 + 64
GPUS_COUNT, GPU_LENGTH, POLICY_COUNT, RULES_COUNT, LIMITS_COUNT = 256, 128, 16, 256, 64
TAGS_COUNT, TAG_LENGTH, TAGS_LENGTH = 64, 1024, 8192  # the last is the total length of a window's tag names and values
TIMES_COUNT = 200_000  # of a window; clients batch or cut larger numbers of times
TIMES_AT_ONCE_COUNT = 20_000  # in one message, which base64 keeps below LINE_BYTES
SPAN_NAMES_COUNT = 32  # different names in a message, and in a window
PAUSES_COUNT = 10_000  # of a window; a client sends its longest pauses
# Bounds of one answer to `readings`, which keep the largest below LINE_BYTES; the rest is only counted.
SHOWN_GPUS_COUNT, SHOWN_LENGTH = 64, 80  # the length of any name in the answer
SHOWN_PROCESSES_COUNT = 24  # of a GPU, by descending memory
SHOWN_WINDOWS_COUNT, SHOWN_PIDS_COUNT = 32, 64  # the newest windows, unfinished ones first; PIDs of each

FactValue: TypeAlias = str | int | float | bool | None
_T = TypeVar("_T")

_Whole: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Name: TypeAlias = Annotated[str, Meta(max_length=NAME_LENGTH)]
_RunId: TypeAlias = Annotated[str, Meta(max_length=RUN_LENGTH)]
_FactText: TypeAlias = Annotated[str, Meta(max_length=DECLARED_LENGTH - NAME_LENGTH)]
_Declared: TypeAlias = Annotated[dict[_Name, _FactText | _Whole | float | bool | None], Meta(max_length=DECLARED_COUNT)]
_Tags: TypeAlias = Annotated[dict[_Name, Annotated[str, Meta(max_length=TAG_LENGTH)]], Meta(max_length=TAGS_COUNT)]
_LimitValue: TypeAlias = _Name | _Whole | float | bool | None  # of any type: the policy refuses values that are not numbers
_Limits: TypeAlias = Annotated[dict[_Name, _LimitValue], Meta(max_length=LIMITS_COUNT)]
_PolicyValue: TypeAlias = (
    _Name
    | Annotated[list[_Name], Meta(max_length=RULES_COUNT)]
    | Annotated[dict[_Name, _Limits | float], Meta(max_length=RULES_COUNT)]  # also reference clocks by model
    | float  # a threshold: the policy refuses values outside its range
    | None
)
_TimesBytes: TypeAlias = Annotated[bytes, Meta(max_length=8 * TIMES_AT_ONCE_COUNT)]


class Message(msgspec.Struct, tag_field="type", omit_defaults=True, frozen=True):
    """Base of all messages; the ``type`` key names the class."""


class Hello(Message, tag="hello", frozen=True):
    """A client's first line, with its protocol and the expected source and state folder; None accepts any."""

    protocol: _Whole
    version: _Name
    source: Annotated[str, Meta(max_length=SOURCE_LENGTH)] | None = None
    state: Annotated[str, Meta(max_length=PATH_LENGTH)] | None = None


class Open(Message, tag="open", frozen=True, rename={"declared": "told"}):
    """A request to begin a window around the process at the other end of the connection and its descendants."""

    claim: _Name = "sustained"
    label: Annotated[str, Meta(max_length=LABEL_LENGTH)] | None = None
    policy: Annotated[dict[_Name, _PolicyValue], Meta(max_length=POLICY_COUNT)] = {}  # in the form of Policy.to_dict
    # UUIDs or their unique prefixes; None for the GPUs that the process tree uses
    gpus: Annotated[list[Annotated[str, Meta(max_length=GPU_LENGTH)]], Meta(max_length=GPUS_COUNT)] | None = None
    parent: Annotated[str, Meta(max_length=PARENT_LENGTH)] | None = None
    declared: _Declared = {}
    thread: _Whole = 0  # the thread that launches the work, if it is not the process's first
    tags: _Tags = {}


class End(Message, tag="end", frozen=True):
    """The end of a window's body, with its interval; ``times``, ``spans`` and a ``close`` with declared facts follow."""

    run: _RunId
    begin_ns: _Whole
    end_ns: _Whole


class Times(Message, tag="times", frozen=True):
    """Times of single iterations of a window not yet closed, in order; later messages add more.

    Little-endian arrays of one length: int64 CLOCK_MONOTONIC nanoseconds, float64 seconds, and float32 MHz.  The last
    is empty if no clock was stamped.
    """

    run: _RunId
    at_ns: _TimesBytes
    took_s: _TimesBytes
    sm_clock_mhz: Annotated[bytes, Meta(max_length=4 * TIMES_AT_ONCE_COUNT)] = b""
    calls_count: _Whole = 1


class Spans(Message, tag="spans", frozen=True):
    """Spans next to the timings of a window not yet closed; later messages add more.

    ``what`` is ``other`` for declared work, or ``pauses`` of the host.  Little-endian arrays of one length: int64
    CLOCK_MONOTONIC nanoseconds at begin and end, and one byte per span, the index of its word in ``names``.
    """

    run: _RunId
    what: Literal["other", "pauses"]
    begin_ns: _TimesBytes
    end_ns: _TimesBytes
    named: Annotated[bytes, Meta(max_length=TIMES_AT_ONCE_COUNT)]
    names: Annotated[list[_Name], Meta(max_length=SPAN_NAMES_COUNT)]


class Close(Message, tag="close", frozen=True, rename={"declared": "told"}):
    """The end of a window; its interval must lie between opening and now by the daemon's clock, unless an ``end`` set it."""

    run: _RunId
    begin_ns: _Whole
    end_ns: _Whole
    declared: _Declared = {}
    tags: _Tags = {}  # tags added while the window was open


class OpenMark(Open, tag="open-mark", frozen=True, kw_only=True, rename={"declared": "told"}):
    """A request to begin a window that no connection owns; ``CloseMark`` or the expiry ends it.  ``uid`` is for root."""

    name: _Name
    expires_s: float
    own: Own = "session"
    pids: Annotated[list[_Whole], Meta(max_length=ROOTS_COUNT)] = []
    uid: _Whole | None = None


class CloseMark(Message, tag="close-mark", frozen=True, rename={"declared": "told"}):
    """The end of a window that ``OpenMark`` began; the answer holds the run id."""

    name: _Name
    uid: _Whole | None = None
    declared: _Declared = {}


class AskVerdicts(Message, tag="verdicts", frozen=True):
    """A request to wait for a window's verdicts, at most ``wait_s``."""

    run: _RunId
    wait_s: float = 10.0


class AskStatus(Message, tag="status", frozen=True):
    """A request for the daemon's state."""


class AskReadings(Message, tag="readings", frozen=True):
    """A request for the last readings and processes of every GPU, and the windows; only readings after ``since_ns``."""

    since_ns: _Whole = 0


class Leave(Message, tag="leave", frozen=True):
    """A request to exit, refused with tracked windows or a new client; with ``now``, open windows become unproven."""

    now: bool = False


class Welcome(Message, tag="welcome", frozen=True):
    """The daemon's answer to Hello, with the protocol that both sides then use."""

    protocol: int
    version: str
    source: str
    simulated: bool
    state: str
    pid: int
    boot_id: str
    takes_spans: bool = False  # older daemons do not send this field
    takes_tags: bool = False
    holds_marks: bool = False  # older daemons do not send this field, and do not support untrusted code
    takes_reference_clock: bool = False


class Opened(Message, tag="opened", frozen=True):
    """The answer to Open and OpenMark; ``opened_ns`` is the window's start by the daemon's clock."""

    run: str
    opened_ns: int
    warning: str | None = None


class Closed(Message, tag="closed", frozen=True):
    """The answer to Close and CloseMark; the verdict follows when it is requested."""

    run: str


class TimesTaken(Message, tag="taken", frozen=True):
    """The answer to End, Times and Spans."""

    run: str


class JudgedReply(Message, tag="judged", frozen=True):
    """The verdicts of a window, one per GPU, worst first; without them ``status`` is open, closing, judging or unproven."""

    run: str
    status: str
    why: str = ""
    verdicts: list[dict[str, Any]] = []
    parent: str | None = None  # the window around it


class StatusReply(Message, tag="state", frozen=True):
    """The daemon's facts, a tree of JSON values."""

    facts: dict[str, Any]


class Readings(Message, tag="now", frozen=True):
    """The daemon's CLOCK_MONOTONIC now, the GPUs of its source, and the windows that the client may see, unfinished first."""

    at_ns: int
    source: str
    simulated: bool = False
    absence: str | None = None  # the reason for an empty list of GPUs
    gpus: list[ShownGpu] = []
    windows: list[Shown] = []
    gpus_left_out_count: int = 0
    windows_left_out_count: int = 0
    unanswered: list[str] = []  # GPUs that the driver lists but that never answered, each with the reason


class Leaving(Message, tag="leaving", frozen=True):
    """The answer to Leave: the daemon refuses new windows, stores its data, and exits."""


class Refused(Message, tag="refused", frozen=True):
    """A refusal: a code for programs, one line for people."""

    code: str
    message: str


Request: TypeAlias = (
    Hello | Open | OpenMark | End | Times | Spans | Close | CloseMark | AskVerdicts | AskStatus | AskReadings | Leave
)
Reply: TypeAlias = Welcome | Opened | TimesTaken | Closed | JudgedReply | StatusReply | Readings | Leaving | Refused

_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class WireError(ValueError):
    """A line that is not a message; the other side gets ``code``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def encode(message: Message) -> bytes:
    """Return one line of JSON; characters that UTF-8 cannot hold are replaced."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(clean_tree(msgspec.to_builtins(message))) + b"\n"


def decode_request(line: bytes) -> Request:
    """Read a request; invalid UTF-8 becomes U+FFFD.  Raises WireError: for a line that is not a request."""
    return _decode(_requests, line if line.isascii() else line.decode(errors="replace"))


def decode_reply(line: bytes) -> Reply:
    """Read a reply.  Raises WireError: for a line that is not a reply."""
    return _decode(_replies, line)


def refused(code: str, why: object) -> Refused:
    """Return a refusal in one bounded line, even if an error repeats a part of the request."""
    return Refused(code, one_line(str(why)))


def _decode(decoder: msgspec.json.Decoder[_T], line: bytes | str) -> _T:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        if (too_large := explain_bound(str(error))) is not None:
            raise WireError("usage", too_large) from error
        code = "unknown-message" if "Invalid value" in str(error) and "$.type" in str(error)[-20:] else "bad-message"
        expected = f"expected a message of protocol {OLDEST_PROTOCOL} to {PROTOCOL}"
        raise WireError(code, one_line(f"{expected}; {error}")) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("bad-message", one_line(f"expected one line of JSON; {error}")) from error
