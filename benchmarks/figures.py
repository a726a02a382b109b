"""Values of the benchmark: samples, rows with their targets, and sections."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, in which unit, and what it is held to.

    With `over`, the samples of a baseline, each figure is how much lies above the same figure of
    the baseline. A row of a race says which `question` it answers, for which `library`, of which
    `size` on a growth curve; `late` means that the sample is what was waited, without an answer.
    """

    name: str
    samples: tuple[float, ...]
    unit: str = "ms"
    ratio: float | None = None
    limit: float | None = None
    limit_of: Literal["median", "ratio"] = "median"
    over: tuple[float, ...] = ()
    question: str = ""
    library: str = ""
    size: int = 0
    #: The round trip over ssh, in milliseconds.
    trip: int | None = None
    late: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.samples) - self._base

    @property
    def _base(self) -> float:
        return statistics.median(self.over) if self.over else 0.0

    @property
    def lowest(self) -> float:
        return min(self.samples) - min(self.over, default=0.0)

    @property
    def middle_half(self) -> tuple[float, float]:
        """Between which values the middle half of the samples lies: the spread of a noisy host."""
        if len(self.samples) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low - self._base, high - self._base

    @property
    def holds(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.limit is None:
            return None
        value = getattr(self, self.limit_of)
        return value is not None and value <= self.limit


@dataclass(frozen=True)
class Section:
    """The answer to one question, with what a reader has to know to judge it."""

    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)


def compared(
    samples: dict[str, list[float]],
    baseline: str,
    limits: dict[str, float] | None = None,
    unit: str = "ms",
) -> tuple[Row, ...]:
    """Rows with the ratio of each median to the baseline's; `limits` are of that ratio."""
    base = statistics.median(samples[baseline])
    return tuple(
        Row(
            name,
            tuple(values),
            unit,
            ratio=statistics.median(values) / base,
            limit=(limits or {}).get(name),
            limit_of="ratio",
        )
        for name, values in samples.items()
        if values
    )


def above(
    samples: dict[str, list[float]], baseline: str, limits: dict[str, float]
) -> tuple[Row, ...]:
    """Rows of how much each lies above the baseline; `limits` are of the medians' difference."""
    base = tuple(samples[baseline])
    rows = [Row(baseline, base)]
    for name, values in samples.items():
        if name != baseline and values:
            row = Row(f"{name}, above that", tuple(values), limit=limits.get(name), over=base)
            rows.append(row)
    return tuple(rows)
