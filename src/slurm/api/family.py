"""The agent's verbs about a workflow and the runs below it; called by the agent, on Python 3.6."""

import contextlib
import json
import os
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from slurm import rundir
from slurm.api import slurm_commands as commands


def resume(
    agent: Any,
    run: str,
    files: Dict[str, bytes],
    parts: int,
    at_once: int,
    env: Dict[str, str],
    cwd: str,
    options_set: Sequence[str],
) -> List[Tuple[int, str]]:
    """Go on with a submission that its sender may not have survived; the ids of its parts.

    What was accepted is found by id, claim or directory. Where not even the intent was written,
    nothing was submitted: the run is made anew.
    """
    path = agent._path(run)
    if not _began(path):
        import shutil  # slow to import, and seldom needed

        shutil.rmtree(path, ignore_errors=True)
        sent = agent.submit(run, files, parts, at_once, env, cwd, options_set)
        return list(enumerate(sent))
    known = agent._part_ids(path)
    if os.path.exists(os.path.join(path, rundir.pump_name(0))):
        return sorted(known.items())  # a small job submits it when its turn has come
    plan = {"parts": parts, "at_once": at_once, "cwd": cwd, "options_set": list(options_set)}
    for part in range(min(parts, at_once)):
        if part not in known:
            job = agent.find_job(run, part) if agent._intended(path, part) else None
            known[part] = job or agent._submit_part(path, part, plan, env)
    return sorted(known.items())


def _began(path: str) -> bool:
    """Whether a submission may have been made out of this run directory."""
    names = (rundir.intent_name(0), rundir.id_name(0), rundir.claim_name(0), rundir.pump_name(0))
    return any(os.path.lexists(os.path.join(path, name)) for name in names)


def recall(agent: Any, run: str) -> Optional[List[Tuple[int, str]]]:
    """Go on with a submission of a workflow that died, out of its run directory; ids by part.

    None: nothing was submitted, and nothing will be. Should the sender live after all (on a node
    that only seems lost), the claim that is made here ends whatever it submits.
    """
    path = agent._path(run)
    claim = os.path.join(path, rundir.claim_name(0))
    if not _began(path):
        rundir.make_private_folder(os.path.dirname(claim))
        with contextlib.suppress(FileExistsError):  # a job has claimed it meanwhile
            os.symlink(rundir.NOBODY, claim)
    if os.path.islink(claim) and os.readlink(claim) == rundir.NOBODY:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(path, rundir.METADATA))  # it is no run to be shown
        return None
    known = agent._part_ids(path)
    if os.path.exists(os.path.join(path, rundir.pump_name(0))):
        return sorted(known.items())  # a small job submits it when its turn has come
    plan = _plan(path)
    for part in range(min(plan["parts"], plan["at_once"])):
        if part not in known:
            job = agent.find_job(run, part) if agent._intended(path, part) else None
            known[part] = job or agent._submit_part(path, part, plan, {})
    return sorted(known.items())


def _plan(path: str) -> Dict[str, Any]:
    """How the parts of a run are submitted."""
    try:
        with open(os.path.join(path, rundir.PARTS)) as f:
            return dict(json.load(f))
    except OSError:
        pass  # one job is no plan of its own
    with open(os.path.join(path, rundir.SCRIPT)) as f:
        flags = re.findall("^#SBATCH --([a-z-]+)", f.read(), re.MULTILINE)
    cwd = str(_metadata(path).get("workdir") or path)
    return {"parts": 1, "at_once": 1, "cwd": cwd, "options_set": flags}


def stop(agent: Any, run: str, index: int) -> None:
    """Let a workflow submit nothing more."""
    path = os.path.join(agent._path(run), rundir.stop_name(index))
    rundir.write_atomically(path, b"", sync=False)


def cancel_below(agent: Any, run: str, index: int) -> int:
    """Cancel all jobs whose run lies below a workflow's; how many they were.

    The queue itself is asked, so that a job whose id got lost is found as well.
    """
    top = os.path.join(agent._path(run), rundir.TASKS) + os.sep
    rows = commands.expand_rows(agent.scheduler.status([]))
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
                rundir.write_atomically(os.path.join(row.work_dir, rundir.STOPPED), b"", sync=False)
    if ids:
        agent.scheduler.cancel(ids)
    return len(ids)


def _index_of_parent(path: str) -> Optional[int]:
    parent = _metadata(path).get("parent")
    return int(parent[1]) if parent else None


def _metadata(path: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(path, rundir.METADATA)) as f:
            found = json.load(f)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def describe(agent: Any, runs: Sequence[str]) -> List[Dict[str, Any]]:
    """Each of these runs and all that lie below them: metadata, ids and events, as they are."""
    found = []  # type: List[Dict[str, Any]]
    for run in runs:
        path = agent._path(run)
        metadata = _metadata(path)
        if not metadata:
            continue
        events = [data for _, data in rundir.grown(os.path.join(path, rundir.EVENTS), {}, ".txt")]
        ids = sorted(agent._part_ids(path).items())
        found.append({"run": run, "metadata": metadata, "ids": ids, "events": events})
        found += describe(agent, _below(agent.base, path))
    return found


def _below(base: str, path: str) -> List[str]:
    tasks = os.path.join(path, rundir.TASKS)
    runs = []  # type: List[str]
    for task in sorted(_names(tasks)):
        for run in sorted(_names(os.path.join(tasks, task))):
            runs.append(os.path.relpath(os.path.join(tasks, task, run), base))
    return runs


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
