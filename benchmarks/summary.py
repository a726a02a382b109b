"""What the races say together: a table of all, where a peer is better, and how things grow."""

from __future__ import annotations

import re
from dataclasses import dataclass

from benchmarks.figures import Row, Section
from benchmarks.libraries import LIBRARIES, OURS, RAW
from benchmarks.plot import Points, exponent

#: Why a peer can be ahead, by the words with which the question begins.
LIMITS = {
    "A graph": "With us every node of a graph is a Slurm job, with a process, a log, an exit code "
    "and limits of its own: Slurm starts some twenty a second here. Theirs are calls in two "
    "processes that stay. For small nodes, call them inside one task or a packed map.",
    "One job": "Slurm's own wait of up to a second is most of it.",
    "A map": "Every item is a Slurm job; starting it costs Slurm more than anything that we do. "
    "Small items belong in a packed map.",
    "One call": "Our calls travel as files, so that no port has to be open between client and "
    "nodes, and the watcher looks for their results every 5 ms.",
    "Submission of": "A pilot without a worker only keeps the calls in its own memory; they are "
    "gone when the client is. Ours are in Slurm when the call returns.",
    "Memory of": "A pilot keeps less about a call than we do about a job.",
    "Files for": "Our files are per node, beside one log for each job, which Slurm makes.",
    "Death noticed": "Who asks at the right moment is told first; what counts is that it is "
    "told at all, and within seconds.",
}
#: Asked so often that the summary has it beside the largest of its kind.
USUAL = "A map of 100,"


@dataclass(frozen=True)
class Comparison:
    """One question with every library's answer."""

    question: str
    rows: dict[str, Row]

    @property
    def ours(self) -> Row | None:
        return self.rows.get(OURS.key)

    def ratio(self, key: str) -> float | None:
        """How many times ours the library's median is."""
        row, ours = self.rows.get(key), self.ours
        return None if row is None or ours is None or not ours.median else row.median / ours.median


def comparisons(sections: list[Section]) -> list[Comparison]:
    """The questions that we and at least one other answered, in their order."""
    found: dict[str, dict[str, Row]] = {}
    for section in sections:
        for row in section.rows:
            if row.question:
                found.setdefault(row.question, {})[row.library] = row
    return [Comparison(q, rows) for q, rows in found.items() if OURS.key in rows and len(rows) > 1]


def at_a_glance(sections: list[Section]) -> list[Comparison]:
    """The questions for the top of the page: of those that grow the last, and what is usual."""
    found = comparisons(sections)
    last = {stem(one.question): one.question for one in found}
    return [
        one
        for one in found
        if last[stem(one.question)] == one.question or one.question.startswith(USUAL)
    ]


def stem(question: str) -> str:
    """The question with `n` for its numbers: what lies on one growth curve."""
    return re.sub(r"\d+(,\d{3})*", "n", question)


def better_peers(sections: list[Section]) -> list[tuple[Comparison, list[Row]]]:
    """Where a library, raw commands apart, is ahead of ours by more than a tenth."""
    found = []
    for one in comparisons(sections):
        ahead = [
            row for key, row in one.rows.items()
            if key not in (OURS.key, RAW.key) and not row.late and (one.ratio(key) or 1) < 0.9
        ]  # fmt: skip
        if ahead:
            found.append((one, sorted(ahead, key=lambda row: row.median)))
    return found


def limit_of(question: str) -> str:
    """Why we are behind there, where it is known."""
    return next((text for words, text in LIMITS.items() if question.startswith(words)), "")


def curves(sections: list[Section]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """For each question that was asked for several sizes, a line for each library."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one in comparisons(sections):
        for library in LIBRARIES:
            row = one.rows.get(library.key)
            if row is not None and row.size and not row.late:
                lines = found.setdefault(stem(one.question), {})
                lines.setdefault(library.label, []).append((row.size, row.median))
    return {
        family: lines
        for family, lines in found.items()
        if any(len(points) > 2 for points in lines.values())
    }


def by_trip(sections: list[Section]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """For each question over ssh, a line for each library over the round trip."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one in comparisons(sections):
        for row in one.rows.values():
            if row.trip is not None and not row.late:
                lines = found.setdefault(stem(one.question).replace("R = n ms: ", ""), {})
                lines.setdefault(row.name, []).append((row.trip, row.median))
    return found


def growth_words(points: Points) -> str:
    """The exponent of a curve's upper end, for the start is what a single call costs."""
    positive = [point for point in points if point[1] > 0][-3:]
    return f"{exponent(positive):.2f}" if len(positive) > 1 else ""


def answered(sections: list[Section]) -> list[str]:
    """The keys of the libraries that answered anything, in their order."""
    seen = {row.library for section in sections for row in section.rows if row.library}
    return [one.key for one in LIBRARIES if one.key in seen]
