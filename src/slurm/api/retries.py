"""Retries on the cluster: judges a part of a run that is over and submits what is due again.

The guard of a part (a small job that begins when the part has failed), a client and a job that
waits for the part may all do this, at the same time: each step is made by whoever is first. The
agent calls it, so it keeps to Python 3.6.

A retry is a new part of the same run. Its name is that of the part before it and a letter: `r` with
the same resources, `o` with more memory, `t` with more time. A job that has to wait for the retry
of another one goes behind it as a part with `m` and its index.
"""

import json
import os
import re
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from slurm import rundir
from slurm.api import folders, one_job, run_files
from slurm.api.agent_error import AgentError
from slurm.api.retry_rules import (
    Part,
    clock,
    failure_of,
    grown,
    letter_for,
    letter_in,
    retries_of,
    script_of,
)
from slurm.api.run_files import metadata, read_json, read_text
from slurm.model.states import JobState, parse_state
from slurm.runner import batches

# ---- the files ----------------------------------------------------------------------------------


def read_policy(path: str) -> Optional[Dict[str, Any]]:
    """The rules of a run and the resources it began with; None where nothing is retried."""
    return read_json(os.path.join(path, rundir.RETRY))


def progress(path: str) -> Dict[str, Any]:
    """What was judged and submitted again in a run, for the client."""
    found = {"judged": {}, "ids": {}, "refused": {}}  # type: Dict[str, Dict[str, Any]]
    for name in folders.names(os.path.join(path, rundir.SUBMIT)):
        token, _, kind = name.partition(".")
        full = os.path.join(path, rundir.SUBMIT, name)
        if kind == "judged":
            found["judged"][token] = read_json(full) or {}
        elif kind == "refused":
            found["refused"][token] = read_text(full)
        elif kind == "id" and not token.isdigit():
            found["ids"][token] = read_text(full)
    return found


def _file(path: str, token: str, kind: str) -> str:
    return os.path.join(path, rundir.SUBMIT, f"{token}.{kind}")


# ---- what a part is -----------------------------------------------------------------------------


def part_of(path: str, token: str) -> Part:
    """A part by its name."""
    base = re.match("[0-9]+", token).group()  # type: ignore[union-attr]
    parts = metadata(path).get("parts") or []
    array = bool(parts)
    offset, size = (parts[int(base)][1], parts[int(base)][2]) if array else (0, 1)
    indexes = list(range(offset, offset + size))
    moved = re.search("m([0-9]+)[rot]*$", token)
    if moved:
        indexes = [int(moved.group(1))]
    elif token != base:
        judged = read_json(_file(path, token[:-1], "judged")) or {}
        indexes = judged.get("groups", {}).get(token[-1], [])
    return Part(token, read_text(_file(path, token, "id")), base, offset, array, indexes)


def first_token(about: Dict[str, Any], index: int) -> str:
    """The name of the first part that a call was in, by the metadata of its run."""
    parts = about.get("parts") or []
    for number, offset, size in parts:
        if offset <= index < offset + size:
            return str(number)
    return "0"


# ---- judging ------------------------------------------------------------------------------------


def judge(agent: Any, run: str, token: str, calm: float = 0.0) -> Optional[Dict[str, Any]]:
    """Judge a part that is over and submit what is due; None while it is not over.

    The judgement says for each letter which calls go into a new part, and why each call failed.
    Where the scheduler may yet put a job back into the queue, it is asked again after `calm`.
    """
    path = agent.path(run)
    policy = read_policy(path)
    if policy is None:
        return {"groups": {}, "why": {}}
    judged = read_json(_file(path, token, "judged"))
    if judged is None:
        judged = _judgement(agent, path, part_of(path, token), policy, calm)
        if judged is None:
            return None
        if not run_files.write_first(_file(path, token, "judged"), json.dumps(judged).encode()):
            judged = read_json(_file(path, token, "judged")) or judged
    if any(name not in os.environ for name in policy.get("secrets", ())):
        return judged  # the guard has them: their values travel from environment to environment
    for letter in sorted(judged["groups"]):
        _submit_again(agent, path, token + letter, judged["groups"][letter], policy)
    return judged


def _judgement(
    agent: Any, path: str, part: Part, policy: Dict[str, Any], calm: float
) -> Optional[Dict[str, Any]]:
    values, troubles, exits = _outcomes(path, part)
    failed = [i for i in part.indexes if i not in values and not _moved(agent, path, part, i)]
    asked = [i for i in failed if not (i in troubles and i in exits)]
    states = _states(agent, path, part, asked)
    if states and calm and any(parse_state(state).may_requeue for state, _ in states.values()):
        time.sleep(calm)
        states = _states(agent, path, part, asked)
    if states is None:
        return None
    groups, why = {}, {}  # type: Dict[str, List[int]], Dict[str, Dict[str, str]]
    for index in failed:
        state, code = states.get(index, ("", None))
        if index in exits:
            code = exits[index].number("code")
        failure = failure_of(troubles.get(index), state, code, exits.get(index))
        letter = letter_for(policy["rules"], failure, retries_of(part.token))
        if os.path.exists(os.path.join(path, rundir.no_retry_name(index))):
            letter = None
        if letter is not None:
            groups.setdefault(letter, []).append(index)
        note = {"kind": failure.kind, "text": failure.text[:500], "job": part.element(index)}
        why[str(index)] = note
    return {"groups": groups, "why": why}


def _moved(agent: Any, path: str, part: Part, index: int) -> bool:
    """Whether a call went on behind what it waits for; perhaps its mover died before it said so."""
    name = moved_name(part.token, index)
    if not _has_id(path, name) and os.path.exists(_file(path, name, "intent")):
        lost = one_job.find_lost(agent, path, name)
        if lost:
            one_job.remember(agent, path, name, lost)
    return _has_id(path, name)


def _outcomes(path: str, part: Part) -> Tuple[Any, Any, Any]:
    """Which calls of a part have a value, and the troubles and last exit events of the others."""
    bare = run_files.bare(part.job)
    values, troubles, exits = set(), {}, {}  # type: Any, Any, Any
    latest = []  # type: List[Tuple[int, str, rundir.Event]]
    for record in _records(path):
        good = record.kind == rundir.VALUE and not record.header.get("oom")
        if good and record.rank == 0:
            values.add(record.index)
        elif record.job == bare and not good:
            before = troubles.get(record.index)
            newer = before is None or record.attempt > before.attempt
            if newer or (before.header.get("stopped") and not record.header.get("stopped")):
                troubles[record.index] = record
    for _, data in rundir.grown(os.path.join(path, rundir.EVENTS), {}, ".txt"):
        for event in rundir.decode_events(data)[0]:
            if event.job == bare and event.kind in ("begin", "exit"):
                latest.append((event.number("attempt"), event.kind, event))
    # An attempt that has begun after the last exit is not over.
    for _, kind, event in sorted(latest, key=lambda found: found[:2]):
        exits.pop(event.number("index"), None)
        if kind == "exit":
            exits[event.number("index")] = event
    # With several ranks one may have a value while another failed.
    return {i for i in values if i not in troubles}, troubles, exits


def _records(path: str) -> Iterator[rundir.Record]:
    """What was recorded about calls; of a packed map about its jobs, not about their items."""
    packed = bool(metadata(path).get("pack"))
    for record in rundir.all_records(path):
        if not packed:
            yield record
        elif record.kind == batches.PACK:
            yield record._replace(kind=str(record.header.get("outcome")))


def _states(
    agent: Any, path: str, part: Part, indexes: Sequence[int]
) -> Optional[Dict[int, Tuple[str, Optional[int]]]]:
    """The last states of calls, by index; None while one of them is not over."""
    found = _found_states(agent, path, part, indexes)
    if any(state.phase != "finished" for state, _ in found.values()):
        return None
    return {index: (state.value, code) for index, (state, code) in found.items()}


def _found_states(
    agent: Any, path: str, part: Part, indexes: Sequence[int]
) -> Dict[int, Tuple[JobState, Optional[int]]]:
    """The states of those calls that the scheduler knows, by index."""
    if not indexes:
        return {}
    run = os.path.relpath(path, agent.base)
    since = float(metadata(path).get("submitted", 0.0))
    names = {part.element(index): index for index in indexes}
    found = {}  # type: Dict[int, Tuple[JobState, Optional[int]]]
    for row in agent.status([(name, run, since) for name in names]):
        state = parse_state(row[1])
        if row[0] in names and state is not JobState.UNKNOWN:
            found[names[row[0]]] = (state, row[4])
    return found


# ---- submitting ---------------------------------------------------------------------------------


def guard(agent: Any, path: str, token: str, job: str, plan: Dict[str, Any], env: Any) -> None:
    """Submit the small job that judges a part when it has failed; nothing where nothing retries."""
    if os.path.exists(os.path.join(path, rundir.GUARD)):
        words = {rundir.PREVIOUS: run_files.bare(job), rundir.TOKEN: token}
        script = f"{rundir.SUBMIT}/{token}.guard.sh"
        one_job.submit_small(agent, path, rundir.GUARD, script, words, plan, env)


def _submit_again(
    agent: Any, path: str, token: str, indexes: Sequence[int], policy: Dict[str, Any]
) -> None:
    part = part_of(path, token)
    wait = policy["rules"]["backoff"] * 2 ** (retries_of(token) - 1)
    flags = {"begin": f"now+{int(wait)}" if wait else None, "dependency": None}  # type: Any
    flags["kill-on-invalid-dep"] = None
    more = grown(policy["rules"], token, policy["first"])
    if "mem" in more:
        flags[policy["first"]["mem_flag"]] = f"{more['mem']}M"
    if "time" in more:
        flags["time"] = clock(more["time"])
    _submit_part(agent, path, part._replace(indexes=list(indexes)), flags)


def move(agent: Any, run: str, token: str, index: int, behind: Sequence[str]) -> str:
    """Submit a call again, as a part behind other jobs that bring what it needs.

    Gives what the scheduler said where it refused the part.
    """
    path = agent.path(run)
    flags = {"dependency": "afterany:" + ":".join(behind), "begin": None}  # type: Any
    part = part_of(path, moved_name(token, index))
    _submit_part(agent, path, part, flags)
    return read_text(_file(path, part.token, "refused"))


def _submit_part(agent: Any, path: str, part: Part, flags: Dict[str, Any]) -> None:
    """Submit a part exactly once, also when several processes try."""
    with one_job.turn(agent, path, part.token) as ours:
        if ours:
            _submit_ours(agent, path, part, flags)


def _submit_ours(agent: Any, path: str, part: Part, flags: Dict[str, Any]) -> None:
    token = part.token
    first = run_files.read_script(os.path.join(path, rundir.script_name(int(part.first))))
    name = f"{rundir.SUBMIT}/{token}.sh"
    run_files.write_script(os.path.join(path, name), script_of(first, part, flags))
    if part.array:
        begun = rundir.none_begun(1 + max(part.indexes) - part.offset)
        rundir.write_atomically(os.path.join(path, rundir.begun_name(token)), begun, sync=False)
    plan = read_json(os.path.join(path, rundir.PARTS)) or {"cwd": path, "options_set": []}
    try:
        job = one_job.submit(agent, path, name, plan, {})
    except AgentError as error:
        if error.kind != "refused":
            raise
        words = "; ".join([str(error), *error.evidence])
        rundir.write_atomically(_file(path, token, "refused"), words.encode(), sync=False)
        return
    one_job.remember(agent, path, token, job)
    guard(agent, path, token, job, plan, {})


# ---- for jobs that wait -------------------------------------------------------------------------

#: Whether a call has a value ("ready"), failed ("failed") or goes on ("wait"), and in which jobs.
Fate = Tuple[str, List[str]]


def what_became_of(agent: Any, run: str, indexes: Iterable[int]) -> Dict[int, Fate]:
    """The fates of calls of a run, by index; one that goes on may have no job yet."""
    about = metadata(agent.path(run))
    # An item of a packed map shares the fate of its job.
    size = int(about["pack"][0]) if about.get("pack") else 1
    fates, parts = {}, {}  # type: Dict[int, Fate], Dict[str, List[int]]
    for number in sorted({index // size for index in indexes}):
        parts.setdefault(first_token(about, number), []).append(number)
    while parts:
        token, numbers = parts.popitem()
        later = _fates_in(agent, run, token, numbers, fates)
        for number, following in later.items():
            parts.setdefault(following, []).append(number)
    return {index: fates[index // size] for index in indexes}


def _fates_in(
    agent: Any, run: str, token: str, indexes: Sequence[int], fates: Dict[int, Fate]
) -> Dict[int, str]:
    """Note the fates of calls of a part; gives the parts in which the others of them went on."""
    path = agent.path(run)
    part = part_of(path, token)
    values = _outcomes(path, part)[0]
    fates.update({index: ("ready", []) for index in indexes if index in values})
    left = [index for index in indexes if index not in values]
    later = {i: moved_name(token, i) for i in left if _has_id(path, moved_name(token, i))}
    left = [index for index in left if index not in later]
    if not part.job:
        gone = run_files.gone(path, int(part.first))[0]
        fates.update({index: ("failed" if index in gone else "wait", []) for index in left})
        return later
    judged = judge(agent, run, token) if left else None
    waits = ("wait", [run_files.bare(part.job)])  # type: Fate
    if judged is None:
        fates.update(dict.fromkeys(left, waits))
        return later
    letters = {index: letter_in(judged, index) for index in left}
    again = {i: token + letter for i, letter in letters.items() if letter is not None}
    later.update({i: following for i, following in again.items() if _has_id(path, following)})
    left = [index for index in left if index not in later]
    states = {} if read_policy(path) is not None else _found_states(agent, path, part, left)
    for index in left:
        if index in again and not os.path.exists(_file(path, again[index], "refused")):
            fates[index] = ("wait", [])  # a process with the secrets of the run submits it
        else:
            over = index not in states or states[index][0].phase == "finished"
            fates[index] = ("failed", []) if over else waits
    return later


def moved_name(token: str, index: int) -> str:
    """The name of the part in which a call of another one goes on, behind what it waits for."""
    return f"{token}m{index}"


def _has_id(path: str, token: str) -> bool:
    return os.path.exists(_file(path, token, "id"))
