"""A call that began before a value it needs is there goes behind the job that will bring it."""

import json
import os
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from slurm import rundir
from slurm.api import retries
from slurm.runner.arguments import UpstreamResult
from slurm.runner.retry import agent_here


def go_behind(run: str, who: rundir.Identity, lacking: UpstreamResult) -> Optional[bool]:
    """Whether the call has to wait, and was submitted anew behind what it waits for.

    None: the value has appeared meanwhile. False: nothing will bring it any more.
    """
    base = os.environ.get("SLURM_SDK_BASE", os.path.dirname(run))
    if not lacking.returned and not _is_retried(os.path.join(base, lacking.run)):
        return False
    agent = agent_here()
    if lacking.returned:
        found = _jobs_returned(agent, lacking.returned)
    else:
        found = _jobs_retried(agent, lacking.run, lacking.index)
    if found is None:
        return None
    if found and who.rank == 0:
        token = os.environ["SLURM_SDK_PART"]
        retries.move(agent, os.path.relpath(run, agent.base), token, who.index, sorted(set(found)))
    return bool(found)


def _is_retried(upstream: str) -> bool:
    try:
        with open(os.path.join(upstream, rundir.METADATA)) as f:
            return bool(json.load(f).get("returns"))
    except (OSError, ValueError):
        return False


def _jobs_retried(agent: Any, upstream: str, index: int) -> Optional[List[str]]:
    """The jobs in which a failed upstream is tried again; None: it has its value now."""
    became, jobs = retries.what_became_of(agent, upstream, index)
    return None if became == "ready" else [] if became == "failed" else list(jobs)


def _jobs_returned(agent: Any, missing: Sequence[Tuple[str, int]]) -> Optional[List[str]]:
    """The open ones of the jobs that a workflow returned; None: a value has appeared meanwhile.

    A job that takes a workflow's value begins when the workflow has ended; what it returned may
    still run then.
    """
    # One call of each part stands for all: the others are looked at when the part is over.
    parts: Dict[Tuple[str, str], int] = {}
    for below, number in missing:
        parts.setdefault((below, retries.first_token(agent.path(below), number)), number)
    jobs: List[str] = []
    for (below, _), number in parts.items():
        became, ids = retries.what_became_of(agent, below, number)
        if became == "failed":
            return []
        jobs += ids if became == "wait" else []
    if not jobs:
        time.sleep(1)  # a value has appeared, or a part of a long map waits to be submitted
        return None
    return jobs
