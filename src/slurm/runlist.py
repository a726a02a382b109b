"""The list of runs: one listing of the base directory, joined with a cache on this machine.

The cache can be thrown away: it holds what the run directories and the base's events say already.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.api.listing import made_at
from slurm.errors import SlurmError
from slurm.model.states import parse_state
from slurm.packaging.tree import cache_folder

if TYPE_CHECKING:
    from slurm.api.looking import Looking

_FORMAT = 2


@dataclass(frozen=True)
class ListedRun:
    """One run in a list; times are epoch seconds."""

    run: str
    task: str
    #: `job`, `array`, `packed` or `workflow`.
    kind: str
    job_id: str
    jobs: int
    submitted: float
    #: How many of its jobs are in which state, as far as anybody knows.
    states: Mapping[str, int] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    nodes: str = ""

    @property
    def state(self) -> str:
        """The state of the whole: running while anything runs, else the worst that happened."""
        if len(self.states) == 1:
            return next(iter(self.states))
        found = {state: parse_state(state) for state, count in self.states.items() if count}
        for phase in ("active", "pending"):
            for state, known in found.items():
                if known.phase == phase:
                    ran = phase == "pending" and any(k.phase == "finished" for k in found.values())
                    return "RUNNING" if ran else state
        bad = sorted(state for state, known in found.items() if not known.succeeded)
        return bad[0] if bad else "COMPLETED" if found else "UNKNOWN"

    @property
    def over(self) -> bool:
        """Whether every job is known to have ended."""
        ended = sum(n for state, n in self.states.items() if parse_state(state).phase == "finished")
        return ended >= self.jobs

    @property
    def done(self) -> int:
        """How many of its jobs have ended well."""
        return sum(n for state, n in self.states.items() if parse_state(state).succeeded)


@dataclass
class _Known:
    """What the cache keeps of one run: what it is, and the newest end of each of its jobs."""

    brief: list[Any]
    #: Index -> [time, exit code].
    ends: dict[str, list[int]] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None
    #: The scheduler's last word on a run that is over.
    final: dict[str, int] | None = None

    @property
    def unsent(self) -> bool:
        """Whether it had no job when it was looked at."""
        return bool(self.brief) and not self.brief[1]


class RunList:
    """The runs of one base directory, as this machine remembers them."""

    def __init__(self, target: str) -> None:
        name = hashlib.sha256(target.encode()).hexdigest()[:16]
        self._path = Path(cache_folder("runs"), name)
        self._sizes: dict[str, int] = {}
        self._runs: dict[str, _Known] = {}
        self._whole = self._changed = False
        #: The newest time of a run that was ever listed.
        self._upto = ""
        #: Why the scheduler was not asked; "" where it was.
        self.problem = ""
        self._load()

    def look(self, backend: Looking, limit: int) -> tuple[list[ListedRun], int]:
        """The newest runs (0: all of them) with their states, and how many there are in all."""
        seen = set(self._runs)
        answer = self._ask(backend, limit)
        if self._whole and any(self._came_back(name, seen) for name in answer["names"]):
            # What was forgotten of it is read again.
            self._runs, self._sizes, self._whole = {}, {}, False
            answer = self._ask(backend, limit)
        self._upto = max([self._upto, *map(made_at, answer["names"])])
        if not limit:
            kept = {name: self._runs[name] for name in answer["names"] if name in self._runs}
            self._changed = self._changed or not self._whole or len(kept) < len(self._runs)
            self._runs, self._whole = kept, True
        listed = [self._listed(n) for n in answer["names"] if n in self._runs]
        listed.sort(key=lambda run: -run.submitted)
        found = self._with_states(backend, [run for run in listed if self._runs[run.run].brief])
        self._save()
        return found, answer["total"]

    def _ask(self, backend: Looking, limit: int) -> Mapping[str, Any]:
        """Take in what is new; what is listed and not known yet is asked for."""
        known = [] if not limit and not self._whole else list(self._runs)
        after = max((made_at(name) for name in known if self._runs[name].brief), default="")
        # A run that was seen in the middle of its submission has an id by now.
        unsent = [made_at(name) for name in known if self._runs[name].unsent]
        day = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() - 86400))
        after = min([after, *(at for at in unsent if at > day)])
        answer = backend.runs(after, self._sizes, limit)
        self._take(answer)
        while answer["more"]:
            answer = backend.runs(after, self._sizes, limit)
            self._take(answer)
        missing = [n for n in answer["names"] if n not in self._runs or not self._runs[n].brief]
        if missing and after:
            answer = backend.runs(min(map(made_at, missing)), self._sizes, limit)
            self._take(answer)
        return answer

    def _came_back(self, name: str, seen: set[str]) -> bool:
        """Whether a run was away from the directory for a while: its ends were read before."""
        known = self._runs.get(name)
        return name not in seen and made_at(name) < self._upto and bool(known and known.brief)

    def _take(self, answer: Mapping[str, Any]) -> None:
        for name, brief in answer["briefs"].items():
            known = self._runs.setdefault(name, _Known([]))
            self._changed = self._changed or known.brief != brief
            known.brief = brief
        for data in answer["events"]:
            for event in rundir.decode_events(data)[0]:
                self._take_event(event)
        self._sizes = dict(answer["sizes"])

    def _take_event(self, event: rundir.Event) -> None:
        known = self._runs.get(event.fields.get("run", ""))
        if known is None:
            # Of a run that is not listed (yet), or lies inside of another.
            name = event.fields.get("run", "")
            if "/" in name:
                return
            known = self._runs.setdefault(name, _Known([]))
        time, elapsed = event.number("time"), event.number("elapsed")
        before = known.ends.get(event.fields.get("index", "0"))
        if before is None or time >= before[0]:
            known.ends[event.fields.get("index", "0")] = [time, event.number("code", 1)]
            known.final = None
        self._changed = True
        known.ended = max(known.ended or 0, time)
        known.started = min(known.started or time, time - elapsed)

    def _listed(self, name: str) -> ListedRun:
        known = self._runs[name]
        task, job, count, submitted, kind = known.brief or [name, "", 1, 0.0, "job"]
        states = known.final
        if states is None:
            bad = sum(1 for end in known.ends.values() if end[1])
            good = len(known.ends) - bad
            states = {k: n for k, n in (("COMPLETED", good), ("FAILED", bad)) if n}
        return ListedRun(
            name, task, kind, job, count, submitted, states, known.started, known.ended
        )

    def _with_states(self, backend: Looking, listed: Sequence[ListedRun]) -> list[ListedRun]:
        """The runs with the scheduler's word on those that are open, or ended badly just now."""
        unsure = [run for run in listed if self._runs[run.run].final is None and not _good(run)]
        if not unsure:
            return list(listed)
        try:
            asked = [(run.run, run.job_id, run.submitted) for run in unsure]
            told = backend.run_states(asked)
        except SlurmError as error:
            self.problem = error.message
            return list(listed)  # what the files say is shown
        wanted = {run.run for run in unsure}
        return [
            self._merged(run, told.get(run.run)) if run.run in wanted else run for run in listed
        ]

    def _merged(self, run: ListedRun, told: Mapping[str, Any] | None) -> ListedRun:
        known = self._runs[run.run]
        if told is None:
            if run.over:
                known.final, self._changed = dict(run.states), True
            return run
        if told.get("unanswered"):
            self.problem = told["reason"]
            return replace(run, reason="" if run.over else told["reason"])
        states = dict(told["states"])
        # A scheduler that has forgotten some of an array's jobs still leaves us their exit events.
        missing = run.jobs - sum(states.values())
        good = max(0, min(missing, run.done))
        bad = max(0, missing - good) if run.over else 0
        for state, count in (("COMPLETED", good), ("FAILED", bad)):
            if count:
                states[state] = states.get(state, 0) + count
        waits = any(parse_state(state).phase == "pending" for state in states)
        found = replace(
            run,
            states=states,
            reason=told["reason"] if waits else "",
            nodes=told["nodes"],
            started=run.started or told["start"],
        )
        if found.over:
            known.final, self._changed = states, True
        return found

    def _load(self) -> None:
        try:
            data = json.loads(self._path.read_text())
            if data["format"] != _FORMAT:
                return
            self._sizes, self._whole = data["sizes"], data["whole"]
            self._runs = {name: _Known(*values) for name, values in data["runs"].items()}
            self._upto = str(data["upto"])
        except (OSError, ValueError, KeyError, TypeError):
            self._sizes, self._runs, self._whole = {}, {}, False

    def _save(self) -> None:
        if not self._changed:
            return
        runs = {n: [k.brief, k.ends, k.started, k.ended, k.final] for n, k in self._runs.items()}
        data = {"format": _FORMAT, "sizes": self._sizes, "whole": self._whole, "runs": runs}
        data["upto"] = self._upto
        try:
            rundir.make_private_folder(str(self._path.parent))
            rundir.write_atomically(str(self._path), json.dumps(data).encode(), sync=False)
        except OSError:
            return  # without a cache the next list takes a little longer


def _good(run: ListedRun) -> bool:
    return run.done >= run.jobs
