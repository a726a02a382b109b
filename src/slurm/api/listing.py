"""The agent's verbs that look over all runs: which there are, and which one a person means.

Called by the agent where the files are, so it keeps to Python 3.6.
"""

import contextlib
import os
import re
from typing import Any, Dict, List, Sequence, Tuple

from slurm import rundir
from slurm.api import elsewhere, folders, origin, run_files
from slurm.api import slurm_commands as commands
from slurm.api.agent_error import AgentError

#: The word for the newest run.
LAST = "last"
#: How many names are shown to whoever has to choose.
SHOWN = 5

#: A run's name ends in the time it was made and six digits: that is its order, too.
_NAME = re.compile(r"(.+)-([0-9]{8}-[0-9]{6})-[0-9a-f]{6}\Z")


def made_at(run: str) -> str:
    """When a run was made, as its name says: sorts by time; "" for another name."""
    found = _NAME.match(run)
    return found.group(2) if found else ""


def task_of(run: str) -> str:
    """The task in a run's name."""
    found = _NAME.match(os.path.basename(run))
    return found.group(1) if found else run


def run_names(base: str) -> List[str]:
    """The runs that lie in the base directory itself, newest first: one listing."""
    found = [(made_at(name), name) for name in folders.names(base)]
    return [name for at, name in sorted(found, reverse=True) if at]


def all_runs(base: str) -> List[str]:
    """All runs with a job id, those inside workflows too: the targets of the links in `.ids`."""
    folder = os.path.join(base, rundir.BASE_IDS)
    found = set()
    for name in folders.names(folder):
        with contextlib.suppress(OSError):
            target = os.readlink(os.path.join(folder, name))
            found.add(os.path.normpath(os.path.join(rundir.BASE_IDS, target)))
    return sorted(found, key=made_at, reverse=True)


def find_run(agent: Any, text: str) -> str:
    """The run of `last`, a name or the begin of one, a path or a job id, relative to the base.

    An id is the scheduler's: its queue is asked first, and no run of another scheduler answers.
    """
    if not origin.is_id(text):
        return find_named(agent.base, text, agent.top)
    path = _in_queue(agent, text) or _by_id(agent, text)
    return os.path.relpath(os.path.realpath(path), os.path.realpath(agent.base))


def find_named(base: str, text: str, top: str = "") -> str:
    """The run of `last`, a name or the begin of one, or a path; from `top` on, too."""
    places = [os.path.join(at, os.path.expanduser(text)) for at in (base, top or base)]
    path = next((p for p in places if os.path.isfile(os.path.join(p, rundir.METADATA))), "")
    path = path or os.path.join(base, _by_name(base, text))
    return os.path.relpath(os.path.realpath(path), os.path.realpath(base))


def _in_queue(agent: Any, text: str) -> str:
    """The run of a job that the scheduler knows by this id; "" where it does not know the id."""
    bare = text.partition(";")[0]
    if "." in bare:
        return ""  # a step is our own: the queue has the allocation only
    whole = re.split("[_+]", bare)[0]
    try:
        rows = agent.scheduler.status([whole])
    except AgentError:
        return ""  # it cannot be asked: the files say whose the id is
    rows = [row for row in rows if re.split("[_+]", row.job_id)[0] == whole]
    if not rows:
        return ""
    row = next((row for row in rows if row.job_id.partition(";")[0] == bare), rows[0])
    base, path = os.path.realpath(agent.top), os.path.realpath(str(row.work_dir))
    inside = path.startswith(base + os.sep)
    if inside and os.path.isfile(os.path.join(path, rundir.METADATA)):
        return path
    # Of an array that is asked for as a whole, the states of all its elements.
    states = [row.state] if row.job_id.partition(";")[0] == bare else {r.state for r in rows}
    gone = inside and not os.path.isdir(path)
    where = f"its run was removed from {agent.base}" if gone else f"no run of {agent.base}"
    raise AgentError(
        "not-found",
        f"job {bare} is {', '.join(sorted(states))} for the scheduler, and {where}",
        [f"{row.name} in {row.work_dir}"],
        "ask Slurm itself: squeue, sacct, scontrol show job"
        if gone
        else "name its run by its directory, or ask Slurm itself: squeue, scontrol show job",
    )


def _by_id(agent: Any, text: str) -> str:
    """The run of a job that the scheduler has forgotten, by the link that its submission left."""
    own = agent.identify()
    for job in (text.partition(";")[0], re.split("[_+.]", text)[0]):
        path = origin.link_to(agent.base, job, own)
        if os.path.isfile(os.path.join(path, rundir.METADATA)):
            return path
    other = os.path.join(agent.base, rundir.BASE_IDS, text.partition(";")[0])
    made = origin.of_run(os.path.realpath(other)) if os.path.islink(other) else None
    if made is None:
        text_of_none = f"no run with job id {text!r} in {agent.base}"
        raise AgentError("not-found", text_of_none, hint="slurm ls shows the runs that are there")
    run = os.path.relpath(os.path.realpath(other), os.path.realpath(agent.base))
    raise AgentError(
        "not-found",
        f"{own or 'this scheduler'} has no job {text}; the job {text} of {run} was {made}'s",
        hint=f"name the run instead of the id: {run}",
    )


def _by_name(base: str, text: str) -> str:
    import difflib  # slow to import, and seldom needed

    names = run_names(base)
    if text == LAST and names:
        # Names count in seconds; of several in one second the file's time tells.
        newest = [name for name in names if made_at(name) == made_at(names[0])]
        return max(newest, key=lambda name: _written(os.path.join(base, name, rundir.METADATA)))
    if not names:
        raise AgentError("not-found", f"no run {text!r}: there are no runs in {base} yet")
    fits = _fitting(names, text) or _fitting(all_runs(base), text)
    if len(fits) == 1:
        return fits[0]
    if fits:
        more = [f"... and {len(fits) - SHOWN} more"] if len(fits) > SHOWN else []
        raise AgentError(
            "ambiguous",
            f"{text!r} may be any of {len(fits)} runs in {base}",
            fits[:SHOWN] + more,
            "name more of it, or its job id; `last` is the newest of all",
        )
    close = difflib.get_close_matches(text, names[:2000], n=SHOWN, cutoff=0.5)
    tasks = difflib.get_close_matches(text, sorted(set(map(task_of, names))), n=2, cutoff=0.55)
    close = close or [next(n for n in names if task_of(n) == task) for task in tasks]
    hint = f"did you mean {close[0]}?" if close else "slurm ls shows the runs that are there"
    raise AgentError("not-found", f"no run {text!r} in {base}", close[1:], hint)


def _written(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _fitting(names: List[str], text: str) -> List[str]:
    """The runs whose own name begins so; a whole task's name is preferred to its begin."""
    if not text or text.startswith("."):
        return []
    exact = [name for name in names if os.path.basename(name) == text]
    whole = [name for name in names if task_of(name) == text]
    begins = [name for name in names if os.path.basename(name).startswith(text)]
    return exact or whole or begins


# ---- the list of runs ---------------------------------------------------------------------------

#: So much of the base's events is told in one answer; `more` says that there is more.
EVENTS_AT_ONCE = 4 << 20


def runs(agent: Any, after: str, sizes: Dict[str, int], limit: int) -> Dict[str, Any]:
    """The newest runs (0: all), what is new in the base's events, and what those newer than
    `after` are.

    One listing of the base: only of runs that the client has not seen, files are opened.
    """
    names = run_names(agent.base)
    shown = names[:limit] if limit else names
    events = []  # type: List[bytes]
    told = dict(sizes)
    room = EVENTS_AT_ONCE
    for name, data in rundir.grown(os.path.join(agent.base, rundir.BASE_EVENTS), sizes):
        data = data[: max(0, room)]
        data = data[: data.rfind(b"\n") + 1]
        room -= len(data)
        told[name] = sizes.get(name, 0) + len(data)
        events.append(data)
    briefs = {name: _brief(agent, name) for name in shown if made_at(name) >= after}
    return {
        "total": len(names),
        "names": shown,
        "briefs": {name: brief for name, brief in briefs.items() if brief},
        "events": events,
        "sizes": told,
        "more": room <= 0,
    }


def _brief(agent: Any, run: str) -> List[Any]:
    """A run in short: task, first job id, number of jobs, time of submission, its last part."""
    path = os.path.join(agent.base, run)
    metadata = run_files.metadata(path)
    if not metadata:
        return []
    job = run_files.read_text(os.path.join(path, rundir.id_name(0)))
    parts = metadata.get("parts") or []
    count = sum(part[2] for part in parts) if parts else 1
    kind = "workflow" if metadata.get("workflow") else "array" if parts else "job"
    kind = "packed" if metadata.get("pack") else kind
    return [metadata.get("task", run), job, count, metadata.get("submitted") or 0, kind]


def states(agent: Any, jobs: Sequence[Tuple[str, str, float]]) -> Dict[str, Dict[str, Any]]:
    """What the scheduler says about whole runs, each given as (run, job id, submitted).

    One question to the scheduler for all; accounting is asked for what it has forgotten.
    """
    found = {}  # type: Dict[str, Dict[str, Any]]
    paths = [("", agent.readable(run)) for run, _, _ in jobs]
    theirs, own = elsewhere.apart(agent, paths)
    by_path = {agent.readable(job[0]): job for job in jobs}
    for other, keys in theirs:
        found.update(elsewhere.states(other, [by_path[path] for _, path in keys]))
    if own:
        found.update(_own_states(agent, [by_path[path] for _, path in own]))
    return found


def _own_states(agent: Any, jobs: Sequence[Tuple[str, str, float]]) -> Dict[str, Dict[str, Any]]:
    wanted = {agent.readable(run): run for run, _, _ in jobs}
    found = {}  # type: Dict[str, Dict[str, Any]]
    rows = agent.scheduler.status([job.partition(";")[0] for _, job, _ in jobs])
    _count(found, wanted, rows)
    gone = [(run, job, since) for run, job, since in jobs if run not in found and job]
    if gone and hasattr(agent.scheduler, "accounting"):
        by_name = {commands.accounted_path(agent.readable(run)): run for run, _, _ in gone}
        ids = [job.partition(";")[0] for _, job, _ in gone]
        since = min(at for _, _, at in gone) - 86400
        try:
            rows = agent.scheduler.accounting(ids, since)
        except AgentError as error:
            found.update({run: dict(elsewhere.NOBODY, reason=error.message) for run, _, _ in gone})
            return found
        # A row that never ended is what the database kept of a job nobody has any more.
        _count(found, by_name, [row for row in rows if row.end is not None])
    return found


def _count(found: Dict[str, Dict[str, Any]], wanted: Dict[str, str], rows: Any) -> None:
    for row in rows:
        run = wanted.get(row.work_dir)
        if run is None or row.name.endswith(rundir.SMALL_JOBS):
            continue
        one = found.setdefault(run, {"states": {}, "reason": "", "nodes": "", "start": None})
        count = sum(1 for _ in commands.expand_rows([row]))
        one["states"][row.state] = one["states"].get(row.state, 0) + count
        one["reason"] = one["reason"] or row.reason
        one["nodes"] = one["nodes"] or row.nodes
        one["start"] = one["start"] or row.start


# ---- the queue of a scheduler that serves one user ----------------------------------------------


def own_queue(agent: Any) -> List[Dict[str, Any]]:
    """The jobs that have not ended, with the keys of Slurm's."""
    import getpass
    import time

    user, now = getpass.getuser(), time.time()
    return [
        {
            "job_id": row.job_id,
            "state": row.state,
            "user": user,
            "partition": "local",
            "cpus": None,
            "nodes": 1,
            "elapsed": int(now - row.start) if row.start else 0,
            "time_limit": None,
            "priority": None,
            "where": row.reason or row.nodes,
            "name": row.name,
        }
        for row in agent.scheduler.queue()
    ]


def waiting(agent: Any) -> List[List[str]]:
    """What waits, the first in line first: id, priority, user, reason, nodes and CPUs."""
    rows = [row for row in agent.scheduler.queue() if row.state == "PENDING"]
    return [[row.job_id, "", "", row.reason, "", ""] for row in rows]
