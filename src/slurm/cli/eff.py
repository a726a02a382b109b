"""`slurm eff RUN`: how well a run used what it asked for, and what to ask for next time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from slurm.cli.frame import COMMON, Answer, Common, Run
from slurm.cli.opened import Opened, look_at
from slurm.cli.screen import Column, Screen, bar, span, table
from slurm.efficiency import RunUse, Spread, calls_of, run_use
from slurm.errors import UsageError
from slurm.model.units import format_memory

MIB = 1 << 20


@dataclass(frozen=True)
class Numbers:
    """A number over all calls of the run; of a single call all are the same."""

    low: Annotated[float, "The lowest."]
    middle: Annotated[float, "The median."]
    most: Annotated[float, "The 95th percentile."]
    high: Annotated[float, "The highest."]


@dataclass(frozen=True)
class Suggestion:
    """What to ask for next time."""

    option: Annotated[str, "mem, cpus or time."]
    asked: Annotated[str, "What was asked for."]
    suggested: Annotated[str, "What would do."]
    saves: Annotated[str, "What that saves; empty: it is more than was asked for."]
    why: Annotated[str, "Because of what."]


@dataclass(frozen=True)
class EffShown(Answer):
    """How well a run used what it asked for."""

    run: Annotated[str, "The run."]
    calls: Annotated[int, "How many calls were measured."]
    of: Annotated[int, "How many calls the run has."]
    cpu: Annotated[Numbers | None, "The part of the CPUs' time that was computed, 0 to 1."]
    memory: Annotated[Numbers | None, "Bytes used at most on one node, without file caches."]
    memory_part: Annotated[Numbers | None, "The same as part of what was asked for."]
    memory_asked: Annotated[int | None, "Bytes that were asked for."]
    wall: Annotated[Numbers | None, "Seconds that the calls ran."]
    gpu: Annotated[Numbers | None, "The part of the time that GPUs were busy."]
    gpu_memory: Annotated[int | None, "Bytes of GPU memory used at most."]
    core_hours: Annotated[float, "Hours times CPUs that the run had."]
    suggestions: Annotated[list[Suggestion], "What to ask for next time."]

    def lines(self, screen: Screen) -> Iterator[str]:
        """Bars, a table of percentiles for arrays, and the suggestions."""
        some = f" ({self.calls} of {self.of} calls)" if self.of > 1 else ""
        yield f"{screen.paint(self.run, 'bold')}{some}"
        parts = (("CPU", self.cpu), ("memory", self.memory_part), ("GPU", self.gpu))
        for name, one in parts:
            if one is not None:
                yield f"  {name:<8}{bar(one.middle, 1, 20)} {one.middle:>4.0%}{self._note(name)}"
        if self.memory is not None and self.memory_part is None:
            yield f"  {'memory':<8}{format_memory(round(self.memory.high / MIB))}"
        if self.wall is not None:
            yield f"  {'time':<8}{span(self.wall.middle)}, {self.core_hours:.2f} core-hours in all"
        if self.of > 1:
            yield ""
            yield from self._percentiles(screen)
        yield ""
        if not self.suggestions:
            yield "it asked for about what it needs"
        for tip in self.suggestions:
            gain = f"; saves {tip.saves}" if tip.saves else ""
            text = f"{tip.option}: {tip.suggested} instead of {tip.asked}: {tip.why}{gain}"
            yield from screen.wrap(text, indent="    ", first="  next time ")

    def _note(self, name: str) -> str:
        if name != "memory" or self.memory is None or not self.memory_asked:
            return ""
        used, asked = (format_memory(round(n / MIB)) for n in (self.memory.high, self.memory_asked))
        return f"  {used} of {asked}"

    def _percentiles(self, screen: Screen) -> Iterator[str]:
        columns = (
            Column(""),
            *(Column(head, right=True) for head in ("LOWEST", "MEDIAN", "95 %", "HIGHEST")),
        )
        rows = []
        for name, one, form in (
            ("CPU", self.cpu, lambda n: f"{n:.0%}"),
            ("memory", self.memory, lambda n: format_memory(round(n / MIB))),
            ("time", self.wall, span),
            ("GPU", self.gpu, lambda n: f"{n:.0%}"),
        ):
            if one is not None:
                rows.append((name, *(form(n) for n in (one.low, one.middle, one.most, one.high))))
        yield from table(columns, rows, screen)


def eff(run: Run, *, common: Common = COMMON) -> EffShown:
    """Say how well a run used what it asked for, and what to ask for next time."""
    opened = look_at(common, run, ask=False)
    use = measured(opened)
    if use is None:
        raise UsageError(
            f"nothing of {opened.run} is over yet, so nothing was measured",
            hint=f"slurm wait {opened.run}",
        )
    return _shown(opened.run, use, max(len(opened.jobs), len(use.calls)))


def measured(opened: Opened) -> RunUse | None:
    """The use of those calls of a run that are over; None where none is."""
    jobs = sorted({job.bare.partition("_")[0] for job in opened.jobs if job.bare})
    first = opened.jobs[0]
    found = opened.cluster.backend.usage(opened.run, jobs, first.submitted - 86400)
    calls = calls_of(found, first.options, first.path)
    wanted = {job.index for job in opened.jobs}
    # A packed map is measured by its jobs, of which each holds many items.
    chosen = calls if first.packed is not None else [c for c in calls if c.index in wanted]
    return run_use(chosen, first.options) if chosen else None


def _shown(run: str, use: RunUse, total: int) -> EffShown:
    asked = next((call.memory_asked for call in use.calls if call.memory_asked), None)
    cards = [gpu.memory for call in use.calls for gpu in call.gpus]
    return EffShown(
        run=run,
        calls=len(use.calls),
        of=total,
        cpu=_numbers(use.cpu),
        memory=_numbers(use.memory),
        memory_part=_numbers(use.memory_efficiency),
        memory_asked=asked,
        wall=_numbers(use.wall),
        gpu=_numbers(use.gpu),
        gpu_memory=max(cards, default=None),
        core_hours=round(use.core_hours, 4),
        suggestions=[
            Suggestion(a.option, a.asked, a.suggested, a.saves, a.why) for a in use.advice
        ],
    )


def _numbers(one: Spread | None) -> Numbers | None:
    return None if one is None else Numbers(one.low, one.middle, one.most, one.high)
