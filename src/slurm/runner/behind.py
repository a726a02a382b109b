"""A call that began before a value it needs is there goes behind the job that will bring it."""

import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, TypeVar

from slurm import rundir
from slurm.api import retries
from slurm.api.agent_error import AgentError
from slurm.api.run_files import metadata
from slurm.runner.advance import PASSING, PATIENCE
from slurm.runner.arguments import UpstreamResult, Values
from slurm.runner.retry import agent_here
from slurm.runner.run import LACKING, Postponed, Refused

LOOK = "see whether the scheduler takes jobs from this node: slurm doctor"
T = TypeVar("T")
#: A call of a run: the run's path below the base directory, and the index.
Call = Tuple[str, int]


def postpone(run: str, who: rundir.Identity, lacking: UpstreamResult) -> None:
    """Submit this call again behind what it waits for, and end; or refuse it.

    It returns where the value may be there by now.
    """
    jobs = list(lacking.jobs) or bringers([lacking])[0]
    if jobs is None:
        return
    if not jobs:
        raise Refused("UpstreamFailed", str(lacking), LACKING) from lacking
    if who.rank == 0:
        move(run, who, set(jobs))
    raise Postponed


def move(run: str, who: rundir.Identity, behind: Set[str]) -> None:
    """Submit this job's part of a run again, behind other jobs."""
    agent, token = agent_here(), os.environ["SLURM_SDK_PART"]
    name = os.path.relpath(run, agent.base)
    refused = _patiently(lambda: retries.move(agent, name, token, who.index, sorted(behind)))
    if refused:
        raise Refused(
            "SubmitRefused",
            f"what it needs still runs, and a job behind that was refused: {refused}",
            "submit the run again when that is over",
        )


def _patiently(act: Callable[[], T]) -> T:
    """What the scheduler answers; it may be away, or have no room for another job, for a while."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except AgentError as error:
            if error.kind not in PASSING or time.monotonic() > deadline:
                why = "; ".join([str(error), *error.evidence])
                raise Refused("SchedulerUnreachable", why, error.hint or LOOK) from error
        time.sleep(2)


def may_come(base: str, lacking: UpstreamResult) -> bool:
    """Whether a job that is not over may bring the value; a run tells once for all its calls."""
    upstream = os.path.join(base, lacking.run)
    if upstream not in _returning:
        _returning[upstream] = bool(metadata(upstream).get("returns"))
    return bool(lacking.returned) or _returning[upstream]


_returning = {}  # type: Dict[str, bool]


def look(base: str, asked: Sequence[Call]) -> Dict[Call, Optional[List[str]]]:
    """The jobs that will bring the values of calls: [] where none will, None where it is there."""
    values = Values(base)
    found, lacking = {}, {}  # type: Dict[Call, Optional[List[str]]], Dict[Call, UpstreamResult]
    for call in asked:
        try:
            values.ready(*call)
            found[call] = None
        except UpstreamResult as error:
            lacking[call] = error
    if lacking:
        jobs = bringers(list(lacking.values()))
        found.update(dict(zip(lacking, jobs)))  # noqa: B905 - Python 3.8 has no strict=
    return found


def bringers(lacking: Sequence[UpstreamResult]) -> List[Optional[List[str]]]:
    """The jobs that bring what each lacks; []: none will. None: it may be there by now."""
    return _patiently(lambda: _bringers(agent_here(), lacking))


def _bringers(agent: Any, lacking: Sequence[UpstreamResult]) -> List[Optional[List[str]]]:
    wanted = [_calls(agent, one) if may_come(agent.base, one) else [] for one in lacking]
    runs = {}  # type: Dict[str, Set[int]]
    for run, index in {call for calls in wanted for call in calls}:
        runs.setdefault(run, set()).add(index)
    became = {run: retries.what_became_of(agent, run, indexes) for run, indexes in runs.items()}
    found = [_jobs([became[run][index] for run, index in calls]) for calls in wanted]
    if None in found:
        time.sleep(1)  # a value has appeared, or a part of a long map waits to be submitted
    return found


def _jobs(fates: Sequence[retries.Fate]) -> Optional[List[str]]:
    if not fates or any(became == "failed" for became, _ in fates):
        return []
    return [job for became, jobs in fates if became == "wait" for job in jobs] or None


def _calls(agent: Any, lacking: UpstreamResult) -> List[Call]:
    """The calls to ask about: what a workflow returned may still run when it has ended itself.

    One call of each part stands for all: the others are looked at when the part is over.
    """
    if not lacking.returned:
        return [(lacking.run, lacking.index)]
    about = {run: metadata(agent.path(run)) for run in {run for run, _ in lacking.returned}}
    parts = {}  # type: Dict[Tuple[str, str], int]
    for run, number in lacking.returned:
        parts.setdefault((run, retries.first_token(about[run], number)), number)
    return [(run, number) for (run, _), number in parts.items()]
