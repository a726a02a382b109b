"""A job as it was asked for: sbatch's options turned into one frozen value, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm.api import sbatch_values as values
from slurm.api.embedded.host import Machine
from slurm.api.sbatch_lines import BadRequest

DEFAULT_MEMORY_PER_CPU_MB = 100

# Options that change what this scheduler does; all others are accepted, and named in `ignored`.
KEPT = frozenset(
    [
        "array",
        "begin",
        "chdir",
        "cpus-per-gpu",
        "cpus-per-task",
        "dependency",
        "error",
        "exclusive",
        "export",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "hold",
        "job-name",
        "kill-on-invalid-dep",
        "mem",
        "mem-per-cpu",
        "mem-per-gpu",
        "nice",
        "no-requeue",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "open-mode",
        "output",
        "overcommit",
        "priority",
        "requeue",
        "signal",
        "time",
    ]
)


@dataclass(frozen=True)
class Need:
    """What a job takes from the machine while it runs."""

    cpus: int
    memory_mb: int
    gpus: int

    def fits(self, free: Need) -> bool:
        """Whether this much is free."""
        return (
            self.cpus <= free.cpus and self.memory_mb <= free.memory_mb and self.gpus <= free.gpus
        )

    def plus(self, other: Need, sign: int = 1) -> Need:
        """The sum with another, or the difference with `sign=-1`."""
        return Need(
            self.cpus + sign * other.cpus,
            self.memory_mb + sign * other.memory_mb,
            self.gpus + sign * other.gpus,
        )


@dataclass(frozen=True)
class Request:
    """What one submission asks for. None means: not said."""

    name: str
    output: str | None = None
    error: str | None = None
    append: bool = False
    chdir: str | None = None
    time_limit: int | None = None
    nodes: int = 1
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    mem_mb: int | None = None
    mem_per_cpu_mb: int | None = None
    mem_per_gpu_mb: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    exclusive: bool = False
    overcommit: bool = False
    array: tuple[int, ...] | None = None
    array_step: int = 1
    throttle: int | None = None
    dependency: values.Dependency | None = None
    kill_on_invalid_dependency: bool = False
    begin: int | None = None
    early_signal: values.EarlySignal | None = None
    requeue: bool = True
    hold: bool = False
    export: str = "ALL"
    priority: int = 0
    ignored: tuple[str, ...] = ()

    @property
    def tasks(self) -> int:
        """How many tasks the job has room for."""
        if self.ntasks is not None:
            return self.ntasks
        return self.nodes * (self.ntasks_per_node or 1)

    @property
    def cpus(self) -> int:
        """How many CPUs the job's tasks take together."""
        by_gpu = self.gpu_count * (self.cpus_per_gpu or 0)
        return max(self.tasks * (self.cpus_per_task or 1), by_gpu)

    @property
    def gpu_count(self) -> int:
        """How many GPUs the job takes, whichever way it asked."""
        return max(
            self.gpus or 0,
            (self.gpus_per_node or 0) * self.nodes,
            (self.gpus_per_task or 0) * self.tasks,
        )


def make_request(options: Mapping[str, str], script_name: str, now: float) -> Request:
    """The request that these options make; BadRequest says what cannot be understood."""

    def count(name: str, least: int = 1) -> int | None:
        text = options.get(name)
        return None if text is None else values.read_count(name, text, least)

    def memory(name: str) -> int | None:
        text = options.get(name)
        return None if text is None else values.read_memory(name, text)

    def gpus(name: str) -> int | None:
        text = options.get(name)
        return None if text is None else values.read_gpus(name, text)

    array, throttle = values.read_array(options["array"]) if "array" in options else (None, None)
    gres = values.read_gres(options["gres"]) if "gres" in options else None
    nodes = values.read_nodes(options["nodes"]) if "nodes" in options else 1
    ntasks = count("ntasks")
    return Request(
        name=options.get("job-name") or script_name,
        output=options.get("output"),
        error=options.get("error"),
        append=_open_mode(options.get("open-mode", "")),
        chdir=options.get("chdir"),
        time_limit=values.read_time(options["time"]) if "time" in options else None,
        # Slurm, too, gives no more nodes than there are tasks for.
        nodes=min(nodes, ntasks) if ntasks else nodes,
        ntasks=ntasks,
        ntasks_per_node=count("ntasks-per-node"),
        cpus_per_task=count("cpus-per-task"),
        cpus_per_gpu=count("cpus-per-gpu"),
        mem_mb=memory("mem"),
        mem_per_cpu_mb=memory("mem-per-cpu"),
        mem_per_gpu_mb=memory("mem-per-gpu"),
        gpus=gpus("gpus"),
        gpus_per_node=gres if gres is not None else gpus("gpus-per-node"),
        gpus_per_task=gpus("gpus-per-task"),
        exclusive="exclusive" in options,
        overcommit="overcommit" in options,
        array=array,
        array_step=values.array_step(options.get("array", "")),
        throttle=throttle,
        dependency=_dependency(options.get("dependency", "")),
        kill_on_invalid_dependency=options.get("kill-on-invalid-dep", "no").lower() == "yes",
        begin=values.read_begin(options["begin"], now) if "begin" in options else None,
        early_signal=values.read_signal(options["signal"]) if "signal" in options else None,
        requeue="no-requeue" not in options,
        hold="hold" in options or options.get("priority") == "0",
        export=options.get("export", "ALL"),
        priority=_priority(options),
        ignored=tuple(sorted(set(options) - KEPT)),
    )


def _open_mode(text: str) -> bool:
    if text not in {"", "append", "a", "truncate", "t"}:
        raise BadRequest(f"Invalid --open-mode specification {text!r}.")
    return text.startswith("a")


def _dependency(text: str) -> values.Dependency | None:
    return values.read_dependency(text) if text else None


def _priority(options: Mapping[str, str]) -> int:
    """Larger runs earlier; `--nice` lowers it by 100 when it has no value, as in Slurm."""
    nice = options.get("nice", "0") or "100"
    sign = -1 if nice.startswith("-") else 1
    lowered = sign * values.read_count("nice", nice.removeprefix("-"), least=0)
    text = options.get("priority", "0")
    raised = 0 if text.upper() == "TOP" else values.read_count("priority", text, least=0)
    return raised - lowered


def need_of(request: Request, machine: Machine) -> Need:
    """What the request takes; BadRequest in Slurm's manner if this machine can never give it."""
    wanted_cpus = min(request.cpus, machine.cpus) if request.overcommit else request.cpus
    cpus = machine.cpus if request.exclusive else wanted_cpus
    gpus = machine.gpus if request.exclusive else request.gpu_count
    if request.mem_mb == 0:
        memory = machine.memory_mb
    elif request.mem_mb is not None:
        memory = request.mem_mb * request.nodes
    elif request.mem_per_cpu_mb is not None:
        memory = request.mem_per_cpu_mb * request.cpus
    elif request.mem_per_gpu_mb is not None:
        memory = request.mem_per_gpu_mb * request.gpu_count
    else:
        memory = min(DEFAULT_MEMORY_PER_CPU_MB * cpus, machine.memory_mb)
    asked = {
        "CPUs": (max(cpus, wanted_cpus), machine.cpus),
        "MiB of memory": (memory, machine.memory_mb),
        "GPUs": (max(gpus, request.gpu_count), machine.gpus),
    }
    for what, (wanted, there) in asked.items():
        if wanted > there:
            raise BadRequest(
                "Requested node configuration is not available: the job asks for "
                f"{wanted} {what}, this machine has {there}."
            )
    return Need(cpus, memory, gpus)
