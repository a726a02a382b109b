"""The agent's verbs about what runs used, what old runs take, and the machine itself.

Called by the agent where the files are, so it keeps to Python 3.6.
"""

import contextlib
import os
import shutil
import sys
import time
from typing import Any, Dict, List, Sequence, Tuple

from slurm import rundir
from slurm.api import elsewhere, folders, listing, shared_base
from slurm.api.agent_error import AgentError
from slurm.api.run_files import metadata

#: Programs that run containers.
CONTAINERS = ("apptainer", "singularity", "podman", "docker", "enroot", "charliecloud")


def usage(agent: Any, run: str, jobs: Sequence[str], since: float) -> Dict[str, Any]:
    """What the processes of a run said they used, and what accounting says of its jobs."""
    path = agent.readable(run)
    found = []  # type: List[List[Any]]
    try:
        for record in rundir.all_records(path, agent.trusted(path)):
            if "usage" in record.header:
                who = [record.job, record.index, record.rank, record.attempt]
                found.append([*who, record.header["usage"]])
    except (rundir.Untrusted, OSError) as error:
        return {"records": [], "events": [], "accounting": [], "problem": str(error)}
    events = [data for _, data in rundir.grown(os.path.join(path, rundir.EVENTS), {}, ".txt")]
    rows = []  # type: List[Dict[str, Any]]
    with contextlib.suppress(AgentError):  # another scheduler's run, which cannot be asked here
        scheduler = elsewhere.agent_of(agent, path).scheduler
        if jobs and hasattr(scheduler, "used"):
            rows = scheduler.used(list(jobs), since)
    return {"records": found, "events": events, "accounting": rows, "problem": None}


# ---- old runs -----------------------------------------------------------------------------------


def sizes(agent: Any, runs: Sequence[str]) -> Dict[str, int]:
    """The bytes that runs take on the disk."""
    return {run: folders.size(agent.readable(run)) for run in runs}


def remove(agent: Any, runs: Sequence[str]) -> List[Tuple[str, str]]:
    """Remove runs with all in them; (run, why not) for those that stay.

    A run with a job that has not ended stays, and one that an open run reads its arguments from.
    """
    kept = []  # type: List[Tuple[str, str]]
    gone = set()
    live = _live(agent)
    theirs, _ = elsewhere.apart(agent, [("", agent.path(run)) for run in runs])
    for other, keys in theirs:
        # What another scheduler may still run is not ours to judge where that one is not here.
        if isinstance(other, elsewhere.Away):
            away = {os.path.relpath(path, agent.base) for _, path in keys}
            kept += [(run, other.words) for run in runs if run in away]
            runs = [run for run in runs if run not in away]
        else:
            live += _live(other)
    needed = _needed(live)
    for run in runs:
        path = agent.path(run)
        if not os.path.isfile(os.path.join(path, rundir.METADATA)):
            kept.append((run, "is no run"))
        elif any(one == path or one.startswith(path + os.sep) for one in live):
            kept.append((run, "a job of it has not ended"))
        elif run in needed:
            kept.append((run, "an open run needs its result"))
        else:
            problem = _remove(path)
            if problem:
                kept.append((run, problem))
            else:
                gone.add(run)
    _forget_ids(agent.base, gone)
    return kept


def _live(agent: Any) -> List[str]:
    """The run directories of jobs that have not ended."""
    return [row.work_dir for row in agent.scheduler.status([]) if row.end is None]


def _needed(live: Sequence[str]) -> List[str]:
    """The runs whose results jobs that have not ended will read."""
    found = []  # type: List[str]
    for path in set(live):
        found += [str(run).partition("/")[0] for run in metadata(path).get("upstream") or ()]
    return found


def _remove(path: str) -> str:
    """Take a run away: under another name first, so that nobody sees half of one."""
    hidden = os.path.join(os.path.dirname(path), ".gone-" + os.path.basename(path))
    try:
        os.rename(path, hidden)
        shutil.rmtree(hidden)
    except OSError as error:
        return f"cannot be removed: {error.strerror}"
    return ""


def _forget_ids(base: str, gone: Any) -> None:
    """Remove the links of job ids to runs that are gone."""
    folder = os.path.join(base, rundir.BASE_IDS)
    if not gone or not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            target = os.readlink(os.path.join(folder, name)).replace("../", "", 1)
            if target.partition("/")[0] in gone:
                os.unlink(os.path.join(folder, name))


# ---- the machine --------------------------------------------------------------------------------


def check(agent: Any) -> Dict[str, Any]:
    """What a doctor wants to know about the place where the scheduler is."""
    space = shutil.disk_usage(_existing(agent.base))
    return {
        "time": time.time(),
        "host": os.uname().nodename,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "base": agent.base,
        "shared": agent.top if agent.group is not None else "",
        "closed": agent.group is not None and shared_base.is_closed(agent.base),
        "group": "" if agent.group is None else rundir.group_name(os.stat(agent.top)),
        "writable": os.access(_existing(agent.base), os.W_OK),
        "free": space.free,
        "runs": len(listing.run_names(agent.base)),
        "containers": [name for name in CONTAINERS if shutil.which(name)],
        "calls": calls_today(),
        "origin": str(agent.identify() or ""),
        "version": agent.scheduler.version() if hasattr(agent.scheduler, "version") else "",
    }


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _calls_file(day: str) -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "slurm-sdk", "calls-" + day)


def count_call() -> None:
    """One more command of Slurm's was run today; the size of a file is the count."""
    path = _calls_file(time.strftime("%Y%m%d"))
    with contextlib.suppress(OSError):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except FileNotFoundError:
            rundir.make_private_folder(os.path.dirname(path))
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, b".")
        finally:
            os.close(fd)


def calls_today() -> int:
    """How many commands of Slurm's this user's programs ran today, here and on the nodes."""
    try:
        return os.stat(_calls_file(time.strftime("%Y%m%d"))).st_size
    except OSError:
        return 0
