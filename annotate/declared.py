"""Declared facts: every name, and its meaning.

A fact that is not a part of the claim can only worsen a verdict: its pass lowers no bound or severity of an earlier pass.
"""

from collections.abc import Mapping

from annotate.evidence import Fact

FACTS: Mapping[str, str] = {
    # The end of the window.
    "exception": "the exception, exit code or signal that ended the work",
    "abandoned": "the reason why the client did not close the window; true if the daemon ended first",
    "sync_s": "the time that the GPU still worked after the body returned",
    # The software, compared between windows.
    "torch_version": "torch's version",
    "cuda_version": "the CUDA version torch was built for",
    "cudnn_version": "cuDNN's version",
    "matmul_precision": "the precision float32 products are allowed (torch.get_float32_matmul_precision)",
    "cudnn_tf32": "cuDNN's permission to use TF32",
    "cudnn_benchmark": "cuDNN's choice of algorithms by trial",
    "deterministic": "the demand for deterministic algorithms",
    "environment": "the environment variables that change speed, as NAME=VALUE, sorted, separated by semicolons",
    # The GPU as CUDA describes it.
    "cuda_uuids": "the GPUs that the process uses, comma-separated UUIDs",
    "sm_count": "the number of SMs of the GPU",
    "l2_bytes": "the size of the L2 cache",
    # Tools and settings that slow the measured process.
    "launch_blocking": "an active CUDA_LAUNCH_BLOCKING (set, and not to 0)",
    "profiler_used": "the use of a profiler or tracer of torch or Python",
    "tampered": "the timing functions that were replaced, comma-separated",
    # Memory, between the window's edges.
    "alloc_count": "the number of times the caching allocator requested memory from the driver",
    "alloc_retry_count": "the number of times the caching allocator had to free its cache",
    "reserved_change_bytes": "the growth of the caching allocator's memory",
    # Parts of the claim, printed with it.
    "locked_mhz": "the clock at which the caller locked the SMs",
    "every_s": "the period at which the caller starts calls on purpose",
    "varies": "variation of the times by design, so that the mean over whole periods is claimed",
    "own_processes": "the processes whose work on the GPU belongs to the window of `gpuwatch mark`",
    "untrusted": "distrust of the measured code, so that only the witnesses' evidence counts",
    "whole_program": "a window around a whole program, whose work on the GPU is claimed",
    # The timing method.
    "stamp_s": "the GPU's time for the stamps around one entry",
    "timer": "the timer: events, graph, stamps, host, or caller for times handed over",
    "timer_overhead_s": "the time that the timer reads around nothing",
    "issue_s": "the host's time to launch one call",
    "starved_ratio": "the share of timed readings for whose launch the GPU waited",
    "busy_ratio": "the share of the window in which the harness kept the GPU busy",
    "true_clock_mhz": "the true mean SM clock between the window's first and last stamp, idle time included",
    "stamped_s": "the time between the window's first and last stamp",
    "stamp_spread_s": "the median or mean spread between the SMs' stamps around an iteration",
    "stamp_seen_ratio": "the mean share of SMs that wrote a stamp; 1 if no other work kept an SM busy",
    "cache": "the state of the L2 cache before each call: cold or warm",
    "flush_bytes": "the bytes that flushes or other inputs move through the L2 cache between two uses of an input",
    "flush_timed": "a flush inside the timed span",
    "working_set_bytes": "the memory that one call touches",
    "warmup_count": "the number of calls before the first timed one",
    "warmup_s": "the length of the warm-up",
    "warmup_steady": "steadiness of times, clock and power at the end of the warm-up",
    # A number that untrusted code claims.
    "claimed_calls_count": "the number of calls that the code claims to have run in the window",
    "claimed_call_s": "the time per call that the code claims",
    # The timed work.
    "dtype": "the data type of the arithmetic",
    "call_flops_count": "the floating-point operations of one call",
    "call_bytes": "the bytes that one call must read and write in device memory",
    "input_zero_ratio": "the largest share of zeros in a sampled input",
    "input_unique_ratio": "the smallest share of distinct values in a sampled input",
    "input_dtype": "the data type of the inputs",
    "input_bytes": "the size of the inputs",
    "reference_error_ratio": "the largest relative error against the reference",
    "reference_limit_ratio": "the largest relative error allowed",
    "output_unchanged": "an output that stayed the same when the inputs changed",
    # The comparison that the window belongs to.
    "variants_count": "the number of variants compared with the first variant",
    "aa_floor_ratio": "this GPU's noise floor between two equal variants (95th percentile)",
    "design": "the order in which the variants ran: interleaved or sequential",
    # The canary: a fixed amount of work that bench() runs before its warm-up.
    "canary_clock_mhz": "the true clock of the canary",
    "canary_copy_bytes_count": "the bytes per second of the canary's copy",
    "canary_record_clock_mhz": "the median canary clock of this GPU's earlier valid runs",
    "canary_record_copy_bytes_count": "the median canary copy rate of this GPU's earlier valid runs",
    "canary_record_count": "the number of recorded canaries of this GPU's earlier valid runs",
}


def amount(declared: Mapping[str, Fact], name: str) -> float | None:
    """Return a declared amount, finite and not negative, or None if the amount is missing or invalid."""
    value = declared.get(name)
    # NaN, infinity and absurdly large amounts are invalid: the quotient of two amounts must stay finite.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e24:
        return None
    return float(value)


def text(declared: Mapping[str, Fact], name: str) -> str | None:
    """Return a declared text, or None if the fact is missing or not a text."""
    value = declared.get(name)
    return value if isinstance(value, str) else None
