"""Caching: a call that was made before, with the same code and arguments, is not made again."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from slurm import errors, rundir
from slurm.callbacks.following import tell_completed
from slurm.content import Digest
from slurm.job import Job
from slurm.metadata import read_metadata
from slurm.model.parts import Part
from slurm.outcome import Verdict
from slurm.packaging.arguments import Call, binder
from slurm.packaging.function import context_parameter
from slurm.packaging.none import python_version

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.plan import Plan
    from slurm.rendering import Environment
    from slurm.submission import Submitter

log = logging.getLogger("slurm")


def keys_of(
    function: Callable[..., Any],
    cache: object,
    environment: Environment,
    calls: Sequence[Call],
    common: Mapping[str, Any],
) -> list[str | None]:
    """The cache key of each call; None where the arguments have no content that can be compared.

    `cache` is the task's option: True, a text that stands for the code, or a function of the
    arguments whose text stands for all.
    """
    code = code_key(function, cache, environment)
    bind = binder(function, context_parameter(function), common)
    keys: list[str | None] = []
    for call in calls:
        if callable(cache):
            given = cache(*call.args, **{**common, **call.kwargs})
            keys.append(_joined(code, _own_text(given, function)))
            continue
        try:
            keys.append(_joined(code, Digest().of(bind(call))))
        except Exception as error:  # noqa: BLE001 - reads objects by code of any class
            log.warning(
                "a call of %s is not cached: its arguments have no comparable content (%s: %s)",
                target_of(function),
                type(error).__name__,
                error,
            )
            keys.append(None)
    return keys


def code_key(function: Callable[..., Any], cache: object, environment: Environment) -> str:
    """What the keys of all calls of a task have in common."""
    if callable(cache) or isinstance(cache, str):
        text = cache if isinstance(cache, str) else ""
        return _joined(target_of(function), _script(function), text)
    return _joined(
        target_of(function),
        Digest().of_function(function),
        _python(environment.python),
        # What a way of packaging says of the code that it ships: a wheel, a snapshot, an image.
        environment.digest,
    )


def call_keys(
    submitter: Submitter[..., Any], calls: Sequence[Call], common: Mapping[str, Any]
) -> list[str | None]:
    """The keys of calls that a submitter makes; none where its task is not cached."""
    cache = submitter.options.get("cache")
    if not cache:
        return [None] * len(calls)
    environment = submitter.prepare().environment
    return keys_of(submitter.task.unwrapped, cache, environment, calls, common)


def submit_cached(
    submitter: Submitter[..., Any],
    calls: Sequence[Call],
    common: Mapping[str, Any],
    submit: Callable[[Sequence[Call]], Plan],
    names: Sequence[str] = (),
    watch: bool = True,
) -> list[Job[Any]]:
    """The jobs of calls, in order: finished ones for known calls, new ones for the others.

    `submit` makes the plan of those that have to be made; `names` are theirs in a workflow.
    """
    keys = call_keys(submitter, calls, common)
    hits = look_up(submitter.cluster, keys)
    missing = [position for position in range(len(calls)) if position not in hits]
    if missing or not calls:
        plan = replace(submit([calls[p] for p in missing]), keys=tuple(keys[p] for p in missing))
        own = [names[position] for position in missing] if names else []
        for position, job in zip(missing, submitter.send(plan, watch, own), strict=True):
            job.cache_key = keys[position]
            hits[position] = job
    return [hits[position] for position in range(len(calls))]


class Found(NamedTuple):
    """A value that was computed before: its key, the run and the record it lies in."""

    key: str
    run: str
    record: rundir.Record
    metadata: dict[str, Any]


def find(cluster: Cluster, keys: Sequence[str | None]) -> dict[int, Found]:
    """Those of the values that are stored, by position; one round trip."""
    wanted = sorted({key for key in keys if key is not None})
    if not wanted:
        return {}
    found, metadata = cluster.backend.cache_lookup(wanted)
    known = {run: read_metadata(data) for run, data in metadata.items()}
    values = {}
    for position, key in enumerate(keys):
        if key is not None and key in found:
            run, data = found[key]
            record = rundir.decode_records(data)[0][0]
            values[position] = Found(key, run, record, known[run])
    return values


def look_up(cluster: Cluster, keys: Sequence[str | None]) -> dict[int, Job[Any]]:
    """The finished jobs of those calls whose values are stored, by position."""
    found = find(cluster, keys)
    return {position: finished(cluster, one) for position, one in found.items()}


def keys_file(keys: Sequence[str | None]) -> bytes:
    """The keys of a run's calls, for its runner: one line of the same length each."""
    return "".join(f"{key or '-' * rundir.KEY_LENGTH}\n" for key in keys).encode()


def finished(cluster: Cluster, found: Found) -> Job[Any]:
    """The job of a call whose value was there before."""
    key, run, record, metadata = found
    parts = [Part(*part) for part in metadata.get("parts") or ()]
    pack = metadata.get("pack")
    element = record.index // int(pack[0]) if pack else record.index
    holds = (p for p in parts if p.offset <= element < p.offset + p.size)
    job: Job[Any] = Job(
        cluster,
        run=run,
        job_id=None,
        name=str(metadata.get("task", run)),
        options=dict(metadata.get("options", {})),
        submitted=float(metadata.get("submitted", 0.0)),
        ranks=int(metadata.get("ranks", 1)),
        index=element,
        part=next(holds, None),
    )
    job.assign(record.job)  # the job that worked on it; in a packed map together with others
    job.index = record.index
    job.cached, job.cache_key = True, key
    job.evidence.records.append(record)
    job.settle(Verdict.VALUE)
    tell_completed(job)
    return job


def target_of(function: Callable[..., Any]) -> str:
    """The module and name of a function, as runs call it."""
    module = getattr(function, "__module__", None)
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _script(function: Callable[..., Any]) -> str:
    """Whose `__main__` a function is of: every script has one."""
    code: Any = getattr(function, "__code__", None)
    own = code is not None and getattr(function, "__module__", None) == "__main__"
    return os.path.abspath(code.co_filename) if own else ""


def _python(python: str) -> str:
    here = sys.version_info[:2]
    found = here if python == sys.executable or "/" not in python else python_version(python)
    return python if found is None else "{}.{}".format(*found)


def _own_text(given: object, function: Callable[..., Any]) -> str:
    if isinstance(given, str) and given:
        return given
    raise errors.OptionError(
        f"cache= of {target_of(function)} returned {given!r}; a key is text that is not empty",
        hint="return text made of what the result depends on: lambda path: path",
    )


def _joined(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[: rundir.KEY_LENGTH]
