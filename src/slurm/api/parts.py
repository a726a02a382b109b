"""The parts of a run: its directory is made, and each part submitted exactly once, whoever dies.

Called by the agent where the scheduler is, so it keeps to Python 3.6.
"""

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Optional, Sequence

from slurm import rundir
from slurm.api import dependency, one_job, origin, retries, run_files, whole
from slurm.api.agent_error import AgentError
from slurm.api.run_files import bare, part_ids
from slurm.model.ids import expand_array_spec


def submit(
    agent: Any,
    run: str,
    files: Dict[str, bytes],
    parts: int,
    at_once: int,
    env: Dict[str, str],
    cwd: str,
    options_set: Sequence[str],
) -> List[str]:
    """Make the run directory and submit its parts: exactly once each, whoever dies when.

    The intent is written before sbatch and the id after it. A job that was accepted although
    its id got lost is found by `find_job`; a second job for the same part ends by the claim.
    Of a long map only the first parts may go out now; a small job submits what follows.
    """
    path = agent.path(run)
    make_run(agent, path, files)
    plan = {"parts": parts, "at_once": at_once, "cwd": cwd, "options_set": list(options_set)}
    ids = []  # type: List[str]
    try:
        if rundir.NEXT in files or rundir.RETRY in files:
            run_files.write(os.path.join(path, rundir.PARTS), json.dumps(plan).encode())
        waits = _fill_in_ids(agent, path, parts)
        for part in range(min(parts, at_once) if waits is None else 0):
            ids.append(_submit_part(agent, path, part, plan, env))
    except AgentError as error:
        _clear_up(agent, path, ids, error)
    if len(ids) < parts:
        after = ids[0] if waits is None else waits
        _submit_pump(agent, path, len(ids), after, plan, env)
    return ids


def _clear_up(agent: Any, path: str, ids: List[str], error: AgentError) -> None:
    """Leave nothing of a submission that failed; behind the limit of jobs, parts may wait."""
    if not ids:
        if error.kind in ("refused", "limit", "missing", "unshared", "rundir"):
            remove(path)
        raise error
    if error.kind != "limit":
        agent.scheduler.cancel(ids)
        raise error


def advance(agent: Any, run: str, turn: Optional[int] = None) -> Optional[str]:
    """Submit the next part of a long map.

    Called by the small job that waited for the `turn` of a part, and by clients that see that
    nothing of the map is left in the queue. They may do it at once: one of them submits the part,
    and the small job for what follows. A client leaves no other small job in the queue.
    """
    path = agent.path(run)
    plan = run_files.plan(path)
    known = part_ids(path)
    part = _next_part(path, plan, known)
    if part is None:
        return None
    waits = _fill_in_ids(agent, path, plan["parts"])
    if waits is not None:
        if turn is not None:
            _submit_pump(agent, path, part, waits, plan, {})
        return None
    if run_files.is_gone(path, part):
        return None  # it waits for calls that were never submitted
    job = None
    if turn not in known:
        with one_job.turn(agent, path, str(part)) as ours:
            job = _submit_part(agent, path, part, plan, {}) if ours else None
        known = part_ids(path)
    following = _next_part(path, plan, known)
    if following is None:
        return job
    followed = os.path.exists(os.path.join(path, rundir.pump_name(following)))
    if job or not followed:
        first = known.get(following - plan["at_once"]) or known[max(known)]
        _submit_pump(agent, path, following, first, plan, {})
    return job


def _next_part(path: str, plan: Dict[str, Any], known: Dict[int, str]) -> Optional[int]:
    """The first part that is to be submitted; None where all are, or were cancelled."""
    left = (n for n in range(plan["parts"]) if n not in known)
    return next((n for n in left if not run_files.is_gone(path, n)), None)


def find_or_submit(
    agent: Any, run: str, part: int, plan: Dict[str, Any], env: Dict[str, str]
) -> str:
    """The job of a part: the one that an earlier attempt may have submitted, or a new one."""
    path = agent.path(run)
    intended = os.path.exists(os.path.join(path, rundir.intent_name(part)))
    job = find_job(agent, run, part) if intended else None
    return job or _submit_part(agent, path, part, plan, env)


def find_job(agent: Any, run: str, part: int, keep: bool = True) -> Optional[str]:
    """The job of a part, also when the answer to its submission got lost."""
    path = agent.readable(run)
    job = run_files.read_text(os.path.join(path, rundir.id_name(part)))
    if not job:
        job = one_job.find_lost(agent, path, part)
        if job and keep and agent.trusted(path) is None:
            one_job.remember(agent, path, part, job)
    return job or None


def _submit_part(
    agent: Any, path: str, part: int, plan: Dict[str, Any], env: Dict[str, str]
) -> str:
    script = rundir.script_name(part)
    if part:
        known = part_ids(path)
        previous = bare(known[max(n for n in known if n < part)])
        full = os.path.join(path, script)
        run_files.fill_in(full, {rundir.PREVIOUS: previous}, full)
    intent = os.path.join(path, rundir.intent_name(part))
    run_files.write(intent, str(time.time()).encode())
    try:
        job = one_job.submit(agent, path, script, plan, env)
    except AgentError as error:
        # Where no answer came in time it may have been accepted.
        run = os.path.relpath(path, agent.base)
        found = find_job(agent, run, part) if error.kind == "timeout" else None
        if not found:
            raise
        job = found
    one_job.remember(agent, path, part, job)
    _cancel_gone(agent, path, part, job)
    retries.guard(agent, path, str(part), job, plan, env)
    return job


def _cancel_gone(agent: Any, path: str, part: int, job: str) -> None:
    """Cancel those elements of a part that were cancelled before it was submitted.

    They go out nevertheless, so that the scheduler itself knows their end, and so do the jobs
    that wait for them.
    """
    calls = run_files.gone(path, part)[0]
    if calls:
        whole = retries.part_of(path, str(part))._replace(job=job)
        agent.scheduler.cancel([whole.element(index) for index in sorted(calls)])


def _submit_pump(
    agent: Any, path: str, part: int, after: str, plan: Dict[str, Any], env: Dict[str, str]
) -> None:
    """Submit the small job that submits `part` when `after` is over."""
    words = {rundir.PREVIOUS: bare(after), rundir.TOKEN: str(part)}
    one_job.submit_small(agent, path, rundir.NEXT, rundir.pump_name(part), words, plan, env)


def _fill_in_ids(agent: Any, path: str, parts: int) -> Optional[str]:
    """Fill in the ids of upstream maps; returns a job to wait for while some have none yet.

    Where calls of such a map were cancelled before they were submitted, what needs them all to
    succeed is cancelled, too.
    """
    for part in range(parts):
        script = os.path.join(path, rundir.script_name(part))
        text = before = run_files.read_script(script)
        for run, calls in rundir.awaited(text):
            upstream, token = agent.path(run), rundir.ids_token(run, calls)
            found = run_files.ids_of(upstream, expand_array_spec(calls))
            if found is None:
                return _last_job(agent, upstream)
            if not found.whole and dependency.needs_success(text, token):
                run_files.cancel_unsent(path, "*", "DependencyNeverSatisfied")
                _tell_end(agent, path)
                return None
            text = dependency.fill_in(text, token, found.ids)
        if text != before:
            run_files.write_script(script, text)
    return None


def _tell_end(agent: Any, path: str) -> None:
    """Let clients look at a run whose jobs will never be submitted."""
    fields = {"run": os.path.relpath(path, agent.base), "phase": "start", "code": 1, "elapsed": 0}
    who = rundir.Identity("0", 0, 0, 0)
    line = rundir.format_event("exit", who, **dict(fields, time=int(time.time())))
    name = "{}-{}".format(rundir.host_token(), time.strftime("%Y%m%d"))
    with contextlib.suppress(OSError):  # they look by themselves, only later
        place = os.path.join(agent.base, rundir.BASE_EVENTS, name)
        rundir.append(place, line.encode() + b"\n", sync=False)


def _last_job(agent: Any, path: str) -> str:
    """The newest job of a run, or of what it waits for itself while it has none."""
    ids = part_ids(path)
    if ids:
        return ids[max(ids)]
    script = run_files.read_script(os.path.join(path, rundir.SCRIPT))
    above = rundir.awaited(script)
    return _last_job(agent, agent.path(above[0][0])) if above else dependency.last_job(script)


# ---- the run directory --------------------------------------------------------------------------


def make_run(agent: Any, path: str, files: Dict[str, bytes]) -> None:
    """Make a run directory with these files, if the base has what its environment is made of."""
    needs = json.loads(files.get(rundir.ENVIRONMENT, b"{}").decode()).get("needs", ())
    missing = [name for name in needs if not whole.is_whole(os.path.join(agent.base, name))]
    for name in needs:
        with contextlib.suppress(OSError):
            os.utime(os.path.join(agent.base, name))  # `slurm gc` sees that it is in use
    if missing:
        # The client brings it and asks again: so nobody has to ask beforehand.
        raise AgentError("needs", f"{agent.base} does not have {missing[0]}", missing)
    run_files.check_base(agent.base)
    try:
        rundir.make_run_folder(os.path.dirname(path))
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            raise AgentError("exists", f"there is a run {path} already") from None
        if agent.group is not None:
            rundir.share_folder(path, agent.group)
        for name in rundir.FOLDERS:
            rundir.make_run_folder(os.path.join(path, name))
        for name, content in files.items():
            if name != rundir.METADATA:
                rundir.write_new(os.path.join(path, name), content)
        # Last, and whole or not there: a run is what has metadata.
        if rundir.METADATA in files:
            metadata = origin.marked(agent.scheduler, files[rundir.METADATA])
            rundir.write_atomically(os.path.join(path, rundir.METADATA), metadata, sync=False)
    except OSError as error:
        remove(path)
        text = f"{path} cannot be written: {error.strerror}"
        raise AgentError("rundir", text) from error


def remove(path: str) -> None:
    """Remove a directory that will not be used; what cannot be removed does no harm."""
    import shutil  # slow to import, and seldom needed

    shutil.rmtree(path, ignore_errors=True)
