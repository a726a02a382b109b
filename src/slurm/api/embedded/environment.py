"""What a job sees of its scheduler: the `SLURM_*` variables and the names of its log files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from slurm.api.embedded.request import Request

PARTITION = "local"
CLUSTER = "embedded"
RUN_VARIABLE = "SLURM_SDK_EMBEDDED_RUN"
_KEPT_FROM_OUTSIDE = ("SLURM_SDK_", "SLURM_CONF", "SLURM_CLUSTERS")
_PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Attempt:
    """One start of one job: all that its environment and file names depend on."""

    job_id: int
    batch_id: int
    index: int | None
    restarts: int
    start: int
    request: Request
    host: str
    user: str
    submit_directory: str
    scheduler_directory: str
    cpus: int
    devices: tuple[int, ...]

    @property
    def run(self) -> str:
        """The name of this attempt's files, and its mark in the environment."""
        return f"{self.job_id}.{self.restarts}"

    @property
    def work_directory(self) -> str:
        """Where the script starts."""
        return os.path.join(self.submit_directory, self.request.chdir or "")


def inherited(environ: Mapping[str, str], export: str) -> dict[str, str]:
    """What `--export` lets through of the submitter's environment; an outer job's is left out."""
    clean = {
        name: value
        for name, value in environ.items()
        if not name.startswith("SLURM_") or name.startswith(_KEPT_FROM_OUTSIDE)
    }
    words = split_export(export)
    if "ALL" in words:
        kept = clean
    else:
        always = ("HOME", "USER", "LOGNAME", "SHELL")
        kept = {n: v for n, v in clean.items() if n.startswith("SLURM_") or n in always}
        kept |= {name: clean[name] for name in words if name in clean}
        kept.setdefault("PATH", _PLAIN_PATH)
    kept |= dict(word.split("=", 1) for word in words if "=" in word)
    return kept


def split_export(text: str) -> list[str]:
    """The words of an `--export` value; quotes protect a comma."""
    words: list[str] = [""]
    quote = ""
    for letter in text:
        if quote:
            quote, letter = ("", "") if letter == quote else (quote, letter)
        elif letter in "'\"":
            quote, letter = letter, ""
        elif letter == ",":
            words.append("")
            continue
        words[-1] += letter
    return [word for word in words if word and word != "NONE"]


def job_environment(attempt: Attempt, environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the batch script."""
    result = inherited(environ, attempt.request.export)
    own = os.path.join(attempt.scheduler_directory, "bin")
    path = [entry for entry in result.get("PATH", _PLAIN_PATH).split(":") if entry != own]
    result["PATH"] = ":".join([own, *path])
    result |= _identity(attempt)
    result |= _layout(attempt)
    result |= _asked(attempt.request)
    result |= _devices(attempt)
    if attempt.index is not None:
        result |= _array(attempt, attempt.index)
    return result


def _identity(attempt: Attempt) -> dict[str, str]:
    request = attempt.request
    found = {
        "SLURM_JOB_ID": str(attempt.job_id),
        "SLURM_JOBID": str(attempt.job_id),
        "SLURM_JOB_NAME": request.name,
        "SLURM_JOB_PARTITION": PARTITION,
        "SLURM_JOB_QOS": "normal",
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_JOB_USER": attempt.user,
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_SUBMIT_DIR": attempt.submit_directory,
        "SLURM_SUBMIT_HOST": attempt.host,
        "SLURM_JOB_START_TIME": str(attempt.start),
        "SLURM_SDK_EMBEDDED_DIR": attempt.scheduler_directory,
        RUN_VARIABLE: f"{attempt.run}@{attempt.scheduler_directory}",
    }
    if request.time_limit:
        found["SLURM_JOB_END_TIME"] = str(attempt.start + request.time_limit)
    if attempt.restarts:
        found["SLURM_RESTART_COUNT"] = str(attempt.restarts)
    return found


def node_list(host: str, nodes: int) -> str:
    """The node list of a job: each of several virtual nodes is this host, so the name repeats."""
    return ",".join([host] * nodes)


def spread(tasks: int, nodes: int, per_node: int | None = None) -> list[int]:
    """How many tasks each node gets, in blocks."""
    if per_node and per_node * nodes >= tasks:
        return [max(0, min(per_node, tasks - per_node * node)) for node in range(nodes)]
    return [tasks // nodes + (node < tasks % nodes) for node in range(nodes)]


def compressed(counts: list[int]) -> str:
    """Slurm's way to write equal neighbours: `2(x3),1`."""
    groups: list[list[int]] = []
    for count in counts:
        if groups and groups[-1][0] == count:
            groups[-1][1] += 1
        else:
            groups.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)


def _layout(attempt: Attempt) -> dict[str, str]:
    request = attempt.request
    nodes = node_list(attempt.host, request.nodes)
    tasks = spread(request.tasks, request.nodes, request.ntasks_per_node)
    cpus = spread(attempt.cpus, request.nodes)
    if not request.exclusive:
        cpus = [count * (request.cpus_per_task or 1) for count in tasks]
    return {
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(request.nodes),
        "SLURM_NNODES": str(request.nodes),
        "SLURMD_NODENAME": attempt.host,
        "SLURM_CPUS_ON_NODE": str(cpus[0]),
        "SLURM_JOB_CPUS_PER_NODE": compressed(cpus),
        "SLURM_TASKS_PER_NODE": compressed(tasks),
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_GTIDS": "0",
        "SLURM_PRIO_PROCESS": "0",
    }


def _asked(request: Request) -> dict[str, str]:
    """Variables that Slurm sets only when the option was given."""
    given: dict[str, object] = {
        "SLURM_CPUS_PER_TASK": request.cpus_per_task,
        "SLURM_NTASKS_PER_NODE": request.ntasks_per_node,
        "SLURM_MEM_PER_NODE": request.mem_mb,
        "SLURM_MEM_PER_CPU": request.mem_per_cpu_mb,
        "SLURM_MEM_PER_GPU": request.mem_per_gpu_mb,
        "SLURM_GPUS": request.gpus,
        "SLURM_GPUS_PER_NODE": request.gpus_per_node,
        "SLURM_GPUS_PER_TASK": request.gpus_per_task,
    }
    if request.ntasks is not None or request.ntasks_per_node is not None:
        given["SLURM_NTASKS"] = given["SLURM_NPROCS"] = request.tasks
    if request.export != "ALL":
        given["SLURM_EXPORT_ENV"] = request.export
    return {name: str(value) for name, value in given.items() if value is not None}


def _devices(attempt: Attempt) -> dict[str, str]:
    if not attempt.devices:
        return {}
    listed = ",".join(map(str, attempt.devices))
    return {
        "CUDA_VISIBLE_DEVICES": listed,
        "SLURM_JOB_GPUS": listed,
        "SLURM_GPUS_ON_NODE": str(spread(len(attempt.devices), attempt.request.nodes)[0]),
    }


def _array(attempt: Attempt, index: int) -> dict[str, str]:
    indices = attempt.request.array or (index,)
    return {
        "SLURM_ARRAY_JOB_ID": str(attempt.batch_id),
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
        "SLURM_ARRAY_TASK_STEP": str(attempt.request.array_step),
    }


def log_files(attempt: Attempt) -> tuple[str, str]:
    """Where stdout and stderr go: absolute paths, patterns filled in."""
    request = attempt.request
    default = "slurm-%j.out" if attempt.index is None else "slurm-%A_%a.out"
    output = request.output or default
    fields = {
        "A": str(attempt.batch_id),
        "a": "4294967294" if attempt.index is None else str(attempt.index),
        "j": str(attempt.job_id),
        "J": str(attempt.job_id),
        "N": attempt.host,
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": attempt.user,
        "x": request.name,
    }
    stdout, stderr = (
        os.path.join(attempt.work_directory, fill_pattern(pattern, fields))
        for pattern in (output, request.error or output)
    )
    return stdout, stderr


def fill_pattern(pattern: str, fields: Mapping[str, str]) -> str:
    """Fill a file name pattern: `%j`, `%4t` (padded with zeros), `%%`; a backslash turns it off."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    result: list[str] = []
    position = 0
    while position < len(pattern):
        letter = pattern[position]
        position += 1
        if letter != "%":
            result.append(letter)
            continue
        digits = ""
        while position < len(pattern) and pattern[position].isdecimal():
            digits += pattern[position]
            position += 1
        key = pattern[position : position + 1]
        position += 1
        if key == "%":
            result.append("%")
        elif key in fields and key:
            value = fields[key]
            width = min(int(digits or 0), 10)
            result.append(value.zfill(width) if value.isdecimal() else value)
        else:
            result.append(f"%{digits}{key}")
    return "".join(result)
