"""The parameters of the Slurm executor: submitit's names, and what the core's options call them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm.model.option_table import BY_NAME
from slurm.rendering import directive, shell_quote
from slurm.submitit.core.executors import EquivalenceDict
from slurm.submitit.core.job_environment import JobEnvironment

#: Every parameter and its default; None is left out of the script.
DEFAULTS: dict[str, Any] = {
    "job_name": "submitit",
    "partition": None,
    "time": 5,
    "nodes": 1,
    "ntasks_per_node": None,
    "cpus_per_task": None,
    "cpus_per_gpu": None,
    "num_gpus": None,
    "gpus_per_node": None,
    "gpus_per_task": None,
    "qos": None,
    "setup": None,
    "teardown": None,
    "mem": None,
    "mem_per_gpu": None,
    "mem_per_cpu": None,
    "signal_delay_s": 90,
    "comment": None,
    "constraint": None,
    "exclude": None,
    "account": None,
    "gres": None,
    "mail_type": None,
    "mail_user": None,
    "nodelist": None,
    "dependency": None,
    "exclusive": None,
    "array_parallelism": 256,
    "wckey": None,
    "stderr_to_stdout": False,
    "additional_parameters": None,
    "srun_args": None,
    "use_srun": True,
    "pack": None,
}

#: Shared names of all executors, and Slurm's.
SHARED = EquivalenceDict(
    name="job_name",
    timeout_min="time",
    mem_gb="mem",
    nodes="nodes",
    cpus_per_task="cpus_per_task",
    gpus_per_node="gpus_per_node",
    tasks_per_node="ntasks_per_node",
)

#: What the executor sees to by itself; the rest are options of the core under the same names.
_NOT_OPTIONS = {
    "num_gpus", "signal_delay_s", "array_parallelism", "stderr_to_stdout", "use_srun", "pack",
    "additional_parameters", "setup", "teardown", "dependency",
}  # fmt: skip


def memory_text(mem_gb: float) -> str:
    """Gigabytes as Slurm takes them: whole ones, else megabytes."""
    return f"{int(mem_gb)}GB" if mem_gb == int(mem_gb) else f"{int(mem_gb * 1024)}MB"


def check_names(names: Mapping[str, Any]) -> None:
    """Refuse unknown parameters, all of them in one error that lists the known ones."""
    wrong = sorted(set(names) - set(DEFAULTS))
    if not wrong:
        return
    known = "\n".join(f"  - {name} (default: {value!r})" for name, value in DEFAULTS.items())
    raise ValueError(f"unknown parameters: {', '.join(wrong)}; there are:\n{known}")


def to_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The core's options for these parameters."""
    given = {**DEFAULTS, **parameters}
    if given["num_gpus"] is not None:
        warnings.warn("num_gpus is now gpus_per_node", DeprecationWarning, stacklevel=4)
        given["gpus_per_node"] = given["num_gpus"]
    options = {
        name: value
        for name, value in given.items()
        if name not in _NOT_OPTIONS and value is not None
    }
    if not given["use_srun"]:
        options["launch"] = "once"
        options.pop("srun_args", None)
    for name in ("gpus_per_node", "gpus_per_task"):
        if options.get(name) == 0:
            del options[name]
    more = _additional(given["additional_parameters"] or {}, options)
    return {**options, **more}


def script_text(command: str, folder: Path | str, **parameters: Any) -> str:
    """A script of one's own that runs a command with these parameters, for other launchers.

    Scripts of the executor say more: what they do at the end, and how they are found again.
    """
    given = {**DEFAULTS, "wckey": "submitit", **parameters}
    own = "%A_%a" if given.pop("map_count", None) else "%j"
    error = None if given["stderr_to_stdout"] else f"{folder}/{own}_%t_log.err"
    options = {name: value for name, value in to_options(given).items() if name in DEFAULTS}
    options.pop("srun_args", None)
    flags: dict[str, Any] = {
        **options,
        "signal": f"{JobEnvironment.USR_SIG}@{given['signal_delay_s']}",
        "open_mode": "append",
        "output": f"{folder}/{own}_0_log.out",
        "error": error and error.replace("%t", "0"),
        **(given["additional_parameters"] or {}),
    }
    lines = ["#!/bin/bash", "", "# Parameters"]
    for flag, value in sorted(flags.items()):
        if value is not None and value is not False:
            lines.append(directive(flag.replace("_", "-"), None if value is True else str(value)))
    lines += _block("setup", given["setup"])
    words = ["srun", "--unbuffered", "--output", f"{folder}/{own}_%t_log.out"]
    words += ["--error", error] if error else []
    words += given["srun_args"] or []
    start = " ".join(map(shell_quote, words)) if given["use_srun"] else ""
    lines += _block("command", ["export SUBMITIT_EXECUTOR=slurm", f"{start} {command}".strip()])
    return "\n".join([*lines, *_block("teardown", given["teardown"])]) + "\n"


def _block(name: str, lines: Sequence[str] | None) -> list[str]:
    return ["", f"# {name}", *lines] if lines else []


def _additional(flags: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Any flag of sbatch; it wins over the parameter of the same meaning."""
    found: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for flag, value in flags.items():
        name = flag.lstrip("-").replace("-", "_")
        if name in ("no_requeue", "requeue"):
            found["requeue"] = name == "requeue"
        elif name in BY_NAME and BY_NAME[name].flag is not None:
            found[name] = value
        elif value is not None:
            others[name.replace("_", "-")] = value
    for rivals in (("mem", "mem_per_cpu", "mem_per_gpu"), ("cpus_per_task", "cpus_per_gpu")):
        if any(name in found for name in rivals):
            for name in rivals:
                options.pop(name, None)
    return {**found, "sbatch": others} if others else found
