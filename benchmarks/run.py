"""Runs the benchmarks: `python benchmarks/run.py [--quick] [--only NAME ...]`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:
    # Started by its path, as `make bench` does: the repository stands for this folder, and what is
    # measured is the source beside it, wherever the environment's own package is installed from.
    sys.path[:1] = [str(REPOSITORY), str(REPOSITORY / "src")]

import slurm  # noqa: E402
from benchmarks import page, report  # noqa: E402
from benchmarks.figures import Section  # noqa: E402
from benchmarks.ground import Ground  # noqa: E402
from benchmarks.libraries import LIBRARIES, ORDERS  # noqa: E402
from benchmarks.peer import PeerFailed, environment  # noqa: E402
from benchmarks.scenarios.arrays import graph, map_on_slurm  # noqa: E402
from benchmarks.scenarios.bridge import placed_by_slurm  # noqa: E402
from benchmarks.scenarios.deaths import deaths  # noqa: E402
from benchmarks.scenarios.growth import growth  # noqa: E402
from benchmarks.scenarios.heavy import heavy  # noqa: E402
from benchmarks.scenarios.in_flight import in_flight  # noqa: E402
from benchmarks.scenarios.monitor import watched  # noqa: E402
from benchmarks.scenarios.one_job import on_embedded, on_slurm  # noqa: E402
from benchmarks.scenarios.packed import packed  # noqa: E402
from benchmarks.scenarios.ssh import over_ssh  # noqa: E402
from benchmarks.scenarios.start_up import start_up  # noqa: E402
from benchmarks.scenarios.submitit import drop_in  # noqa: E402
from slurm.errors import SlurmError  # noqa: E402

#: Beside every other library.
RACES = {
    "one": on_slurm,
    "map": map_on_slurm,
    "packed": packed,
    "graph": graph,
    "deaths": deaths,
    "ssh": over_ssh,
    "growth": growth,
    "heavy": heavy,
    "start-up": start_up,
}
#: Our own, held to their targets alone: part of a run with `--all`.
FURTHER = {
    "embedded": on_embedded,
    "in-flight": in_flight,
    "bridge": placed_by_slurm,
    "submitit": drop_in,
    "monitor": watched,
}
SCENARIOS = {**RACES, **FURTHER}
#: After so many seconds what is left is done as in a quick run; what is under way still ends.
FULL_S, QUICK_S = 1320, 120
RESULTS = REPOSITORY / "benchmarks" / "results.json"


def main() -> int:
    """Measure, print, and write the results; 1 if a scenario failed or, if strict, a target."""
    asked = _arguments()
    # Also a run that is told to end takes its cluster and its programs with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if asked.page:
        kept = json.loads(RESULTS.read_text())
        page.write(REPOSITORY / "docs", report.from_json(kept), kept["facts"], kept["left_out"])
        return 0
    _install()
    began = time.monotonic()
    facts = _facts(asked.quick)
    sections: list[Section] = []
    failed: list[str] = []
    names = asked.only or (SCENARIOS if asked.all else RACES)
    with Ground(asked.quick, began + (QUICK_S if asked.quick else FULL_S)) as ground:
        for name in names:
            section = _measured(ground, name)
            if section is None:
                failed.append(name)
            else:
                sections.append(section)
                print(report.plain(section), flush=True)
        facts.update(ground.versions)
        left_out = _left_out(ground)
    facts["load at the end"] = _load()
    facts["time"] = f"{time.monotonic() - began:.0f} s"
    _write(sections, facts, left_out, whole=not (asked.only or asked.quick or failed))
    missed = [row.name for section in sections for row in section.rows if row.holds is False]
    print(
        f"{facts['time']}; "
        + (f"targets missed: {'; '.join(missed)}" if missed else "all targets held")
    )
    if failed:
        print(f"not measured: {', '.join(failed)}")
    return 1 if failed or (missed and asked.strict) else 0


def _install() -> None:
    """Make the environments of the peers, before any clock runs."""
    for library in LIBRARIES:
        # One that cannot be installed is left out by each scenario, with the reason.
        with contextlib.suppress(PeerFailed):
            if library.needs:
                environment(*library.needs)


def _measured(ground: Ground, name: str) -> Section | None:
    """One scenario; None where it failed: what else is measured is worth keeping."""
    start = time.monotonic()
    try:
        section = SCENARIOS[name](ground)
    except (PeerFailed, subprocess.SubprocessError, SlurmError, OSError) as error:
        ground.skip(f"scenario {name} failed: {error}")
        return None
    finally:
        ground.end_peers()
    return dataclasses.replace(section, seconds=time.monotonic() - start)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The numbers, each measured beside its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller, in minutes")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), help="these scenarios alone")
    parser.add_argument("--all", action="store_true", help="also what has no peers")
    parser.add_argument("--page", action="store_true", help="write the page anew, measure nothing")
    return parser.parse_args()


def _facts(quick: bool) -> dict[str, str]:
    git = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, timeout=30).stdout.strip()
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()) + (", quick" * quick),
        "commit": f"{slurm.__version__} {commit}".strip(),
        "Python": platform.python_version(),
        "host": f"{os.cpu_count()} cores, Linux {platform.release()}; Slurm with four nodes on it",
        "load at the start": _load(),
    }


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _left_out(ground: Ground) -> list[str]:
    """One line for each library, then what else went wrong."""
    said: dict[str, list[str]] = {}
    for (label, reason), orders in ground.left_out.items():
        named = ", ".join(sorted(ORDERS.get(order, order) for order in orders))
        said.setdefault(label, []).append(f"{named} ({reason})")
    return [*(f"**{label}**: {'; '.join(what)}." for label, what in said.items()), *ground.skipped]


def _write(
    sections: list[Section], facts: dict[str, str], left_out: list[str], whole: bool
) -> None:
    """Keep the results; part of a run, or a quick one, does not take the place of the whole."""
    results = RESULTS if whole else REPOSITORY / ".cache" / "benchmarks" / "results.json"
    docs = REPOSITORY / "docs" if whole else results.parent / "docs"
    docs.mkdir(parents=True, exist_ok=True)
    kept = {**report.as_json(sections, facts), "left_out": left_out}
    results.write_text(json.dumps(kept, indent=1) + "\n")
    page.write(docs, sections, facts, left_out)
    print(f"written: {results} and {docs / 'benchmarks.md'}")


if __name__ == "__main__":
    sys.exit(main())
