"""The result of compiling one side."""

import msgspec


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """Code of one side: ``debug`` is the cubin of a compilation for a debugger, which names parameters."""

    compiler: str
    flags: tuple[str, ...] = ()
    cubin: bytes = b""
    ptx: str = ""
    log: str = ""
    debug: bytes = b""
    dynamic_shared_bytes: int = 0
    parameters: tuple[tuple[str, str], ...] = ()  # names and types, where the compiler was told them
