"""Where the steps of an allocation fit, and how srun is told: pure decisions of the pilot."""

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from slurm.model.hostlist import expand_hostlist


class Shape(NamedTuple):
    """What a step asks for: nodes (None: as few as will do), ranks, and CPUs of each rank."""

    nodes: Optional[int]
    tasks: int
    cpus: int

    def per_node(self, nodes: int) -> int:
        """The CPUs that it takes on the fullest of so many nodes."""
        return -(-self.tasks // nodes) * self.cpus


class Place(NamedTuple):
    """The nodes that a step gets, by their number, and the CPUs it takes on each."""

    nodes: Tuple[int, ...]
    cpus: int


class Room:
    """The CPUs of an allocation, node by node: what is free, and what a step would get."""

    def __init__(self, names: Sequence[str], cpus: Sequence[int]) -> None:
        self.names = list(names)
        self._total = list(cpus)
        self._free = list(cpus)

    def find(self, shape: Shape) -> Optional[Place]:
        """A place that is free now."""
        return _fit(shape, self._free)

    def could_ever_hold(self, shape: Shape) -> bool:
        """Whether the step fits into the empty allocation."""
        return _fit(shape, self._total) is not None

    def take(self, place: Place) -> None:
        """Count a place as used."""
        for node in place.nodes:
            self._free[node] -= place.cpus

    def give_back(self, place: Place) -> None:
        """Count a place as free again."""
        for node in place.nodes:
            self._free[node] += place.cpus

    def named(self, place: Place) -> List[str]:
        """The names of a place's nodes; none where nodes share one name (embedded scheduler)."""
        if len(set(self.names)) < len(self.names):
            return []
        return [self.names[node] for node in place.nodes]

    def __str__(self) -> str:
        cpus = ", ".join(str(n) for n in self._total)
        return f"{len(self.names)} node(s) with {cpus} CPU(s)"


def _fit(shape: Shape, free: Sequence[int]) -> Optional[Place]:
    counts = [shape.nodes] if shape.nodes else range(1, len(free) + 1)
    for count in counts:
        if shape.tasks < count:
            continue
        need = shape.per_node(count)
        fitting = [node for node, cpus in enumerate(free) if cpus >= need]
        if len(fitting) >= count:
            return Place(tuple(fitting[:count]), need)
    return None


def room_of(environ: Mapping[str, str]) -> Room:
    """The room of the job that these variables describe."""
    count = int(environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or 1)
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""
    names = expand_hostlist(listed) if listed else []
    if len(names) != count:
        names = [names[0] if names else "localhost"] * count
    cpus = parse_counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    if len(cpus) != count:
        cpus = [int(environ.get("SLURM_CPUS_ON_NODE") or 1)] * count
    return Room(names, cpus)


def parse_counts(text: str) -> List[int]:
    """`2(x3),1` as `[2, 2, 2, 1]`."""
    found = []  # type: List[int]
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(count)] * int(times or 1)
    return found


def shape_of(order: Mapping[str, Any]) -> Shape:
    """What an order asks for."""
    return Shape(order.get("nodes"), int(order.get("tasks", 1)), int(order.get("cpus", 1)))


def srun_flags(
    order: Mapping[str, Any], place: Place, names: Sequence[str], inside: bool
) -> List[str]:
    """The words behind srun; `inside`: the pilot is itself part of a step, which holds the CPUs."""
    shape = shape_of(order)
    flags = ["--exact", f"--nodes={len(place.nodes)}", f"--ntasks={shape.tasks}"]
    flags += [f"--cpus-per-task={shape.cpus}"]
    if names:
        flags.append("--nodelist=" + ",".join(names))
    if inside:
        flags.append("--overlap")
    return flags + [str(flag) for flag in order.get("flags", ())]


#: Of the pilot's own job: as variables they would act like options of the step's srun.
_OF_THE_JOB = (
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_GPU",
    "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_CPUS_PER_GPU",
    "SLURM_TRES_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_EXCLUSIVE", "SLURM_HINT",
    "SLURM_THREADS_PER_CORE", "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS",
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_ORDER", "SLURM_STEP_FLAGS",
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP", "SLURM_SDK_RANKS",
    "SLURM_SDK_WORLD", "RANK", "LOCAL_RANK",
    "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


def step_environment(
    environ: Mapping[str, str], number: int, cpus: int, flags: Sequence[str], element: Optional[int]
) -> Dict[str, str]:
    """What a step's script starts with: the job's variables without those that misled its srun."""
    kept = {name: value for name, value in environ.items() if name not in _OF_THE_JOB}
    # The pilot's script has set this to the CPUs of the pilot, unless the user did.
    if kept.get("OMP_NUM_THREADS") == (environ.get("SLURM_CPUS_PER_TASK") or "1"):
        del kept["OMP_NUM_THREADS"]
    kept["SLURM_STEP_ORDER"] = str(number)
    kept["SLURM_STEP_FLAGS"] = " ".join(flags)
    kept["SLURM_CPUS_PER_TASK"] = str(cpus)
    if element is not None:
        kept["SLURM_ARRAY_TASK_ID"] = str(element)
    return kept


# ---- what a step waits for ----------------------------------------------------------------------

MET, OPEN, NEVER = "met", "open", "never"


def dependency_state(
    text: Optional[str], states: Mapping[str, str], element: Optional[int] = None
) -> str:
    """Whether the condition of a step is met, may be met, or never will.

    `states` are those of the steps of this allocation that have begun, by id (`4`, or `4_7` for an
    element of a map and then `4` for all of them together): RUNNING or how they ended.
    """
    found = [_condition(c, states, element) for c in (text or "").split(",") if ":" in c]
    if NEVER in found:
        return NEVER
    return OPEN if OPEN in found else MET


def _condition(text: str, states: Mapping[str, str], element: Optional[int]) -> str:
    kind, *ids = text.split(":")
    numbers = [one.partition("+")[0].rpartition(".")[2] for one in ids]
    if kind == "aftercorr":
        numbers = [f"{number}_{element}" for number in numbers]
    ended = [states.get(number) for number in numbers]
    if kind == "after":
        return MET if all(state is not None for state in ended) else OPEN
    over = [state for state in ended if state not in (None, "RUNNING")]
    wrong = {"afterany": (), "afternotok": ("COMPLETED",)}.get(kind)
    for state in over:
        bad = state != "COMPLETED" if wrong is None else state in wrong
        if bad:
            return NEVER
    return MET if len(over) == len(ended) else OPEN
