"""The libraries that are compared: how each is started, how it was set, what it cannot do."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Library:
    """A program of `benchmarks/peers` and the packages that it needs; none for our own Python."""

    key: str
    label: str
    program: str
    needs: tuple[str, ...] = ()
    settings: str = ""
    #: Why an order is not played, by the order's first word.
    cannot: dict[str, str] = field(default_factory=dict)


#: What people call the orders that the programs take.
ORDERS = {
    "one": "one job",
    "submit": "one submission",
    "map": "maps",
    "pack": "calls in workers that are up",
    "cold": "an allocation from nothing",
    "graph": "the graph",
    "hold": "growth",
}
_PILOT = {
    "one": "its calls go to workers",
    "submit": "its calls go to workers",
    "map": "its calls go to workers",
}
_JOBS = {
    "pack": "each of its calls is a job",
    "cold": "each of its calls is a job",
    "ssh": "runs where `sbatch` is",
}

OURS = Library(
    "ours", "Slurm SDK", "with_ours.py", settings="its defaults; `cluster.batch()` for the graph"
)
RAW = Library(
    "raw",
    "raw Slurm",
    "with_raw.py",
    settings="`sbatch` of `python -c pass`, then `squeue` in a tight loop, ten times a second for "
    "an array; it knows no values",
)
LIBRARIES = (
    OURS,
    RAW,
    Library(
        "submitit",
        "submitit",
        "with_submitit.py",
        ("submitit==1.5.4",),
        "its defaults, `slurm_array_parallelism=10_000`",
        {**_JOBS, "graph": "has no dependencies between jobs"},
    ),
    Library(
        "slurm-sdk",
        "slurm-sdk 0.4",
        "with_slurm_sdk.py",
        ("slurm-sdk==0.4.6", "paramiko<5"),
        'packaging "none", asked to look every 50 ms (its own pause is 5 s); paramiko below 5, for '
        "its ssh does not work with the newer one",
        {k: v for k, v in _JOBS.items() if k != "ssh"},
    ),
    Library(
        "executorlib",
        "executorlib",
        "with_executorlib.py",
        ("executorlib==1.11.0", "pysqa==1.1.1", "h5py"),
        "`SlurmClusterExecutor`: a job for each call, or `block_allocation=True` with two workers",
        {
            "submit": "submits in a thread of its own: its client is never told",
            "hold": "submits in a thread of its own: its client is never told",
            "ssh": "runs where `sbatch` is",
        },
    ),
    Library(
        "dask",
        "Dask",
        "with_dask.py",
        ("dask-jobqueue==0.9.0", "distributed==2026.8.0"),
        "`SLURMCluster`, one job with two worker processes",
        {**_PILOT, "ssh": "needs a route from the workers to the client"},
    ),
    Library(
        "parsl",
        "Parsl",
        "with_parsl.py",
        ("parsl==2026.10.26",),
        "`HighThroughputExecutor` with `SlurmProvider`, one block with two workers",
        {**_PILOT, "ssh": "has dropped its ssh channels"},
    ),
    Library(
        "hyperqueue",
        "HyperQueue",
        "with_hyperqueue.py",
        ("hyperqueue==0.27.0",),
        "PyPI's package, which has no `hq` program: its own `LocalCluster` with two cores on this "
        "host, without a Slurm job, and `/bin/true` for a call; its tasks give no values back",
        {
            **_PILOT,
            "cold": "PyPI's package cannot start a worker in a Slurm job",
            "ssh": "its server must be where `sbatch` is",
        },
    ),
)  # fmt: skip


def label(key: str) -> str:
    """What people call the library."""
    return next(one.label for one in LIBRARIES if one.key == key)
