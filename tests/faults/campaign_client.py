"""The client of a campaign's run, and the one that judges it: programs of their own.

`python campaign_client.py work ORDER` submits what the order says and waits for it;
`python campaign_client.py judge BASE` prints what became of every run below a base directory.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm import Cluster, Retry, errors, task, workflow

#: How long the client waits for its jobs, and a judge for one.
PATIENCE, JUDGED = 25.0, 100.0


# ---- what runs on the nodes ---------------------------------------------------------------------


def note(marks: str, label: str, what: str, nonce: str) -> None:
    """Append one line about an execution; the file lies where nothing is filled up."""
    job = os.environ["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    line = f"{label} {what} {nonce} {job} {restart} {time.monotonic()}\n"
    fd = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)


def work(label: str, end: str, seconds: float, marks: str) -> str:
    nonce = os.urandom(4).hex()
    before = Path(marks).read_text() if os.path.exists(marks) else ""
    note(marks, label, "begin", nonce)
    # Not time.sleep: under libfaketime it fails.
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        select.select([], [], [], left)
    if end == "raise" or (end == "flaky" and f"{label} begin " not in before):
        raise ValueError(label)
    if end == "exit":
        os._exit(3)
    note(marks, label, "end", nonce)
    return nonce


def add(label: str, values: list[str], marks: str) -> str:
    nonce = os.urandom(4).hex()
    note(marks, label, "begin", nonce)
    note(marks, label, "end", nonce)
    return nonce


def flow(call: dict[str, Any], marks: str) -> Any:
    nonce = os.urandom(4).hex()
    label = f"{call['name']}.0"
    note(marks, label, "begin", nonce)
    kids = task(work, job_name=f"{call['name']}kids", **retried(call)).map(
        items(call, f"{call['name']}kids", marks)
    )
    total = task(add, job_name=f"{call['name']}sum")(f"{call['name']}sum.0", kids, marks)  # type: ignore[arg-type]
    note(marks, label, "end", nonce)
    return {"kids": list(kids), "total": total}


def items(call: dict[str, Any], name: str, marks: str) -> list[tuple[Any, ...]]:
    return [(f"{name}.{n}", end, call["seconds"], marks) for n, end in enumerate(call["ends"])]


def retried(call: dict[str, Any]) -> dict[str, Any]:
    return {"retry": Retry(times=call["retry"])} if call["retry"] else {}


# ---- the client ---------------------------------------------------------------------------------


OPTIONS: dict[str, Any] = {"mem": "60M", "time": "10min"}


def submit(cluster: Cluster, call: dict[str, Any], marks: str) -> Any:
    name = call["name"]
    options = {**OPTIONS, "cache": True if call["cached"] else None}
    if call["kind"] == "workflow":
        return workflow(flow, job_name=name, **OPTIONS)(call, marks)
    function = task(work, job_name=name, **options, **retried(call))
    if call["kind"] == "task":
        return function(*items(call, name, marks)[0])
    if call["kind"] == "batch":
        with cluster.batch():
            return [function(*item) for item in items(call, name, marks)]
    pack: dict[str, Any] = {"pack": 6} if call["kind"] == "packed" else {}
    return function.map(items(call, name, marks), **pack)


def outcome(job: Any, timeout: float) -> str:
    """A value with the execution that made it, the name of the error, or `open`."""
    try:
        value = job.result(timeout)
    except errors.SlurmError as error:
        return type(error).__name__
    except TimeoutError:
        return "open"
    except ValueError as error:
        return f"ValueError {error}"
    return f"value {json.dumps(value, sort_keys=True)}"


def each(job: Any) -> list[Any]:
    return list(job) if hasattr(job, "__len__") else [job]


def work_through(order: dict[str, Any]) -> None:
    """Submit all calls, then ask for each outcome; every step is noted in a file."""
    jobs: dict[str, Any] = {}
    told: dict[tuple[str, int], str] = {}
    with open(order["said"], "a", buffering=1) as said:

        def say(began: float, **words: Any) -> None:
            said.write(json.dumps({**words, "seconds": time.monotonic() - began}) + "\n")

        with Cluster(**order["reach"]) as cluster:
            for call in order["calls"]:
                began = time.monotonic()
                try:
                    jobs[call["name"]] = job = submit(cluster, call, order["marks"])
                    say(began, name=call["name"], run=(job[0] if type(job) is list else job).run)
                except errors.SlurmError as error:
                    say(began, name=call["name"], refused=type(error).__name__, why=str(error))
            end = time.monotonic() + PATIENCE
            for name, job in jobs.items():
                for index, one in enumerate(each(job)):
                    began = time.monotonic()
                    timeout = max(0.1, end - began)
                    told[name, index] = outcome(one, timeout)
                    say(began, label=f"{name}.{index}", told=told[name, index], timeout=timeout)
            for call in order["calls"]:
                if call["cached"]:
                    ask_again(call, order["marks"], told, say)


def ask_again(
    call: dict[str, Any],
    marks: str,
    told: dict[tuple[str, int], str],
    say: Callable[..., None],
) -> None:
    """Make those calls once more whose values are known; a value that was kept is the same."""
    for index, item in enumerate(items(call, call["name"], marks)):
        name = f"{call['name']}again{index}"
        if told.get((call["name"], index), "").startswith("value"):
            began = time.monotonic()
            try:
                job = task(work, job_name=name, cache=True, **OPTIONS)(*item)
                if not job.cached:
                    say(began, name=name, run=job.run)
                first = f"{call['name']}.{index}" if job.cached else f"{name}.0"
                say(began, label=first, told=outcome(job, PATIENCE), timeout=PATIENCE)
            except errors.SlurmError as error:
                say(began, name=name, refused=type(error).__name__, why=str(error))


# ---- the judge ----------------------------------------------------------------------------------


def judge(base: str) -> dict[str, list[str]]:
    """What a new client says about each run and about each child of a workflow, asked twice."""
    from slurm import outcome as truth
    from slurm import pace, watcher

    # All is mended: what is not there soon will never be.
    truth.RESULT_GRACE = 15.0
    pace.POLL, pace.FIRST_POLL, watcher.SWEEP = 2.0, 1.0, 1.0
    cluster = Cluster(job_base_dir=base)
    end = time.monotonic() + JUDGED
    return {str(path.relative_to(base)): _of_run(cluster, path, end) for path in runs(base)}


def _of_run(cluster: Cluster, path: Path, end: float) -> list[str]:
    try:
        jobs = each(cluster.attach(path))
    except (errors.JobLost, errors.RunNotFound) as error:
        return [type(error).__name__]
    told = [outcome(job, max(1.0, end - time.monotonic())) for job in jobs]
    again = [outcome(job, 1.0) for job in jobs]
    return [a if a == b else f"{a}, then {b}" for a, b in zip(told, again, strict=True)]


def runs(base: str) -> list[Path]:
    """All runs, and the children of workflows."""
    top = [path for path in Path(base).iterdir() if not path.name.startswith(".")]
    return sorted(top + [path for run in top for path in run.glob("tasks/*/*") if path.is_dir()])


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work_through(json.loads(sys.argv[2]))
    else:
        print(json.dumps(judge(sys.argv[2])))
    sys.stdout.flush()
