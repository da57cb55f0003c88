"""The ladder: several variants as percentages of one reference."""

from collections.abc import Sequence

from annotate.compare.decision import Comparison
from annotate.output.report import plain


def ladder_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a heading, and a table of the variants' speeds as percentages of the reference's, the fastest first.

    Variants without a ratio are left out.
    """
    first = comparisons[0]
    rows = [(1.0, first.a, "100 %", "reference")]
    for each in comparisons:
        found = each.reference_ratio
        if found is not None:
            share = f"{100 * found.centre:.4g} % [{100 * found.low:.4g}, {100 * found.high:.4g}]"
            rows.append((found.centre, each.b, share, each.decision.value.upper()))
    width = max(len(plain(name)) for _, name, _, _ in rows)
    ordered = sorted(rows, key=lambda row: row[0], reverse=True)
    lines = [f"  {plain(name):<{width}}  {share:<30}  {answer}" for _, name, share, answer in ordered]
    return [f"speed as a percentage of {plain(first.a)}, under Holm's correction for {len(comparisons)} comparisons", *lines]
