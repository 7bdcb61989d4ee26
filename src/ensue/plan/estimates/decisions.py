"""What was decided by estimates: the candidates, their figures, and the one that was taken."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a way to run a query is expected to cost."""

    cost: float  # an event of the stream, in comparisons
    partial: float  # partial matches, instances or nodes that are kept at a time
    matches: float  # an event of the stream


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go."""

    name: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Decision:
    """The ways to go, and which one was taken, and why if not for its cost."""

    name: str
    chosen: str
    candidates: tuple[Candidate, ...] = ()
    why: str = ""


def figure(number: float) -> str:
    """A figure with three digits that count, the same on every machine.

    >>> figure(0.33333), figure(1234.5), figure(12), figure(2.5e12)
    ('0.333', '1,230', '12', '2.5e+12')
    """
    short = float(f"{number:.3g}")
    if short >= 1e9 or 0 < short < 1e-4:
        return f"{short:.3g}"
    return f"{short:,.0f}" if short >= 100 else f"{short:.3g}"
