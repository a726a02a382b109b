"""Runs calls of an earlier run again: the same function and arguments, perhaps other options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm import rundir, sending
from slurm.array import ArrayJob
from slurm.errors import UsageError
from slurm.handles import make_array
from slurm.metadata import read_metadata
from slurm.model.again import Retry
from slurm.model.options import merge, normalize
from slurm.model.packs import plan_packs
from slurm.packaging import Prepared
from slurm.packaging.arguments import ShippedArguments
from slurm.packaging.capture import adopt, deliver_again
from slurm.packaging.function import ShippedFunction
from slurm.packaging.inherit import read_environment
from slurm.packaging.sdk import sdk_hash
from slurm.plan import Plan
from slurm.recall import once
from slurm.rendering import Environment, Submission

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.submission import Code


def resubmit(
    cluster: Cluster,
    run: str,
    indexes: Sequence[int],
    options: Mapping[str, Any],
    pack: int | None = None,
    single: bool = False,
    code: Code | None = None,
) -> ArrayJob[Any]:
    """Submit these calls of a run again, as an array of their own; `single`: one call as one job.

    They run the code of that run, or `code`.
    """
    metadata = read_metadata(cluster.backend.read_own(run, rundir.METADATA))
    given = normalize(options, where="retry_failed")
    merged = merge({**metadata.get("options", {}), **_policy(metadata)}, given)
    blobs = rundir.split_arguments(_whole(cluster, run, rundir.ARGUMENTS))
    shared = _whole(cluster, run, rundir.SHARED)
    chosen = [blobs[index] for index in indexes]
    name = str(metadata.get("task", run))
    _refuse_foreign_upstream(run, metadata)
    packing, count, throttle = plan_packs(pack, len(chosen), merged, _throttle(merged))
    prepared, function = code or _code_of(cluster, run, metadata)
    place = cluster._place(sending.new_run_name(name))
    submission = Submission(
        run=f"{cluster.base}/{place}",
        base=cluster.base,
        name=name,
        sdk=f"{cluster.base}/{rundir.BASE_SDK}/{sdk_hash()}",
        workdir=_workdir(cluster, run, metadata),
        environment=prepared.environment,
        options=merged,
        throttle=throttle if isinstance(throttle, int) else None,
        pack=packing,
        workflow=bool(metadata.get("workflow")),
        group=cluster._trusted_group,
    )
    arguments = ShippedArguments(
        tuple(chosen), (), tuple(rundir.split_arguments(shared)) if shared else ()
    )
    cut = None if single else cluster._cut(count, submission.throttle is not None)
    returns = bool(metadata.get("returns"))
    plan = Plan(name, submission, function, arguments, cut, (), prepared, returns)
    jobs = once(
        cluster,
        function.target,
        lambda: (*arguments.blobs, *arguments.shared),
        lambda names: sending.send(cluster, plan, rundir.encode_arguments(chosen), names=names),
    )
    return make_array(cluster, jobs[0].run, name, jobs)


def _workdir(cluster: Cluster, run: str, metadata: Mapping[str, Any]) -> str:
    """Where the calls ran before; a colleague's directory that is closed to this user is left."""
    found = str(metadata.get("workdir") or cluster.base)
    here = cluster.backend.kind != "ssh"
    if _is_colleagues(run) and here and not os.access(found, os.X_OK):
        return os.getcwd()
    return found


def _whole(cluster: Cluster, run: str, name: str) -> bytes:
    return cluster.backend.read_own(run, name)


def _code_of(
    cluster: Cluster, run: str, metadata: Mapping[str, Any]
) -> tuple[Prepared, ShippedFunction]:
    """The environment and the function of a run, with what brings its captured code."""
    environment = read_environment(cluster.backend.read_own(run, rundir.ENVIRONMENT))
    data = _whole(cluster, run, rundir.FUNCTION)
    captured = environment.captured
    deliver = deliver_again(captured) if captured else None
    if captured and _is_colleagues(run):
        environment, data, deliver = _adopted(cluster, run, environment, data)
    by, target, why = metadata["by"], metadata["target"], f"as in {run}"
    function = ShippedFunction(by, target, why, data, bool(metadata.get("workflow")))
    return Prepared(environment, deliver=deliver), function


def _adopted(
    cluster: Cluster, run: str, environment: Environment, data: bytes
) -> tuple[Environment, bytes, Callable[[Cluster], None]]:
    """Environment and function of a colleague's run, over a copy of its code in this base."""
    captured = environment.captured
    # Jobs run nothing out of another's base: what is read through the gate is copied.
    theirs = f"../{run.split('/')[1]}/{rundir.BASE_SNAPSHOTS}/{os.path.basename(captured)}"
    own, deliver = adopt(cluster, cluster.backend.read_own(theirs, rundir.CODE), theirs)
    header, pickled = rundir.decode_function(data, run)
    data = rundir.encode_function({**header, "captured": own}, pickled)
    name = f"{rundir.BASE_SNAPSHOTS}/{os.path.basename(own)}"
    return replace(environment, captured=own, needs=(name, f"{name}/{rundir.CODE}")), data, deliver


def _is_colleagues(run: str) -> bool:
    """Whether a run, given from the base, lies in another user's folder of the group's."""
    return run.startswith("../")


def _refuse_foreign_upstream(run: str, metadata: Mapping[str, Any]) -> None:
    """Arguments that are results of another's runs are named from that one's base."""
    upstream = metadata.get("upstream") or ()
    if _is_colleagues(run) and upstream:
        raise UsageError(
            f"{run} cannot be run again here: its arguments are results of other runs of its "
            f"owner ({', '.join(map(str, upstream[:3]))})",
            hint="attach to those and make the call with their results",
        )


def _throttle(options: Mapping[str, object]) -> int | None:
    given = options.get("array_throttle")
    return given if isinstance(given, int) else None


def _policy(metadata: Mapping[str, Any]) -> dict[str, object]:
    """How calls were retried; the options in the metadata only name it."""
    rules = (metadata.get("retry") or {}).get("given")
    return {"retry": Retry(**rules) if rules else None}
