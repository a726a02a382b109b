"""How many ranks `launch="torchrun"` starts, and what srun is told for it: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def several_ranks(options: Mapping[str, object]) -> bool:
    """Whether a job of these options has several processes, which srun has to start."""
    if options.get("launch") in ("once", "torchrun"):
        return options["launch"] == "torchrun"
    return (
        int(str(options.get("ntasks") or 1)) > 1
        or int(str(options.get("ntasks_per_node") or 1)) > 1
        or str(options.get("nodes") or 1) != "1"
        or bool(options.get("srun_args"))
    )


def ranks_per_node(options: Mapping[str, object]) -> int:
    """How many ranks start on each node: as many as asked for, else one for each GPU there."""
    nodes = int(str(options.get("nodes") or 1).partition("-")[0])
    if options.get("ntasks_per_node"):
        return int(str(options["ntasks_per_node"]))
    if options.get("ntasks"):
        return max(1, int(str(options["ntasks"])) // nodes)
    gpus = options.get("gpus_per_node") or (options.get("gpus") if nodes == 1 else None)
    counts = [request[1] for request in gpus] if isinstance(gpus, Iterable) else []
    return max(1, sum(int(count) for count in counts))


def torchrun_flags(options: Mapping[str, object]) -> list[str]:
    """srun starts one process per node, with all the CPUs of the ranks that it will start."""
    cpus = ranks_per_node(options) * int(str(options.get("cpus_per_task") or 1))
    nodes = '"$SLURM_JOB_NUM_NODES"'
    flags = {"nodes": nodes, "ntasks": nodes, "ntasks-per-node": 1, "cpus-per-task": cpus}
    return [f"--{name}={value}" for name, value in flags.items()]
