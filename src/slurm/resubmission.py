"""Runs calls of an earlier run again: the same function and arguments, perhaps other options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slurm import rundir, sending
from slurm.array import ArrayJob
from slurm.handles import make_array
from slurm.metadata import read_metadata
from slurm.model.again import Retry
from slurm.model.options import merge, normalize
from slurm.model.packs import plan_packs
from slurm.packaging import Prepared
from slurm.packaging.arguments import ShippedArguments
from slurm.packaging.capture import deliver_again
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
    packing, count, throttle = plan_packs(pack, len(chosen), merged, _throttle(merged))
    place = cluster._place(sending.new_run_name(name))
    submission = Submission(
        run=f"{cluster.base}/{place}",
        base=cluster.base,
        name=name,
        sdk=f"{cluster.base}/{rundir.BASE_SDK}/{sdk_hash()}",
        workdir=str(metadata.get("workdir") or cluster.base),
        environment=code.prepared.environment if code else _environment(cluster, run),
        options=merged,
        throttle=throttle if isinstance(throttle, int) else None,
        pack=packing,
        workflow=bool(metadata.get("workflow")),
    )
    data = _whole(cluster, run, rundir.FUNCTION)
    is_workflow = bool(metadata.get("workflow"))
    why = f"as in {run}"
    function = ShippedFunction(metadata["by"], metadata["target"], why, data, is_workflow)
    captured = submission.environment.captured
    prepared = Prepared(
        submission.environment, deliver=deliver_again(captured) if captured else None
    )
    if code is not None:
        prepared, function = code
    arguments = ShippedArguments(
        tuple(chosen), (), tuple(rundir.split_arguments(shared)) if shared else ()
    )
    cut = None if single else cluster._cut(count, submission.throttle is not None)
    plan = Plan(name, submission, function, arguments, cut, (), prepared)
    jobs = once(
        cluster,
        function.target,
        lambda: (*arguments.blobs, *arguments.shared),
        lambda names: sending.send(cluster, plan, rundir.encode_arguments(chosen), names=names),
    )
    return make_array(cluster, jobs[0].run, name, jobs)


def _whole(cluster: Cluster, run: str, name: str) -> bytes:
    return cluster.backend.read_own(run, name)


def _environment(cluster: Cluster, run: str) -> Environment:
    return read_environment(cluster.backend.read_own(run, rundir.ENVIRONMENT))


def _throttle(options: Mapping[str, object]) -> int | None:
    given = options.get("array_throttle")
    return given if isinstance(given, int) else None


def _policy(metadata: Mapping[str, Any]) -> dict[str, object]:
    """How calls were retried; the options in the metadata only name it."""
    rules = (metadata.get("retry") or {}).get("given")
    return {"retry": Retry(**rules) if rules else None}
