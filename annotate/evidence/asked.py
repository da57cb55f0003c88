"""Evidence for one pass of the judge, with notes of the parts that a rule read, and a cache of computed values.

If a value was computed without the parts that another pass has more or fewer of, that pass reuses the value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from annotate.evidence.circumstances import OtherWork
from annotate.evidence.column import Column
from annotate.evidence.evidence import Evidence
from annotate.evidence.trace import Increase
from annotate.evidence.window_record import Timings

FACTS, TIMES = 1, 2  # bits of the parts read: declared facts beyond the claim, and times or other work

_Parameters = ParamSpec("_Parameters")
_Value = TypeVar("_Value")


class Ears:
    """The parts of the evidence read so far by the running computation, as bits."""

    __slots__ = ("read",)

    def __init__(self) -> None:
        self.read = 0


class Memory:
    """The values computed in one pass, each with the bits of the parts read for it.

    ``wider`` holds memories of passes with more evidence, each with the bits of the additional parts.  A pass must note a
    read of a part that it lacks.
    """

    __slots__ = ("_beside", "_kept", "ears")

    def __init__(self, *wider: tuple[Memory, int], ears: Ears | None = None) -> None:
        self.ears = ears or Ears()
        self._kept: dict[Hashable, tuple[Any, int]] = {}
        self._beside = list(wider)  # memories with more or less evidence, with the bits of the parts of only one of the two
        for memory, more in wider:
            memory._beside.append((self, more))  # noqa: SLF001 - another instance of this class

    def recall(self, key: Hashable, compute: Callable[..., _Value], *args: Any) -> _Value:
        """Return the cached value of this key, else compute it from these arguments.

        A value of another pass serves if its computation read no part of only one of the two.
        """
        found: tuple[_Value, int] | None = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._from_beside(key) or self.noting(partial(compute, *args))
        self.ears.read |= found[1]
        return found[0]

    def noting(self, compute: Callable[[], _Value]) -> tuple[_Value, int]:
        """Compute a value, and return it with the bits of the parts that were read."""
        before, self.ears.read = self.ears.read, 0
        try:
            value = compute()
            return value, self.ears.read
        finally:
            self.ears.read |= before

    def _from_beside(self, key: Hashable) -> tuple[Any, int] | None:
        for memory, more in self._beside:
            found = memory._kept.get(key)  # noqa: SLF001 - another instance of this class
            if found is not None and not found[1] & more:
                return found
        return None


_slot_timings = vars(Evidence)["timings"].__get__
_slot_other_work = vars(Evidence)["other_work"].__get__


class Asked(Evidence):
    """Evidence with a memory; all values equal those of plain ``Evidence``."""

    __slots__ = ("memory",)
    memory: Memory

    def __new__(cls, **parts: Any) -> Evidence:  # type: ignore[misc]  # not of this class
        """Return plain evidence.  ``dataclasses.replace`` calls this, and cached values do not hold for changed evidence."""
        return Evidence(**parts)

    @staticmethod
    def of(evidence: Evidence, memory: Memory) -> Asked:
        """Return the same evidence with this memory."""
        asked = object.__new__(Asked)
        object.__setattr__(asked, "memory", memory)
        for each in fields(Evidence):
            vars(Evidence)[each.name].__set__(asked, vars(Evidence)[each.name].__get__(evidence))
        return asked

    @property
    def timings(self) -> Timings | None:
        self.memory.ears.read |= TIMES
        return cast("Timings | None", _slot_timings(self))

    @property
    def other_work(self) -> OtherWork | None:
        self.memory.ears.read |= TIMES
        return cast("OtherWork | None", _slot_other_work(self))

    def within(self, name: str, *, step_ns: int = 10_000_000) -> Column:
        return self.memory.recall(("within", name, step_ns), lambda: Evidence.within(self, name, step_ns=step_ns))

    def increase(self, name: str) -> Increase | None:
        return self.memory.recall(("increase", name), lambda: Evidence.increase(self, name))

    def part(self, begin_ns: int, end_ns: int) -> Evidence:
        part = Asked.of(self, Memory(ears=self.memory.ears))
        vars(Evidence)["window"].__set__(part, replace(self.window, begin_ns=begin_ns, end_ns=end_ns))
        return part


def kept(
    function: Callable[Concatenate[Evidence, _Parameters], _Value],
) -> Callable[Concatenate[Evidence, _Parameters], _Value]:
    """Cache a function of evidence in the memory; for evidence without a memory, the function runs each time."""

    @wraps(function)
    def recalled(evidence: Evidence, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Value:
        if not isinstance(evidence, Asked):
            return function(evidence, *args, **kwargs)
        key = (function, args, *kwargs.items())
        return evidence.memory.recall(key, lambda: function(evidence, *args, **kwargs))

    return recalled


class _Remembering(Protocol):
    memory: Memory


class Kept(Generic[_Value]):
    """A property that is computed at most once for each memory."""

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Kept[_Value]: ...
    @overload
    def __get__(self, owner: _Remembering, kind: type) -> _Value: ...
    def __get__(self, owner: _Remembering | None, kind: type) -> Kept[_Value] | _Value:
        return self if owner is None else owner.memory.recall(self, self._compute, owner)
