"""The agent's verbs about a workflow and the runs below it; called by the agent, on Python 3.6."""

import contextlib
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

from slurm import rundir
from slurm.api import elsewhere, folders, retries, run_files
from slurm.api.parts import find_or_submit, remove
from slurm.api.run_files import metadata, part_ids
from slurm.api.slurm_commands import expand_rows


def resume(
    agent: Any, run: str, files: Dict[str, bytes], parts: int, at_once: int, env: Any, *rest: Any
) -> List[Tuple[int, str]]:
    """Go on with a submission that its sender may not have survived; the ids of its parts.

    It is given what `submit` was. What was accepted is found by id, claim or directory. Where not
    even the intent was written, nothing was submitted: the run is made anew.
    """
    path = agent.path(run)
    if _began(path):
        return _go_on(agent, run, env)
    remove(path)
    return list(enumerate(agent.submit(run, files, parts, at_once, env, *rest)))


def _began(path: str) -> bool:
    """Whether a submission may have been made out of this run directory."""
    names = (rundir.intent_name(0), rundir.id_name(0), rundir.claim_name(0), rundir.pump_name(0))
    return any(os.path.lexists(os.path.join(path, name)) for name in names)


def recall(agent: Any, run: str) -> Optional[List[Tuple[int, str]]]:
    """Go on with a submission of a workflow that died, out of its run directory; ids by part.

    None: nothing was submitted, and nothing will be. Should the sender live after all (on a node
    that only seems lost), the claim that is made here ends whatever it submits.
    """
    path = agent.path(run)
    claim = os.path.join(path, rundir.claim_name(0))
    if not _began(path):
        rundir.make_private_folder(os.path.dirname(claim))
        with contextlib.suppress(FileExistsError):  # a job has claimed it meanwhile
            os.symlink(rundir.NOBODY, claim)
    if os.path.islink(claim) and os.readlink(claim) == rundir.NOBODY:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(path, rundir.METADATA))  # it is no run to be shown
        return None
    return _go_on(agent, run, {})


def _go_on(agent: Any, run: str, env: Dict[str, str]) -> List[Tuple[int, str]]:
    path = agent.path(run)
    known = part_ids(path)
    if os.path.exists(os.path.join(path, rundir.pump_name(0))):
        return sorted(known.items())  # a small job submits it when its turn has come
    plan = run_files.plan(path)
    for part in range(min(plan["parts"], plan["at_once"])):
        if part not in known and not run_files.is_gone(path, part):
            known[part] = find_or_submit(agent, run, part, plan, env)
    return sorted(known.items())


def stop(agent: Any, run: str, index: int) -> None:
    """Let a workflow submit nothing more."""
    path = os.path.join(agent.path(run), rundir.stop_name(index))
    # Where the run is gone, so is what its workflow would submit by.
    with contextlib.suppress(FileNotFoundError):
        rundir.write_atomically(path, b"", sync=False)


def cancel_below(agent: Any, run: str, index: int) -> int:
    """Cancel all jobs whose run lies below a workflow's; how many they were.

    The queue itself is asked, so that a job whose id got lost is found as well.
    """
    top = os.path.join(agent.path(run), rundir.TASKS) + os.sep
    scheduler = elsewhere.agent_of(agent, agent.path(run)).scheduler
    rows = expand_rows(scheduler.status([]))
    ours = [row for row in rows if row.end is None and row.work_dir.startswith(top)]
    parents = {}  # type: Dict[str, bool]
    ids = []  # type: List[str]
    for row in ours:
        child = os.path.join(top, *row.work_dir[len(top) :].split(os.sep)[:2])
        if child not in parents:
            parents[child] = _index_of_parent(child) in (None, index)
        if parents[child]:
            ids.append(row.job_id)
            if os.path.exists(os.path.join(row.work_dir, rundir.PARTS)):
                run_files.cancel_unsent(row.work_dir, "*")
    if ids:
        scheduler.cancel(ids)
    return len(ids)


def _index_of_parent(path: str) -> Optional[int]:
    parent = metadata(path).get("parent")
    return int(parent[1]) if parent else None


def describe(agent: Any, runs: Sequence[str]) -> List[Dict[str, Any]]:
    """Each of these runs and all that lie below them: metadata, ids and events, as they are."""
    found = []  # type: List[Dict[str, Any]]
    for run in runs:
        path = agent.readable(run)
        about = metadata(path)
        if not about:
            continue
        events = [data for _, data in rundir.grown(os.path.join(path, rundir.EVENTS), {}, ".txt")]
        ids = sorted(part_ids(path).items())
        again = retries.progress(path) if about.get("returns") else None
        found.append({"run": run, "metadata": about, "ids": ids, "events": events, "again": again})
        found += describe(agent, _below(agent.base, path))
    return found


def _below(base: str, path: str) -> List[str]:
    tasks = os.path.join(path, rundir.TASKS)
    runs = []  # type: List[str]
    for task in folders.names(tasks):
        for run in folders.names(os.path.join(tasks, task)):
            if os.path.islink(os.path.join(tasks, task, run)):
                continue  # none of ours: it could lead back, and so on without end
            runs.append(os.path.relpath(os.path.join(tasks, task, run), base))
    return runs
