"""Runs the benchmarks: `python benchmarks/run.py [--quick] [--only NAME ...]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
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
from benchmarks import report  # noqa: E402
from benchmarks.figures import Section  # noqa: E402
from benchmarks.ground import Ground  # noqa: E402
from benchmarks.peer import PeerFailed  # noqa: E402
from benchmarks.scenarios.arrays import graph, long_map, map_on_slurm  # noqa: E402
from benchmarks.scenarios.bridge import placed_by_slurm  # noqa: E402
from benchmarks.scenarios.deaths import deaths  # noqa: E402
from benchmarks.scenarios.in_flight import in_flight  # noqa: E402
from benchmarks.scenarios.monitor import watched  # noqa: E402
from benchmarks.scenarios.one_job import on_embedded, on_slurm, submission_rate  # noqa: E402
from benchmarks.scenarios.packed import packed  # noqa: E402
from benchmarks.scenarios.ssh import over_ssh  # noqa: E402
from benchmarks.scenarios.start_up import start_up  # noqa: E402
from benchmarks.scenarios.submitit import drop_in  # noqa: E402

SCENARIOS = {
    "start-up": start_up,
    "slurm": on_slurm,
    "embedded": on_embedded,
    "submission": submission_rate,
    "deaths": deaths,
    "in-flight": in_flight,
    "map": map_on_slurm,
    "long-map": long_map,
    "graph": graph,
    "packed": packed,
    "ssh": over_ssh,
    "bridge": placed_by_slurm,
    "submitit": drop_in,
    "monitor": watched,
}
#: When rounds stop being added; what is under way still ends.
FULL_S, QUICK_S = 420, 90


def main() -> int:
    """Measure, print, and write the results; 1 if a scenario failed or, if strict, a target."""
    asked = _arguments()
    began = time.monotonic()
    facts = _facts(asked.quick)
    sections: list[Section] = []
    failed: list[str] = []
    with Ground(asked.quick, began + (QUICK_S if asked.quick else FULL_S)) as ground:
        for name in asked.only or SCENARIOS:
            start = time.monotonic()
            try:
                section = SCENARIOS[name](ground)
            except (PeerFailed, subprocess.SubprocessError) as error:
                # What else was measured is worth keeping; the exit code tells that this is not all.
                ground.skip(f"scenario {name} failed: {error}")
                failed.append(name)
                continue
            finally:
                ground.end_peers()
            section = dataclasses.replace(section, seconds=time.monotonic() - start)
            sections.append(section)
            print(report.plain(section), flush=True)
        facts.update(ground.versions)
        for number, reason in enumerate(ground.skipped, 1):
            facts[f"left out {number}"] = reason
    facts["load at the end"] = _load()
    _write(sections, facts, page=not (asked.only or asked.quick or failed))
    missed = [row.name for section in sections for row in section.rows if row.holds is False]
    took = f"{time.monotonic() - began:.0f} s"
    print(f"{took}; " + (f"targets missed: {'; '.join(missed)}" if missed else "all targets held"))
    if failed:
        print(f"not measured: {', '.join(failed)}")
    return 1 if failed or (missed and asked.strict) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The numbers, each measured beside its peer.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under two minutes")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), help="these scenarios alone")
    return parser.parse_args()


def _facts(quick: bool) -> dict[str, str]:
    git = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, timeout=30).stdout.strip()
    return {
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()) + (", quick" * quick),
        "slurm-sdk (ours)": f"{slurm.__version__} {commit}".strip(),
        "Python": platform.python_version(),
        "host": f"{os.cpu_count()} cores, Linux {platform.release()}",
        "load at the start": _load(),
    }


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _write(sections: list[Section], facts: dict[str, str], page: bool) -> None:
    results = REPOSITORY / ".cache" / "benchmarks" / "results.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(report.as_json(sections, facts), indent=1) + "\n")
    # Part of a run, or a quick one, must not take the place of the whole.
    if page:
        (REPOSITORY / "docs" / "benchmarks.md").write_text(report.markdown(sections, facts))


if __name__ == "__main__":
    sys.exit(main())
