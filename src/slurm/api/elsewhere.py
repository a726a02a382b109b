"""Runs of another scheduler in the same base directory: that one is asked about them, or nobody.

Called by the agent, so it keeps to Python 3.6.
"""

import os
from typing import Any, Dict, List, Sequence, Tuple

from slurm.api import origin
from slurm.api import slurm_commands as commands
from slurm.api.agent_error import AgentError

Key = Tuple[str, str]

#: The answer about a run that nobody can be asked about at the moment.
NOBODY = {
    "states": {},
    "reason": "",
    "nodes": "",
    "start": None,
    "unanswered": True,
}  # type: Dict[str, Any]


class Away:
    """A scheduler that cannot be asked from here."""

    def __init__(self, words: str, hint: str) -> None:
        self.words = words
        self.hint = hint

    def error(self) -> AgentError:
        """The error for a caller that needs this scheduler."""
        return AgentError("unreachable", self.words, hint=self.hint)


def agent_of(agent: Any, path: str) -> Any:
    """The agent of the scheduler that made a run; refused where that one does not answer here."""
    found = _find(agent, path, {})
    if isinstance(found, Away):
        raise found.error()
    return found


def apart(agent: Any, keys: Sequence[Key]) -> Tuple[List[Tuple[Any, List[Key]]], List[Key]]:
    """Jobs, each given as (id, path): those of other schedulers by whom to ask, and our own."""
    known = {}  # type: Dict[Any, Any]
    theirs = {}  # type: Dict[int, Tuple[Any, List[Key]]]
    own = []  # type: List[Key]
    for key in keys:
        found = _find(agent, key[1], known)
        if found is agent:
            own.append(key)
        else:
            theirs.setdefault(id(found), (found, []))[1].append(key)
    return list(theirs.values()), own


def status(other: Any, asked: Sequence[Tuple[str, str, float]], keys: Sequence[Key]) -> Any:
    """What another scheduler says about jobs; where it cannot be asked, that nobody answers."""
    if isinstance(other, Away):
        return {key: commands.unanswered(key[0], key[1], other.words) for key in keys}
    try:
        rows = [commands.JobStatus(*row) for row in other.status(asked)]
    except AgentError as error:
        return {key: commands.unanswered(key[0], key[1], error.message) for key in keys}
    return {(row.job_id, row.work_dir): row for row in rows}


def states(other: Any, jobs: Sequence[Tuple[str, str, float]]) -> Dict[str, Dict[str, Any]]:
    """The same for whole runs, each given as (run, job id, submitted)."""
    try:
        if isinstance(other, Away):
            raise other.error()
        return dict(other.run_states(jobs))
    except AgentError as error:
        return {run: dict(NOBODY, reason=error.message) for run, _, _ in jobs}


def request(agent: Any, other: Any, verb: str, keys: Sequence[Key], *args: Any) -> List[str]:
    """Send another scheduler a request about its own jobs."""
    if isinstance(other, Away):
        raise other.error()
    jobs = [(job, os.path.relpath(path, agent.base)) for job, path in keys]
    return list(other.request(verb, jobs, *args))


def _find(agent: Any, path: str, known: Dict[Any, Any]) -> Any:
    """The agent for a run, or `Away`; `known` keeps what was found for each scheduler."""
    made = origin.of_run(path)
    if made is None:
        return agent
    if made not in known:
        known[made] = _look(agent, made)
    return known[made]


def _look(agent: Any, made: origin.Origin) -> Any:
    own = agent.identify()
    if own is None or made.is_same(own):
        return agent
    for scheduler in agent.others(made) if agent.others is not None else ():
        found = origin.of(scheduler)
        if found is not None and made.is_same(found):
            return agent.over(scheduler)
    return Away(
        f"it belongs to {made}, which cannot be asked here; this is {own}",
        "look from a machine where that one answers, or name it: slurm --cluster NAME",
    )
