"""Facts that only the measured process knows and may declare: every name, and its meaning.

A declared fact may worsen a verdict and never improve it, so a rule reads one to find a hazard, never to clear it.
"""

from collections.abc import Mapping

from annotate.evidence import Fact

FACTS: Mapping[str, str] = {
    # How the window ended, and how long its last synchronisation waited.
    "exception": "the exception that ended the work",
    "abandoned": "why the window was not closed by its process",
    "sync_s": "how long the GPU still worked when the body had returned",
    # The software, compared between windows.
    "torch_version": "torch's version",
    "cuda_version": "the CUDA version torch was built for",
    "cudnn_version": "cuDNN's version",
    "matmul_precision": "the precision float32 products are allowed (torch.get_float32_matmul_precision)",
    "cudnn_tf32": "whether cuDNN may use TF32",
    "cudnn_benchmark": "whether cuDNN picks its algorithms by trying them",
    "deterministic": "whether deterministic algorithms are asked for",
    "environment": "the environment variables that change speed, as NAME=VALUE, sorted, separated by semicolons",
    # The GPU as CUDA describes it.
    "cuda_uuids": "the GPUs the process has memory on, comma-separated UUIDs",
    "sm_count": "how many SMs the GPU has",
    "l2_bytes": "the size of the L2 cache",
    # What runs beside the work in its own process.
    "launch_blocking": "whether CUDA_LAUNCH_BLOCKING is set",
    "profiler_used": "whether a profiler or tracer (torch's or Python's) is running, or torch's was seen running earlier",
    "tampered": "the timing functions that are not the ones their library defines, comma-separated",
    # Memory, between the window's edges.
    "alloc_count": "how often the caching allocator asked the driver for memory",
    "alloc_retry_count": "how often the caching allocator had to free its cache to go on",
    "reserved_change_bytes": "by how much the caching allocator's memory grew",
    # Parts of the claim, printed with it.
    "locked_mhz": "the clock the caller locked the SMs at",
    "every_s": "the time from one call's begin to the next that the caller keeps on purpose",
    "varies": "whether the times vary by design, so that the mean over whole periods is claimed",
    "own_processes": "whose work on the GPU is the window's own, where a mark holds it",
    "untrusted": "whether the measured code is not trusted, so that only the witness's evidence counts",
    "whole_program": "whether the window surrounds a whole program, of which its work on the GPU is claimed",
    # How it was timed.
    "stamp_s": "the GPU's time for the stamps around one entry",
    "timer": "what took the times: events, graph, stamps, host, or caller for times handed over",
    "timer_overhead_s": "what the timer reads around nothing",
    "issue_s": "the host's time to launch one call",
    "starved_ratio": "the share of timed readings for whose launch the GPU waited",
    "busy_ratio": "the share of the window the harness kept the GPU busy",
    "true_clock_mhz": "the true mean SM clock between the window's first and last stamp, idle time included",
    "stamped_s": "how long the window's first and last stamp lie apart",
    "stamp_spread_s": "how far apart the SMs wrote the stamps around an iteration, in the median",
    "stamp_seen_ratio": "the share of SMs that wrote a stamp, on average: all of them where nothing else kept any busy",
    "cache": "cold or warm: the L2 cache the harness gives each call",
    "flush_bytes": "how much the harness writes between calls to empty the L2 cache",
    "flush_timed": "whether the flush lies inside the timed span",
    "working_set_bytes": "how much memory one call touches",
    "warmup_count": "how many calls ran before the first timed one",
    "warmup_s": "how long the warm-up took",
    "warmup_steady": "whether times, clock and power were steady when the warm-up ended",
    # A number that untrusted code claims.
    "claimed_calls_count": "how many calls are claimed to have run in the window",
    "claimed_call_s": "the time that each of them is claimed to have taken",
    # What was timed.
    "dtype": "the data type of the arithmetic",
    "call_flops_count": "the floating-point operations of one call",
    "call_bytes": "the bytes one call must read and write in device memory",
    "input_zero_ratio": "the share of zeros among sampled inputs",
    "input_unique_ratio": "the share of distinct values among sampled inputs",
    "input_dtype": "the data type of the inputs",
    "input_bytes": "the size of the inputs",
    "reference_error_ratio": "the largest relative error against the reference",
    "reference_limit_ratio": "the largest relative error allowed",
    "output_unchanged": "whether the output stayed the same when the inputs were changed",
    # The comparison it belongs to.
    "variants_count": "how many variants were tried of which this is one",
    "aa_floor_ratio": "by how much this GPU tells two equal variants apart (95th percentile)",
    "design": "interleaved or sequential: in which order the variants ran",
    # The canary: a fixed amount of work that bench() runs before its warm-up.
    "canary_clock_mhz": "the true clock of the canary",
    "canary_copy_bytes_count": "the bytes a second of the canary's copy",
    "canary_record_clock_mhz": "the median canary clock of this GPU's earlier healthy runs",
    "canary_record_copy_bytes_count": "the median canary copy rate of this GPU's earlier healthy runs",
    "canary_record_count": "how many earlier healthy canaries of this GPU are on record",
}


def amount(declared: Mapping[str, Fact], name: str) -> float | None:
    """A declared amount, finite and not negative; None for what is missing or makes no sense: the process may be wrong."""
    value = declared.get(name)
    # Neither NaN nor infinity passes, nor what is beyond every amount there is: quotients of two must stay finite.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e24:
        return None
    return float(value)


def text(declared: Mapping[str, Fact], name: str) -> str | None:
    """A declared text; None for what is missing or no text."""
    value = declared.get(name)
    return value if isinstance(value, str) else None
