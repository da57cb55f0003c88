"""Rules about the conditions of a comparison: hardware, software, boot and clock of the window and its baseline."""

from typing import Annotated

from annotate.budget import Bound, Estimate, Group, Number
from annotate.case import Case
from annotate.claims import Claim
from annotate.derived import pair_conditions
from annotate.evidence import Evidence, Fact
from annotate.ranges import Share, Watts
from annotate.rule import Answer, Basis, Clear, Found, Rule, RuleKind, Severity, Unobserved, rule


@rule(
    "hardware-mismatch",
    kind=RuleKind.INTEGRITY,
    needs=("baseline",),
    basis=Basis.BASELINE,
    says="the baseline ran on other hardware: {differing}",
    remedy="Measure both on one GPU, at one power limit, in one run.",
)
def hardware_mismatch(
    evidence: Evidence,
    claim: Claim,
    *,
    power_tolerance_w: Annotated[Watts, "limits are set in whole watts and read back exactly; half a watt is rounding"] = 0.5,
) -> Answer:
    """Finds a baseline from another model, form, power limit or partition, or from another GPU of the same model.

    Why it matters:
        GPUs of one model differ by 8 % on average and by up to 22 %.  Forms of one chip (SXM, PCIe, NVL) have different power
        limits, and the limit decides the clock of every kernel that reaches it.

    Limits of detection:
        Cooling and age of the board.  The rule identifies GPUs by UUID, because an index (``CUDA_VISIBLE_DEVICES``) does not
        identify a GPU.  Facts known for one window only are not compared, but both power limits must be known for the rule
        to clear.

    Remedy:
        Compare on one GPU, interleaved (``gpuwatch.compare``).  For a claim about a model, measure on three GPUs at least.

    Source:
        NVML's identity, limits and modes of both windows' GPUs.  Spread between GPUs: Sinha et al., SC 2022.
    """
    device, base = evidence.device, evidence.baseline.device if evidence.baseline else None
    if device is None or base is None:
        return Unobserved("the GPU of the window or its baseline was not observed")
    grave = pair_conditions.differences(base, device, pair_conditions.MODEL, tolerance=power_tolerance_w)
    slight = pair_conditions.differences(base, device, pair_conditions.BOARD, tolerance=0.0)
    if not grave and not slight:
        if device.power_limit_w is None or base.power_limit_w is None:
            return Unobserved("the power limit of the window's or the baseline's GPU was not observed")
        return Clear({"uuid": device.uuid})
    facts: dict[str, Fact] = {
        "differing": pair_conditions.listed([*grave, *slight]),
        "differences_count": len(grave) + len(slight),
    }
    return Found(Severity.REJECT if grave else Severity.FLAG, facts)


@rule(
    "software-mismatch",
    kind=RuleKind.INTEGRITY,
    needs=("baseline",),
    basis=Basis.BASELINE,
    says="the baseline ran with other software or settings: {differing}",
    remedy="Measure both with the same driver, libraries, flags and environment.",
)
def software_mismatch(evidence: Evidence, claim: Claim) -> Answer:
    """Finds a baseline with another driver, torch, CUDA or cuDNN, other precision flags, environment, timer or inputs.

    Why it matters:
        A library can select other kernels, a flag can allow TF32, and a variable can make every launch wait.  The code then
        does not cause the difference.

    Limits of detection:
        Compile flags of extensions, undeclared library versions (CUTLASS, Triton's compiler), clocks of the host.  Only
        facts known for both windows are compared.  A driver that differs only in its last number is a note.

    Remedy:
        Run both in one environment, or accept the difference if it is the subject of the comparison.

    Source:
        The driver's version from NVML.  The versions and flags of torch, and the environment, as declared by the process.
    """
    base = evidence.baseline
    if base is None:
        return Unobserved("the window was not compared with another one")
    known, differing = pair_conditions.software(base, evidence)
    if not known:
        return Unobserved("no version or setting is known for both windows")
    if not differing:
        return Clear({"settings_count": known})
    patch = all(difference.patch for difference in differing)
    facts: dict[str, Fact] = {"differing": pair_conditions.listed(differing), "differences_count": len(differing)}
    return Found(Severity.NOTE if patch else Severity.FLAG, facts)


@rule(
    "boot-changed",
    kind=RuleKind.INTEGRITY,
    needs=("baseline",),
    basis=Basis.BASELINE,
    says="{happened} between the baseline and this window",
    remedy="Measure both again without a restart between them.",
)
def boot_changed(evidence: Evidence, claim: Claim) -> Answer:
    """Finds a baseline from before a boot or a driver reload, or from another machine.

    Why it matters:
        On one machine a reboot changed the clock by 12.8 % and the same kernel by 9.7 %: a boot changes memory placement,
        clock tables and firmware state.

    Limits of detection:
        The restart of a container, which rightly does not count.  A driver reload, if the energy counter is already higher
        than before the reload.

    Remedy:
        Run both within one boot.  For a claim across boots, repeat the pair over at least three boots.

    Source:
        Linux's boot id, and the driver's energy counter, which starts at zero when the driver is loaded.
    """
    base = evidence.baseline
    if base is None or base.host.boot_id is None or evidence.host.boot_id is None:
        return Unobserved("the boot of the window or its baseline was not observed")
    if base.host.boot_id != evidence.host.boot_id:
        elsewhere = base.host.hostname is not None and base.host.hostname != evidence.host.hostname
        return Found(Severity.FLAG, {"happened": "the machine changed" if elsewhere else "the machine was booted again"})
    reloaded = pair_conditions.driver_reloaded(base, evidence)
    if reloaded:
        return Found(Severity.FLAG, {"happened": "the driver was loaded again"})
    if reloaded is None:
        return Unobserved(
            "the boot is the same, but the energy counter, which shows a driver reload, was not read for one GPU in both"
        )
    return Clear()


@rule(
    "clock-between-arms",
    kind=RuleKind.BIAS,
    needs=("baseline",),
    basis=Basis.BASELINE,
    says="the baseline ran at {baseline_mhz:.0f} MHz, this window at {clock_mhz:.0f}: {effect_ratio:+.1%} for the times",
    remedy="Interleave the two, compare them at one clock, or lock the clock.",
)
def clock_between_arms(
    case: Case,
    *,
    true_ratio: Annotated[Share, "one second of a capped GEMM repeats its mean clock within 1 %"] = 0.01,
    gauge_ratio: Annotated[Share, "the driver's clock has steps of 15 MHz, about 1 %, and errs by up to 12 %"] = 0.03,
) -> Answer:
    """Finds two windows with different clocks.

    Why it matters:
        A faster variant may have run on a cooler GPU: the order of two windows alone changed the clock by up to 16 %.

    Limits of detection:
        The part of a lower clock that a kernel causes by drawing more power.  Under ``sustained`` that is a real cost, so if
        the power cap held both windows throughout, the difference has a bound but never rejects.  Without stamps, the
        kernel's response to the clock: a proportional one is assumed, and only differences above 3 % count.

    Remedy:
        Interleave (``gpuwatch.compare``), or compare both times at one clock.

    Source:
        The true clock of stamped iterations, else NVML's gauge while the GPU worked.  True clocks differ if they are more
        than 1 % apart and beyond the 95 % interval of the two means, from blocks of 0.1 s and their correlation.  By chance,
        the mean of a slowly swinging clock varies by more than 1 %.  The estimate is the ratio of the clocks to the power of
        the kernel's exponent.  The interval adds to the bound.
    """
    base = case.evidence.baseline
    if base is None:
        return Unobserved("the window was not compared with another one")
    clocks = pair_conditions.clocks_mhz(base, case.evidence)
    if clocks is None:
        return Unobserved("the clock of the window or its baseline was not observed")
    facts: dict[str, Fact] = {
        "baseline_mhz": clocks.a_mhz,
        "clock_mhz": clocks.b_mhz,
        "true": clocks.true,
        "error_ratio": clocks.error_ratio,
    }
    if clocks.apart_ratio <= max(true_ratio if clocks.true else gauge_ratio, clocks.error_ratio):
        return Clear(facts)
    effect = (clocks.a_mhz / clocks.b_mhz) ** pair_conditions.beta(base, case.evidence) - 1.0
    facts["effect_ratio"] = effect
    # The gauge has no interval, so its limit is the error.
    error = clocks.error_ratio if clocks.true else gauge_ratio
    is_earned = case.claim is Claim.SUSTAINED and all(map(pair_conditions.capped_throughout, (base, case.evidence)))
    bound = Bound(
        number=Number.RATIO,
        rule=clock_between_arms.name,
        group=Group.PAIR,
        ratio=abs(effect) + error,
        estimate=Estimate(effect - error, effect, effect + error),
        can_reject=not is_earned,
    )
    return Found(facts=facts, effect_ratio=effect, bounds=(bound,))


RULES: tuple[Rule, ...] = (
    hardware_mismatch,
    software_mismatch,
    boot_changed,
    clock_between_arms,
)
