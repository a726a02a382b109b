"""Writes the generated tables of these pages from the code; `--check` says which are old."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from pathlib import Path

from slurm import errors
from slurm.bridge.gang import STATES
from slurm.bridge.names import PREFIX
from slurm.bridge.parameters import PARAMETERS
from slurm.callbacks import contexts
from slurm.cli import SECTIONS
from slurm.cli.schema import answers
from slurm.cli.schema import rows as fields
from slurm.failure import FAILURES
from slurm.model.options import OPTIONS
from slurm.model.states import JobState
from slurm.monitor.families import TOPICS
from slurm.stack.topology import Topology

sys.path.insert(0, str(Path(__file__).parent))
from error_examples import EXAMPLES, example_of

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "slurm"


def options_table() -> str:
    """Every option, in the order of the lines in a script."""
    rows = [("option", "sbatch flag", "meaning")]
    for spec in OPTIONS:
        flag = f"`--{spec.flag}`" if spec.flag else "(none: part of the script)"
        since = f" Slurm {spec.since} and later." if spec.since else ""
        rows.append((f"`{spec.name}`", flag, spec.doc + since))
    rows.append(("`sbatch`", "any other", 'Other flags by their long names: `{"core-spec": 2}`.'))
    return _table(rows)


def states_table() -> str:
    """Every state, with Slurm's short code."""
    rows = [("state", "code", "phase", "when a job is in it")]
    rows += [(f"`{s.value}`", f"`{s.code}`", s.phase, s.meaning) for s in JobState]
    return _table(rows)


def ends_table() -> str:
    """Which error a bad end becomes."""
    rows = [("state", "error", "the job")]
    rows += [
        (f"`{state.value}`", f"`{kind.__name__}`", text)
        for state, (kind, text, _) in FAILURES.items()
    ]
    return _table(rows)


def errors_table() -> str:
    """Every error with its code, below its own base class."""
    rows = [("code", "error", "is a", "meaning")]
    for cls in sorted(_all_errors(), key=lambda c: c.code):
        meaning = _meaning(cls)
        base = cls.__bases__[0].__name__
        rows.append((f"`{cls.code}`", f"`{cls.__name__}`", f"`{base}`", meaning))
    return _table(rows)


def parameters_table() -> str:
    """Every annotation that a pod may carry for Slurm."""
    rows = [("annotation", "meaning", "")]
    for each in PARAMETERS.values():
        guarded = "only where the identity rule allows it" if each.guarded or each.listed else ""
        rows.append((f"`{PREFIX}{each.name}`", each.meaning, guarded))
    return _table(rows)


def bridge_states_table() -> str:
    """What each state of a placeholder means for its pod."""
    rows = [("job is", "a pod that waits", "a pod that was placed")]
    rows += [
        (f"`{state.value}`", waiting.value, f"{placed.value} (`{reason}`)")
        for state, (waiting, placed, reason) in STATES.items()
    ]
    return _table(rows)


def hooks_table() -> str:
    """Every hook of a callback, where it runs and what it is told."""
    rows = [("hook", "runs in", "when", "is told")]
    for cls in contexts.ALL:
        names = [field.name for field in dataclasses.fields(cls) if field.name != "time"]
        told = ", ".join(f"`{name}`" for name in names)
        rows.append((f"`{cls.hook}`", cls.where, _meaning(cls), f"`{cls.__name__}`: {told}"))
    return _table(rows)


def error_pages() -> str:
    """Every error: when it is raised, what it says, and how it is mended."""
    parts = []
    every = sorted(_all_errors(), key=lambda c: c.code)
    for cls in every:
        text = [
            f"### {cls.code} {cls.__name__}",
            f"{_meaning(cls)} Its base is `{cls.__bases__[0].__name__}`.",
        ]
        below = [f"`{c.__name__}`" for c in every if cls in c.__bases__]
        if cls.__name__ in EXAMPLES:
            text.append(f"```text\n{example_of(cls)}\n```")
            text += filter(None, [EXAMPLES[cls.__name__].fix])
        elif not below:
            sys.exit(f"docs/error_examples.py has no example of {cls.__name__}")
        text += [f"Catch it to catch also {', '.join(below)}."] if below else []
        parts.append("\n\n".join(text))
    return "\n\n".join(parts)


def _all_errors() -> list[type[errors.SlurmError]]:
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass) if _is_ours(c)]
    return [*found, errors.JobCancelled] if errors.JobCancelled not in found else found


def _meaning(cls: type) -> str:
    return (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")


def verbs_table() -> str:
    """Every verb of the command line."""
    rows = [("command", "what it does")]
    for title, section in SECTIONS.items():
        rows.append((f"**{title}**", ""))
        rows += [(f"`slurm {verb.name}`", verb.about) for verb in section]
    return _table(rows)


def metrics_table() -> str:
    """Every metric of the exporter, by topic."""
    parts = []
    for topic in TOPICS:
        rows = [("metric", "type", "labels", "meaning")]
        for one in topic.families:
            name = one.series if one.kind == "counter" else one.full_name
            labels = ", ".join(f"`{label}`" for label in one.labels)
            rows.append((f"`{name}`", one.kind, labels, one.meaning))
        parts.append(f"### {topic.title}\n\n{_table(rows)}")
    return "\n\n".join(parts)


def json_tables() -> str:
    """The JSON of every verb that has one, field by field."""
    parts = []
    told: dict[type, str] = {}
    for verb, kinds in answers().items():
        for kind in kinds:
            if kind in told:
                parts.append(f"### slurm {verb}\n\nThe same as of `{told[kind]}` above.")
                continue
            told[kind] = f"slurm {verb}"
            about = (inspect.getdoc(kind) or "").split("\n")[0]
            which = f" ({kind.__name__})" if len(kinds) > 1 else ""
            rows = [("field", "type", "meaning"), *((f"`{n}`", t, m) for n, t, m in fields(kind))]
            parts.append(f"### slurm {verb}{which}\n\n{about}\n\n{_table(rows)}")
    return "\n\n".join(parts)


def topology_table() -> str:
    """Every key of cluster.toml, table by table."""
    parts = [_keys_of(Topology, "")]
    return "\n\n".join(part for group in parts for part in group)


def _keys_of(cls: type, name: str, many: bool = False) -> list[str]:
    rows = [("key", "value", "default", "meaning")]
    below: list[str] = []
    for field in dataclasses.fields(cls):
        details = field.metadata
        inner = f"{name}.{field.name}" if name else field.name
        if "kind" not in details:
            table = details.get("table") or details["tables"]
            below += _keys_of(table, inner, many="tables" in details)
            continue
        shown = "" if details["required"] else details["kind"].show(field.default)
        default = "required" if details["required"] else f"`{shown}`" if shown else ""
        rows.append((f"`{field.name}`", details["kind"].words, default, details["doc"]))
    head = f"### `[[{name}]]`" if many else f"### `[{name}]`" if name else "### At the top"
    about = (inspect.getdoc(cls) or "").partition(": ")[2] if name else ""
    about = about[:1].upper() + about[1:]
    return ["\n\n".join(filter(None, [head, about, _table(rows)])), *below]


def modules_table() -> str:
    """Every part of the package by layer, with the first line of its file."""
    rows = [("part", "what it is for")]
    for layer in _layers():
        rows += [(f"`{name}`", about) for name, about in sorted(layer.items())]
    return _table(rows)


def _layers() -> list[dict[str, str]]:
    """The parts of src/slurm in the order that tests/unit/test_layers.py has."""
    tree = ast.parse((DOCS.parent / "tests/unit/test_layers.py").read_text())
    given = next(n.value for n in tree.body if isinstance(n, ast.AnnAssign) and n.value)
    found = []
    for layer in ast.literal_eval(given):
        parts = {}
        for name in layer:
            file = SOURCE / f"{name}.py"
            file, shown = (file, f"{name}.py") if file.exists() else (SOURCE / name, f"{name}/")
            file = file / "__init__.py" if file.is_dir() else file
            if file.exists():
                doc = ast.get_docstring(ast.parse(file.read_text())) or ""
                parts[shown] = doc.partition("\n")[0]
        found.append(parts)
    return found


def _is_ours(cls: type) -> bool:
    return issubclass(cls, errors.SlurmError)


def _table(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, ("---",) * len(head), *body]
    cells = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


TABLES = {
    "options": options_table,
    "states": states_table,
    "ends": ends_table,
    "errors": errors_table,
    "parameters": parameters_table,
    "bridge_states": bridge_states_table,
    "hooks": hooks_table,
    "error_pages": error_pages,
    "verbs": verbs_table,
    "json": json_tables,
    "metrics": metrics_table,
    "topology": topology_table,
    "modules": modules_table,
}
_PLACE = re.compile(r"(<!-- table: (\w+) -->\n)(?:(?!<!-- ).)*(<!-- end of table -->)", re.DOTALL)


def renewed(text: str) -> str:
    """A page with its tables as the code has them now."""
    return _PLACE.sub(lambda found: found[1] + TABLES[found[2]]() + "\n" + found[3], text)


def main() -> int:
    """Write the pages anew, or with `--check` only say which differ."""
    stale = [
        page for page in sorted(DOCS.glob("*.md")) if renewed(page.read_text()) != page.read_text()
    ]
    for page in stale:
        if "--check" in sys.argv:
            print(f"docs/{page.name} is out of date: make docs")
        else:
            page.write_text(renewed(page.read_text()))
            print(f"docs/{page.name} written")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
