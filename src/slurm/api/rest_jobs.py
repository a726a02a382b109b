"""Between sbatch's options and slurmrestd's JSON, and from its rows to ours; pure functions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slurm.api.embedded import values
from slurm.api.embedded.sbatch_lines import read_options
from slurm.api.rest_client import number_of
from slurm.api.slurm_answers import NodeStatus, PartitionStatus
from slurm.api.slurm_commands import JobStatus, accounted_path
from slurm.model.states import parse_state
from slurm.model.units import format_duration


class NotOverRest(ValueError):
    """An option that slurmrestd has no word for."""


def _number(value: int) -> dict[str, object]:
    return {"set": True, "number": value}


def _minutes(text: str) -> dict[str, object]:
    seconds = values.read_time(text)
    if seconds is None:
        return {"set": True, "infinite": True}
    return _number(-(-seconds // 60))


def _signal(text: str) -> dict[str, Any]:
    found = re.fullmatch(r"(?:([RB]+):)?([A-Za-z0-9]+)(?:@(\d+))?", text)
    if found is None:
        raise NotOverRest(f"--signal={text} cannot be read")
    flags = {"B": "BATCH_JOB", "R": "ALLOW_RESERVATION_OVERLAP"}
    said = [flags[letter] for letter in found[1] or ""]
    return {
        "kill_warning_signal": found[2],
        "kill_warning_delay": _number(int(found[3] or 60)),
        **({"kill_warning_flags": said} if said else {}),
    }


def _words(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {name: text}


def _whole(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {name: int(text)}


def _memory(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {name: _number(values.read_memory(name, text))}


def _list(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {name: text.split(",")}


def _true(name: str, value: object = True) -> Callable[[str], dict[str, Any]]:
    return lambda _: {name: value}


#: What each option of sbatch becomes in the description of a job.
_OPTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "account": _words("account"),
    "array": _words("array"),
    "chdir": _words("current_working_directory"),
    "comment": _words("comment"),
    "constraint": _words("constraints"),
    "container": _words("container"),
    "cpus-per-task": _whole("cpus_per_task"),
    "cpus-per-gpu": lambda text: {"cpus_per_tres": f"gres/gpu:{text}"},
    "dependency": _words("dependency"),
    "error": _words("standard_error"),
    "exclude": _list("excluded_nodes"),
    "exclusive": lambda text: {"shared": [text or "none"]},
    "gpus": lambda text: {"tres_per_job": f"gres/gpu:{text}"},
    "gpus-per-node": lambda text: {"tres_per_node": f"gres/gpu:{text}"},
    "gpus-per-task": lambda text: {"tres_per_task": f"gres/gpu:{text}"},
    "gres": lambda text: {"tres_per_node": text},
    "hold": _true("hold"),
    "input": _words("standard_input"),
    "job-name": _words("name"),
    "licenses": _words("licenses"),
    "mail-type": lambda text: {"mail_type": text.upper().split(",")},
    "mail-user": _words("mail_user"),
    "mem": _memory("memory_per_node"),
    "mem-per-cpu": _memory("memory_per_cpu"),
    "nice": lambda text: {"nice": int(text or 100)},
    "no-requeue": _true("requeue", False),
    "nodelist": _list("required_nodes"),
    "nodes": _words("nodes"),
    "ntasks": _whole("tasks"),
    "ntasks-per-node": _whole("tasks_per_node"),
    "open-mode": lambda text: {"open_mode": [text.upper()]},
    "output": _words("standard_output"),
    "partition": _words("partition"),
    "qos": _words("qos"),
    "requeue": _true("requeue"),
    "reservation": _words("reservation"),
    "signal": _signal,
    "time": lambda text: {"time_limit": _minutes(text)},
    "time-min": lambda text: {"time_minimum": _minutes(text)},
    "wckey": _words("wckey"),
}
#: What acts in sbatch itself: the environment is sent whole.
_DONE_HERE = ("export", "parsable", "quiet")


def job_of(script: str, env: Mapping[str, str], cwd: str) -> dict[str, Any]:
    """The description of the job that a script's own lines ask for."""
    job: dict[str, Any] = {"current_working_directory": cwd}
    for name, text in read_options(script).items():
        if name in _DONE_HERE:
            continue
        if name == "begin":
            job["begin_time"] = _number(values.read_begin(text, time.time()))
        elif name == "kill-on-invalid-dep":
            job.setdefault("flags", []).append(
                "KILL_INVALID_DEPENDENCY" if text == "yes" else "NO_KILL_INVALID_DEPENDENCY"
            )
        elif name in _OPTIONS:
            job.update(_OPTIONS[name](text))
        else:
            raise NotOverRest(f"--{name} has no word in slurmrestd")
    # Without a PATH the job's own shell finds nothing.
    job["environment"] = [f"{k}={v}" for k, v in env.items() if "\n" not in v] or ["LC_ALL=C"]
    return job


def controller_row(row: Mapping[str, Any]) -> JobStatus:
    """A job of `/jobs/` as every scheduler of ours tells it."""
    array, task = number_of(row.get("array_job_id")), number_of(row.get("array_task_id"))
    rest = str(row.get("array_task_string") or "")
    job_id = str(row["job_id"])
    if array and rest:
        job_id = f"{array}_[{rest}]"
    elif array and task is not None:
        job_id = f"{array}_{task}"
    names = [str(name) for name in row.get("job_state") or ["UNKNOWN"]]
    state = "COMPLETING" if "COMPLETING" in names else names[0]
    return _status(
        job_id,
        state,
        str(row.get("state_reason") or ""),
        row,
        [number_of(row.get(f"{which}_time")) for which in ("submit", "start", "end")],
        int(row.get("restart_cnt") or 0),
        str(row.get("current_working_directory") or ""),
    )


def accounting_query(job_ids: Sequence[str], since: float) -> list[tuple[str, str]]:
    """What accounting's `/jobs/` is asked for these jobs, with all their attempts."""
    # Slurm documents a list with commas, and answers one with "Unspecified error".
    return [
        *(("step", job) for job in job_ids),
        ("start_time", str(int(max(since, 0)))),
        ("show_duplicates", "true"),
        ("skip_steps", "true"),
    ]


def accounting_row(row: Mapping[str, Any]) -> JobStatus:
    """A job of accounting's `/jobs/`."""
    array = row.get("array") or {}
    task = number_of(array.get("task_id"))
    job_id = str(row["job_id"])
    if array.get("job_id") and task is not None:
        job_id = f"{array['job_id']}_{task}"
    state = row.get("state") or {}
    names = [str(name) for name in state.get("current") or ["UNKNOWN"]]
    times = row.get("time") or {}
    return _status(
        job_id,
        names[0],
        str(state.get("reason") or ""),
        row,
        [number_of(times.get(which)) for which in ("submission", "start", "end")],
        0,
        accounted_path(str(row.get("working_directory") or "")),
    )


def _status(
    job_id: str,
    state: str,
    reason: str,
    row: Mapping[str, Any],
    times: list[int | None],
    restarts: int,
    work_dir: str,
) -> JobStatus:
    known = parse_state(state)
    submit, start, end = (value or None for value in times)
    exit_status = row.get("exit_code") or {}
    code = number_of(exit_status.get("return_code"))
    signal = number_of((exit_status.get("signal") or {}).get("id"))
    nodes = str(row.get("nodes") or "")
    return JobStatus(
        job_id=job_id,
        state=known.value if known.value != "UNKNOWN" else state,
        reason="" if reason in ("None", "(null)") else reason,
        nodes="" if nodes == "None assigned" else nodes,
        exit_code=(code or 0) if known.finished else None,
        signal=(signal or None) if known.finished else None,
        submit=submit,
        # A time in the future is a forecast, and no start.
        start=start if state != "PENDING" else None,
        end=end if known.finished else None,
        restarts=restarts,
        work_dir=work_dir,
        name=str(row.get("name") or ""),
    )


def node_row(row: Mapping[str, Any]) -> NodeStatus:
    """A node of `/nodes/`."""
    return NodeStatus(
        name=str(row["name"]),
        state="+".join(row.get("state") or ()),
        cpus=int(row.get("cpus") or 0),
        allocated_cpus=int(row.get("alloc_cpus") or 0),
        memory=int(row.get("real_memory") or 0),
        allocated_memory=int(row.get("alloc_memory") or 0),
        gres=str(row.get("gres") or ""),
        features=tuple(row.get("features") or ()),
        partitions=tuple(row.get("partitions") or ()),
        reason=str(row.get("reason") or ""),
    )


def partition_row(row: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> PartitionStatus:
    """A partition of `/partitions/`, with the use of its nodes counted from those."""
    mine = [node for node in nodes if row["name"] in node["partitions"]]
    used = [node for node in mine if node["state"].startswith(("ALLOCATED", "MIXED"))]
    idle = [node for node in mine if node["state"] == "IDLE"]
    total, busy = sum(n["cpus"] for n in mine), sum(n["allocated_cpus"] for n in mine)
    free = sum(n["cpus"] - n["allocated_cpus"] for n in [*used, *idle])
    about = row.get("partition") or {}
    return PartitionStatus(
        name=str(row["name"]),
        default="DEFAULT" in (about.get("flags") or row.get("flags") or ()),
        available="+".join(about.get("state") or ()).lower(),
        time_limit=_limit(row, "maximums"),
        default_time=_limit(row, "defaults") if number_of(_time(row, "defaults")) else "",
        allocated_nodes=len(used),
        idle_nodes=len(idle),
        other_nodes=len(mine) - len(used) - len(idle),
        nodes=len(mine),
        allocated_cpus=busy,
        idle_cpus=free,
        other_cpus=total - busy - free,
        cpus=total,
    )


def _time(row: Mapping[str, Any], which: str) -> object:
    return (row.get(which) or {}).get("time")


def _limit(row: Mapping[str, Any], which: str) -> str:
    minutes = number_of(_time(row, which))
    return "infinite" if minutes is None else format_duration(minutes * 60)
