"""A plan goes out: its files and its jobs in one round trip, and the handles that come of it."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from slurm import errors, rundir
from slurm.api import run_files
from slurm.api.backend import RunExists
from slurm.cache import keys_file
from slurm.callbacks.following import follow, submitting, tell_child
from slurm.callbacks.travel import callbacks_file
from slurm.content.premises import encode_values
from slurm.followups import render_guard_script, render_next_script
from slurm.handles import make_jobs
from slurm.importing import imported_now
from slurm.inheritance import SECTION, describe
from slurm.job import Job
from slurm.journal import metadata_of
from slurm.model.ids import make_run_name
from slurm.packaging import pickling
from slurm.packaging.sdk import bring_sdk, sdk_place
from slurm.plan import Plan, options_set
from slurm.retry import policy_of
from slurm.rundir.stamps import encode_stamps

if TYPE_CHECKING:
    from slurm.cluster import Cluster

R = TypeVar("R")

#: How many names are tried for a run.
_NAMES = 5


def new_run_name(task: str) -> str:
    """A name for a run that begins now."""
    return make_run_name(task, time.localtime(), os.urandom(3).hex())


def send(
    cluster: Cluster,
    plan: Plan,
    arguments: rundir.Content,
    watch: bool = True,
    names: Sequence[str] = (),
) -> list[Job[Any]]:
    """Submit a plan in one round trip; one job for each of its calls."""
    refuse_on_import(plan.name)
    journal = cluster._journal
    for left in reversed(range(_NAMES)):
        if journal is not None:
            while journal.holds(plan.submission.relative):
                plan = plan.renamed(cluster._place(new_run_name(plan.name)))
            journal.note(names, plan.name, plan.submission.relative)
        try:
            with submitting(cluster, plan) as told:
                jobs = _submit(cluster, plan, arguments)
                told += jobs
            break
        except RunExists:
            if not left:
                raise
            # Names are drawn by lot: two clients may draw the same one in the same second.
            plan = plan.renamed(cluster._place(new_run_name(plan.name)))
    if journal is not None:
        journal.keep(plan.submission.relative, jobs)
        tell_child(cluster, journal, jobs)
    for job in jobs:
        job.options = plan.options
    if watch:
        follow(cluster, jobs)
        for job in jobs:
            job.watch()
    return jobs


def refuse_on_import(task: str) -> None:
    """Refuse what a module submits while it is imported to find a task: jobs would never end."""
    module = imported_now()
    process = sys.modules.get("multiprocessing.process")
    if not module and process is not None:
        # A child that multiprocessing has spawned imports the program that started it.
        child = getattr(process.current_process(), "_inheriting", False)
        module = "the program" if child else ""
    if module:
        raise errors.SubmittedOnImport(
            f"{module} submits {task} while it is being imported to find a task in it: every job "
            "would import it and submit again",
            hint='put the lines that submit under a guard:\nif __name__ == "__main__":\n'
            f"    with Cluster():\n        job = {task}(...)",
        )


def _submit(cluster: Cluster, plan: Plan, arguments: rundir.Content) -> list[Job[Any]]:
    submission = plan.submission
    metadata = {**plan.metadata(time.time()), **metadata_of(cluster._journal)}
    files = _files(cluster, plan, arguments, metadata)
    bring_sdk(cluster)
    cluster._watcher.start()
    submit = functools.partial(
        cluster.backend.submit_job,
        submission.relative,
        files,
        parts=len(plan.scripts),
        at_once=plan.cut.at_once if plan.cut else 1,
        env=_secret_values(plan.options),
        cwd=submission.workdir,
        options_set=options_set(plan.script),
    )
    try:
        ids = _delivering(cluster, plan, submit)
    except errors.SubmitLimit:
        # Even the first part was too much: its refusal teaches the limit.
        smaller = _smaller(cluster, plan)
        if smaller is None:
            raise
        return _submit(cluster, smaller, arguments)
    return make_jobs(cluster, submission.relative, metadata, dict(enumerate(ids)))


def _files(
    cluster: Cluster, plan: Plan, arguments: rundir.Content, metadata: dict[str, Any]
) -> dict[str, rundir.Content]:
    """What the run directory holds from the start."""
    submission = plan.submission
    files: dict[str, rundir.Content] = {
        **{rundir.script_name(n): text.encode() for n, text in enumerate(plan.scripts)},
        rundir.FUNCTION: plan.function.data,
        rundir.ARGUMENTS: arguments,
        rundir.METADATA: _json(metadata),
        rundir.ENVIRONMENT: _json(
            {**asdict(plan.environment), "needs": _needs(plan), SECTION: describe(cluster)}
        ),
    }
    for part in plan.cut.parts if plan.cut else ():
        files[rundir.begun_name(part.number)] = rundir.none_begun(part.size)
    policy = policy_of(submission)
    if policy is not None:
        files[rundir.RETRY] = _json(policy)
        files[rundir.GUARD] = render_guard_script(submission).encode()
    with pickling(cluster, plan.prepared):
        files.update(callbacks_file(cluster, plan.function.workflow))
    if plan.keys:
        files[rundir.CACHE_KEYS] = keys_file(plan.keys)
        if plan.premises.files:
            files[rundir.CACHE_FILES] = encode_stamps(dict(plan.premises.files))
        if plan.premises.values:
            files[rundir.CACHE_VALUES] = encode_values(plan.premises.values)
    if plan.arguments.shared:
        files[rundir.SHARED] = rundir.encode_arguments(list(plan.arguments.shared))
    if len(plan.scripts) > 1 or rundir.awaited(plan.script):
        files[rundir.NEXT] = render_next_script(submission).encode()
    return files


def _needs(plan: Plan) -> list[str]:
    """What must lie below the base directory: the SDK of this client, and the environment's."""
    kept = [n for n in plan.environment.needs if not n.startswith(f"{rundir.BASE_SDK}/")]
    return [sdk_place(), *kept]


def _delivering(cluster: Cluster, plan: Plan, submit: Callable[[], R]) -> R:
    """Submit; where the cluster lacks what the environment is made of, bring it and ask again."""
    try:
        return submit()
    except errors.NotDelivered as error:
        lost = sdk_place() in error.evidence
        if plan.prepared.deliver is None and not lost:
            raise
    if lost:
        bring_sdk(cluster, again=True)
    if plan.prepared.deliver is not None:
        plan.prepared.deliver(cluster)
    return submit()


def _smaller(cluster: Cluster, plan: Plan) -> Plan | None:
    """The same map in smaller parts, by the limits that were not asked for before."""
    if plan.cut is None:
        return None
    count = sum(part.size for part in plan.cut.parts)
    cut = cluster._cut(count, plan.submission.throttle is not None, ask=True)
    if cut == plan.cut:
        return None
    dependency = plan.submission.dependency
    if dependency is not None:
        # Slurm's aftercorr knows the numbers of one array; each element looks after its own.
        dependency = dependency.replace("aftercorr:", "afterany:")
    return replace(plan, cut=cut, submission=replace(plan.submission, dependency=dependency))


def _secret_values(options: dict[str, object]) -> dict[str, str]:
    names = options.get("secrets") or ()
    assert isinstance(names, Sequence)
    missing = [str(name) for name in names if name not in os.environ]
    if missing:
        raise errors.OptionError(
            f"secrets names {', '.join(missing)}, which this process's environment has not",
            hint=f"export {missing[0]}=... before you start Python",
        )
    return {str(name): os.environ[str(name)] for name in names}


def _json(value: Mapping[str, Any]) -> bytes:
    return run_files.encode_json(value, default=str)
