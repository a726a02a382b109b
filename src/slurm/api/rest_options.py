"""From sbatch's options to slurmrestd's description of a job; pure functions.

What sbatch does with an option before it asks the controller is done here in the same way, so that
the job is the same one, and finds the same variables.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from slurm.api import sbatch_values as values
from slurm.api.sbatch_lines import read_options
from slurm.api.slurm_environ import sbatch_option

_Fields = dict[str, Any]
_Read = Callable[[str], _Fields]


class NotOverRest(ValueError):
    """An option that slurmrestd has no word for."""


# ---- kinds of values ----------------------------------------------------------------------------


def _number(value: int) -> dict[str, object]:
    return {"set": True, "number": value}


def _words(name: str) -> _Read:
    return lambda text: {name: text}


def _whole(name: str) -> _Read:
    return lambda text: {name: int(text)}


def _memory(name: str) -> _Read:
    return lambda text: {name: _number(values.read_memory(name, text))}


def _mebibytes(name: str) -> _Read:
    return lambda text: {name: values.read_memory(name, text)}


def _list(name: str) -> _Read:
    return lambda text: {name: text.split(",")}


def _true(name: str, value: object = True) -> _Read:
    return lambda _: {name: value}


def _flag(name: str) -> _Read:
    return lambda _: {"flags": [name]}


def _one_of(option: str, words: Mapping[str, str]) -> _Read:
    def read(text: str) -> _Fields:
        if text not in words:
            raise NotOverRest(f"--{option}={text} has no word in slurmrestd")
        return {"flags": [words[text]]}

    return read


def _gpus(name: str) -> _Read:
    return lambda text: {name: ",".join(f"gres/gpu:{part}" for part in text.split(","))}


def _moment(text: str) -> int:
    return values.read_begin(text, time.time())


def _minutes(name: str) -> _Read:
    def read(text: str) -> _Fields:
        seconds = values.read_time(text)
        limit = {"set": True, "infinite": True} if seconds is None else _number(-(-seconds // 60))
        return {name: limit}

    return read


# ---- options with a reading of their own --------------------------------------------------------


def _gres(text: str) -> _Fields:
    parts = [re.sub("^gres[:/]", "", part) for part in text.split(",")]
    return {"tres_per_node": ",".join(p if p.lower() == "none" else f"gres/{p}" for p in parts)}


def _signal(text: str) -> _Fields:
    found = re.fullmatch(r"(?:([RB]+):)?([A-Za-z0-9]+)(?:@(\d+))?", text)
    if found is None:
        raise NotOverRest(f"--signal={text} cannot be read")
    flags = {"B": "BATCH_JOB", "R": "RESERVATION_JOB"}
    said = [flags[letter] for letter in found[1] or ""]
    return {
        "kill_warning_signal": found[2],
        "kill_warning_delay": _number(int(found[3] or 60)),
        **({"kill_warning_flags": said} if said else {}),
    }


_MAIL = {
    "ALL": ("BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPENDENCY", "STAGE_OUT"),
    "NONE": (),
    "INVALID_DEPEND": ("INVALID_DEPENDENCY",),
    "TIME_LIMIT": ("TIME=100%",),
    **{f"TIME_LIMIT_{part}": (f"TIME={part}%",) for part in (50, 80, 90)},
}
_PROFILES = {"ALL": ("ENERGY", "LUSTRE", "NETWORK", "TASK")}
# Cores and threads that a hint asks for; the rest of it is srun's.
_HINTS = {
    "compute_bound": {"threads_per_core": 1},
    "memory_bound": {"cores_per_socket": 1, "threads_per_core": 1},
    "nomultithread": {"threads_per_core": 1},
}


def _several(name: str, meant: Mapping[str, tuple[str, ...]]) -> _Read:
    def read(text: str) -> _Fields:
        said = text.upper().split(",")
        return {name: [word for one in said for word in meant.get(one, (one,))]}

    return read


def _switches(text: str) -> _Fields:
    count, _, wait = text.partition("@")
    fields: _Fields = {"required_switches": _number(int(count))}
    return {**fields, "wait_for_switch": values.read_time(wait) or 0} if wait else fields


def _priority(text: str) -> _Fields:
    # Slurm's own number for "before all others of mine".
    return {"priority": _number(0xFFFFFFFD if text.upper() == "TOP" else int(text))}


def _requeue(text: str) -> _Fields:
    return {"requeue": True, **({"flags": ["EXPEDITED_REQUEUE"]} if text == "expedite" else {})}


#: What each option of sbatch becomes in the description of a job.
_OPTIONS: dict[str, _Read] = {
    "account": _words("account"),
    "array": _words("array"),
    "bb": _words("burst_buffer"),
    "begin": lambda text: {"begin_time": _number(_moment(text))},
    "chdir": _words("current_working_directory"),
    "cluster-constraint": _words("cluster_constraint"),
    "comment": _words("comment"),
    "constraint": _words("constraints"),
    "container": _words("container"),
    "contiguous": _true("contiguous"),
    "core-spec": _whole("core_specification"),
    "cpu-freq": _words("cpu_frequency"),
    "cpus-per-gpu": lambda text: {"cpus_per_tres": f"gres/gpu:{text}"},
    "deadline": lambda text: {"deadline": _moment(text)},
    "delay-boot": lambda text: {"delay_boot": values.read_time(text) or 0},
    "dependency": _words("dependency"),
    "distribution": _words("distribution"),
    "error": _words("standard_error"),
    "exclude": _list("excluded_nodes"),
    "exclusive": lambda text: {"shared": [text or "none"]},
    "extra": _words("extra"),
    "gpu-bind": lambda text: {"tres_bind": f"gres/gpu:{text}"},
    "gpu-freq": lambda text: {"tres_freq": f"gpu:{text}"},
    "gpus": _gpus("tres_per_job"),
    "gpus-per-node": _gpus("tres_per_node"),
    "gpus-per-socket": _gpus("tres_per_socket"),
    "gres": _gres,
    "gres-flags": _one_of(
        "gres-flags",
        {"enforce-binding": "GRES_BINDING_ENFORCED", "disable-binding": "GRES_BINDING_DISABLED"},
    ),
    "hint": lambda text: dict(_HINTS.get(text, {})),
    "hold": _true("hold"),
    "input": _words("standard_input"),
    "job-name": _words("name"),
    "kill-on-invalid-dep": _one_of(
        "kill-on-invalid-dep",
        {"yes": "KILL_INVALID_DEPENDENCY", "no": "NO_KILL_INVALID_DEPENDENCY"},
    ),
    "licenses": _words("licenses"),
    "mail-type": _several("mail_type", _MAIL),
    "mail-user": _words("mail_user"),
    "mcs-label": _words("mcs_label"),
    "mem": _memory("memory_per_node"),
    "mem-per-cpu": _memory("memory_per_cpu"),
    "mem-per-gpu": lambda text: {
        "memory_per_tres": f"gres/gpu:{values.read_memory('mem-per-gpu', text)}"
    },
    "mincpus": _whole("minimum_cpus_per_node"),
    "network": _words("network"),
    "nice": lambda text: {"nice": int(text or 100)},
    "no-kill": lambda text: {"kill_on_node_fail": text == "off"},
    "no-requeue": _true("requeue", False),
    "nodelist": _list("required_nodes"),
    "nodes": _words("nodes"),
    "ntasks": _whole("tasks"),
    "ntasks-per-core": _whole("tasks_per_core"),
    "ntasks-per-gpu": _whole("ntasks_per_tres"),
    "ntasks-per-node": _whole("tasks_per_node"),
    "ntasks-per-socket": _whole("tasks_per_socket"),
    "open-mode": lambda text: {"open_mode": [text.upper()]},
    "output": _words("standard_output"),
    "overcommit": _true("overcommit"),
    "oversubscribe": _true("shared", ["oversubscribe"]),
    "partition": _words("partition"),
    "prefer": _words("prefer"),
    "priority": _priority,
    "profile": _several("profile", _PROFILES),
    "qos": _words("qos"),
    "reboot": _true("reboot"),
    "requeue": _requeue,
    "reservation": _words("reservation"),
    "segment": lambda text: {"segment_size": _number(int(text))},
    "signal": _signal,
    "sockets-per-node": _whole("sockets_per_node"),
    "spread-job": _flag("SPREAD_JOB"),
    "stepmgr": _flag("STEPMGR_ENABLED"),
    "switches": _switches,
    "thread-spec": _whole("thread_specification"),
    "threads-per-core": _whole("threads_per_core"),
    "time": _minutes("time_limit"),
    "time-min": _minutes("time_minimum"),
    "tmp": _mebibytes("temporary_disk_per_node"),
    "tres-bind": _words("tres_bind"),
    "use-min-nodes": _flag("PREFER_MINIMUM_NODE_COUNT"),
    "wckey": _words("wckey"),
}
# "Not said", as a number of 16 bits.
_UNSET = 0xFFFE
#: What acts in sbatch itself, or is read together with others.
_ELSEWHERE = ("export", "parsable", "quiet", "cpus-per-task", "gpus-per-task", "tres-per-task")


# The first API version that has a field, of those that not all have.
_SINCE = {"cores_per_socket": "v0.0.45"}


def job_of(script: str, env: Mapping[str, str], cwd: str, version: str = "v9") -> dict[str, Any]:
    """The description of the job that a script's own lines, and `SBATCH_*` variables, ask for."""
    options = _with_variables(read_options(script), env)
    # Left out, it would be "no" instead of the cluster's own setting.
    job: _Fields = {"current_working_directory": cwd, "oom_kill_step": _UNSET}
    for name, text in options.items():
        if name in _ELSEWHERE:
            continue
        if name not in _OPTIONS:
            raise NotOverRest(f"--{name} has no word in slurmrestd")
        for key, value in _OPTIONS[name](text).items():
            if version < _SINCE.get(key, ""):
                raise NotOverRest(f"--{name}={text} has no word in slurmrestd {version}")
            # Several options may be a flag each.
            job[key] = [*job.get(key, ()), *value] if key == "flags" else value
    job.update({**_each_task(options), **_ranks(options)})
    if job.get("hold"):
        job.pop("priority", None)  # a held job has none
    job["environment"] = [f"{k}={v}" for k, v in _environment(options, job, env, cwd).items()]
    return job


def _each_task(options: Mapping[str, str]) -> _Fields:
    """What each rank has, which three options say together."""
    cpus, gpus = options.get("cpus-per-task", ""), options.get("gpus-per-task", "")
    tres = options.get("tres-per-task", "")
    typed = [re.sub(r":([0-9]+)\Z", r"=\1", f"gres/gpu:{part}") for part in gpus.split(",") if part]
    parts = [f"cpu={cpus}"] if cpus else []
    parts += [part if "=" in part else f"{part}=1" for part in typed]
    parts += [tres] if tres else []
    every = ",".join(parts)
    counts = re.findall(r"gres/gpu(?::[^,:=]+)?[:=]([0-9]+)", every)
    cpu = re.search(r"\bcpu[:=]([0-9]+)", every)
    fields: _Fields = {"tres_per_task": every} if every else {}
    if cpu:
        fields["cpus_per_task"] = int(cpu[1])
    if counts and "tres-bind" not in options and "gpu-bind" not in options:
        fields["tres_bind"] = f"gres/gpu:per_task:{sum(map(int, counts))}"
    return fields


def _ranks(options: Mapping[str, str]) -> _Fields:
    """The number of ranks where only those of each GPU or node are said."""
    if "ntasks" in options:
        return {}
    if "ntasks-per-gpu" in options and "gpus" in options:
        return {"tasks": int(options["ntasks-per-gpu"]) * values.read_gpus("gpus", options["gpus"])}
    if "ntasks-per-node" in options:
        nodes = values.read_nodes(options.get("nodes", "1"))
        return {"tasks": int(options["ntasks-per-node"]) * nodes}
    return {}


def _with_variables(options: dict[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The options with those of `SBATCH_*` variables, which stand above the lines of a script."""
    said = {sbatch_option(k): v for k, v in env.items() if k.startswith("SBATCH_")}
    return {**options, **{name: v for name, v in said.items() if name in _OPTIONS}}


# ---- the environment ----------------------------------------------------------------------------

# What sbatch tells a job, and srun in it, and the controller does not: from options, from fields.
_TOLD = {
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "gpu-freq": "SLURM_GPU_FREQ",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "hint": "SLURM_HINT",
    "ntasks-per-core": "SLURM_NTASKS_PER_CORE",
    "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "ntasks-per-socket": "SLURM_NTASKS_PER_SOCKET",
}
_FIELDS_TOLD = {
    "cpus_per_task": "SLURM_CPUS_PER_TASK",
    "threads_per_core": "SLURM_THREADS_PER_CORE",
    "tres_bind": "SLURM_TRES_BIND",
    "tres_per_task": "SLURM_TRES_PER_TASK",
}
# How mpirun starts its ranks in a job.
_MPI = {
    "HYDRA_BOOTSTRAP": "slurm",
    "HYDRA_LAUNCHER_EXTRA_ARGS": "--external-launcher",
    "I_MPI_HYDRA_BOOTSTRAP": "slurm",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "--external-launcher",
    "OMPI_MCA_plm_slurm_args": "--external-launcher",
    "PRTE_MCA_plm_slurm_args": "--external-launcher",
}


def _environment(
    options: Mapping[str, str], job: Mapping[str, Any], env: Mapping[str, str], cwd: str
) -> dict[str, str]:
    """The variables of the job: those that `--export` lets through, and what sbatch adds."""
    export = options.get("export", "ALL")
    said = export.split(",")
    every = "ALL" in said
    found = {
        name: value
        for name, value in env.items()
        if every or name in said or name.startswith(("SLURM_", "SPANK_"))
    }
    for name, equals, value in (word.partition("=") for word in said):
        if equals:
            found[name] = value
    if export != "ALL":
        # The node fills up with what a login gives, and srun in the job does as sbatch was told.
        found.update(SLURM_GET_USER_ENV="1", SLURM_EXPORT_ENV=export)
    found.update({_TOLD[name]: text for name, text in options.items() if name in _TOLD})
    found.update({_FIELDS_TOLD[key]: str(v) for key, v in job.items() if key in _FIELDS_TOLD})
    if "mem-per-gpu" in options:
        found["SLURM_MEM_PER_GPU"] = str(values.read_memory("mem-per-gpu", options["mem-per-gpu"]))
    return {
        **_MPI,
        **found,
        "SLURM_SUBMIT_DIR": cwd,
        "SLURM_SUBMIT_HOST": os.uname().nodename,
    }
