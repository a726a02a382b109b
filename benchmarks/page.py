"""The page of docs about the benchmarks: a summary, its pictures, every table, how it was done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks import summary
from benchmarks.figures import Row, Section
from benchmarks.libraries import LIBRARIES, OURS, label
from benchmarks.plot import Dot, dot_chart, line_chart, log_chart
from benchmarks.report import HEAD, cells, line, measure, number

PREFIX = "bench-"
#: The pictures that a newcomer sees first.
TOP = (f"{PREFIX}summary.svg", f"{PREFIX}calls-in-two-workers.svg")
INTRO = (
    "# Benchmarks\n\n"
    "Written by `make bench`; do not edit. Slurm SDK beside every library that does the same, in "
    "one run on one machine: a real Slurm, a real sshd, each library in a process and a Python "
    "environment of its own, all of them in turn. The machine is small, so look at ratios.\n"
)
GLANCE = (
    "## At a glance\n\n"
    "The first column is ours; the others are multiples of it, so that **more than 1 means that "
    "the other one needs more**. `>` stands for who had not answered when we stopped waiting, — "
    "for what a library cannot do (the reasons are [below](#left-out)).\n"
)


def write(
    docs: Path, sections: list[Section], facts: Mapping[str, str], left_out: list[str]
) -> None:
    """Write the page and its pictures; those of an earlier run go."""
    images = docs / "images"
    images.mkdir(exist_ok=True)
    for old in images.glob(f"{PREFIX}*.svg"):
        old.unlink()
    drawn = pictures(sections)
    for name, text in drawn.items():
        (images / name).write_text(text)
    (docs / "benchmarks.md").write_text(text_of(sections, facts, left_out, list(drawn)))


def text_of(
    sections: list[Section], facts: Mapping[str, str], left_out: list[str], drawn: list[str]
) -> str:
    """The whole page."""
    parts = [INTRO, GLANCE, glance_table(sections)]
    parts += [_image(name) for name in drawn if name in TOP]
    rest = [name for name in drawn if name not in TOP]
    parts += [better_section(sections), growth_section(sections, rest)]
    parts += ["## Every figure\n", *map(section_text, sections)]
    parts += [_how(facts), _left_out(left_out)]
    return "\n".join(part for part in parts if part)


def glance_table(sections: list[Section]) -> str:
    """A row for each question, a column for each library."""
    keys = [key for key in summary.answered(sections) if key != OURS.key]
    lines = [line(["", OURS.label, *map(label, keys)]), line(["---"] + ["---:"] * (len(keys) + 1))]
    for one in summary.at_a_glance(sections):
        assert one.ours is not None
        lines.append(
            line([one.question, measure(one.ours), *(_ratio_cell(one, key) for key in keys)])
        )
    return "\n".join(lines) + "\n"


def _ratio_cell(one: summary.Comparison, key: str) -> str:
    ratio = one.ratio(key)
    if ratio is None:
        return "—"
    text = f"{number(ratio)} x"
    if one.rows[key].late:
        return f"> {text}"
    return f"**{text}**" if ratio < 0.9 else text


def better_section(sections: list[Section]) -> str:
    """Where a peer is ahead, and why, as the figures say."""
    lines = ["## Where a peer is better", ""]
    found = summary.better_peers(sections)
    if not found:
        lines.append("Nowhere in this run.")
    said: set[str] = set()
    for one, ahead in found:
        assert one.ours is not None
        peers = ", ".join(f"{row.name} {measure(row)}" for row in ahead)
        why = summary.limit_of(one.question)
        lines.append(
            f"- **{one.question}**: {peers}; ours {measure(one.ours)}."
            + (f" {why}" if why and why not in said else "")
        )
        said.add(why)
    return "\n".join(lines) + "\n"


def growth_section(sections: list[Section], drawn: list[str]) -> str:
    """The curves, and the exponent of each."""
    found = summary.curves(sections)
    if not found:
        return ""
    keys = [label(key) for key in summary.answered(sections)]
    lines = [
        "## Growth",
        "",
        "How each grows, as an exponent over the last three sizes: 0 is constant, 1 doubles with "
        "the number.",
        "",
        line(["", *keys]),
        line(["---"] + ["---:"] * len(keys)),
    ]
    for family, curve in found.items():
        lines.append(
            line([family, *(summary.growth_words(curve.get(key, [])) or "—" for key in keys)])
        )
    return "\n".join([*lines, "", *map(_image, drawn)]) + "\n"


def section_text(section: Section) -> str:
    """One section: a table for each question, then our own targets, then what to know."""
    lines = [f"### {section.title}", ""]
    questions: dict[str, list[Row]] = {}
    for row in section.rows:
        questions.setdefault(row.question, []).append(row)
    own = questions.pop("", [])
    for question, rows in questions.items():
        head = [question, "median", "lowest", "middle half", "n", "to ours"]
        lines += [line(head), line(["---"] + ["---:"] * 5)]
        lines += [line(cells(row)[:6]) for row in rows]
        lines.append("")
    if own:
        head = ["ours in detail" if questions else HEAD[0], *HEAD[1:]]
        lines += [line(head), line(["---"] + ["---:"] * 6 + ["---"])]
        lines += [line(cells(row)) for row in own]
        lines.append("")
    lines += [text for note in section.notes for text in (note, "")]
    return "\n".join(lines)


def _how(facts: Mapping[str, str]) -> str:
    lines = ["## How it was measured", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", line(["library", "settings"]), line(["---", "---"])]
    lines += [line([one.label, one.settings]) for one in LIBRARIES]
    lines += [
        "",
        "All turns of a round follow each other in another order each time; *middle half* is where "
        "half of the samples lie. Memory and files are of the host that the client runs on. Run it "
        "yourself: `make bench`, or a part with `python benchmarks/run.py --only map`.",
    ]
    return "\n".join(lines) + "\n"


def _left_out(left_out: list[str]) -> str:
    lines = ["## Left out", ""]
    return "\n".join([*lines, *(f"- {text}" for text in left_out or ["Nothing."])]) + "\n"


def pictures(sections: list[Section]) -> dict[str, str]:
    """The drawings by file name: all ratios first, then how things grow."""
    found = {}
    dots = {
        one.question: {
            label(key): Dot(ratio, row.late)
            for key, row in one.rows.items()
            if key != OURS.key and (ratio := one.ratio(key))
        }
        for one in summary.at_a_glance(sections)
    }
    if dots:
        title = "Multiples of ours (1 = Slurm SDK); further right needs more, → or even more"
        names = [one.label for one in LIBRARIES if one is not OURS]
        found[TOP[0]] = dot_chart(title, names, dots)
    for family, lines in summary.curves(sections).items():
        found[_file(family)] = log_chart(family, "n", _unit(sections, family), lines)
    for family, lines in summary.by_trip(sections).items():
        found[_file(family)] = line_chart(family, "round trip, ms", "ms", lines)
    return found


def _file(family: str) -> str:
    words = [word.strip(",:") for word in family.lower().split() if word.strip(",:") != "n"]
    return f"{PREFIX}{'-'.join(words[:4])}.svg"


def _unit(sections: list[Section], family: str) -> str:
    rows = (row for section in sections for row in section.rows if row.question)
    return next(row.unit for row in rows if summary.stem(row.question) == family)


def _image(name: str) -> str:
    words = name.removesuffix(".svg").removeprefix(PREFIX).replace("-", " ")
    return f"![Chart: {words}](images/{name})\n"
