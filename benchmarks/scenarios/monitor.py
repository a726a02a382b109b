"""What it costs to watch a full queue, and how soon a scrape is answered meanwhile."""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping

from benchmarks.figures import Row, Section
from benchmarks.ground import Ground
from benchmarks.peer import Peer
from slurm.api.slurm_environ import command_env
from slurm.monitor.queue import queue_command

ARRAYS, TASKS = 4, 10_000
CPU_MS, MEMORY_MIB, SCRAPE_MS = 500.0, 150.0, 50.0
SCRAPERS = 20


def watched(ground: Ground) -> Section:
    """The exporter on 40,000 jobs that wait, each of them a record of its own."""
    room = [f"MaxArraySize={TASKS + 1}", f"MaxJobCount={3 * ARRAYS * TASKS}"]
    env = ground.cluster(nodes=4, accounting=False, extra_conf=room)
    fill_queue(env)
    exporter = ground.peer("exporter", "exporter.py", env=env)
    first = exporter.play("0")
    seconds = ground.times(30, 6)
    raw = [_squeue(env) for _ in range(ground.times(6, 2))]
    alone = exporter.play(str(seconds))
    single = _scraped(exporter, seconds, 1)
    many = _scraped(exporter, seconds, SCRAPERS)
    ground.end_peers()
    rows = (
        Row("raw: squeue with the same columns, CPU", tuple(raw)),
        Row("ours: a collection, CPU", tuple(_ms(alone["cpu"])), limit=CPU_MS),
        Row("ours: the first collection, CPU", tuple(_ms(first["cpu"]))),
        Row(
            "memory of the exporter at most", (many[0]["peak_kib"] / 1024,), "MiB", None, MEMORY_MIB
        ),
        Row("a scrape, while collecting without a pause", tuple(single[1])),
        Row("... 99 of 100 of them within", (_p99(single[1]),), limit=SCRAPE_MS),
        Row(f"... with {SCRAPERS} scrapers, 99 of 100 within", (_p99(many[1]),)),
        Row("commands of Slurm a collection, one scraper", (single[0]["calls"],), ""),
        Row(
            f"commands of Slurm a collection, {SCRAPERS} scrapers",
            (many[0]["calls"],),
            "",
            None,
            single[0]["calls"],
        ),
    )
    return Section(
        f"The exporter and {first['jobs']:,} jobs in the queue",
        rows,
        (
            "Arrays whose tasks were taken apart, so that each task is a record for Slurm. CPU is "
            "that of the exporter and of the commands it runs, metrics made. In service a "
            "collection takes at most a twentieth of the time; here the next begins at once.",
        ),
    )


def fill_queue(env: Mapping[str, str]) -> None:
    """Put jobs into the queue that wait for hours: four arrays, taken apart task by task."""
    for number in range(ARRAYS):
        words = ["sbatch", "--parsable", "--output=/dev/null", f"--job-name=sweep{number}"]
        words += ["--begin=now+10hour", f"--array=0-{TASKS - 1}", "--wrap", "true"]
        done = subprocess.run(words, env=dict(env), capture_output=True, timeout=60, check=True)
        # A change to all tasks but one gives each of them a record of its own.
        job = f"jobid={int(done.stdout)}_[0-{TASKS - 2}]"
        change = ["scontrol", "update", job, f"nice={number + 1}"]
        subprocess.run(change, env=dict(env), capture_output=True, timeout=120, check=True)


def _squeue(env: Mapping[str, str]) -> float:
    before = sum(os.times()[2:4])
    subprocess.run(
        queue_command(), env=command_env(env), stdout=subprocess.DEVNULL, timeout=120, check=True
    )
    return 1000 * (sum(os.times()[2:4]) - before)


def _scraped(exporter: Peer, seconds: float, scrapers: int) -> tuple[dict[str, float], list[float]]:
    """What the exporter tells of a time in which it was scraped, and what each scrape took."""
    took: list[float] = []
    over = threading.Event()
    port = exporter.facts["port"]
    threads = [
        threading.Thread(target=_scrape, args=(port, scrapers * 0.01, over, took))
        for _ in range(scrapers)
    ]
    for thread in threads:
        thread.start()
    try:
        told = exporter.play(str(seconds))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return told, took


def _scrape(port: int, pause: float, over: threading.Event, took: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not over.wait(pause):
        began = time.perf_counter()
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        took.append(1000 * (time.perf_counter() - began))
    connection.close()


def _ms(seconds: list[float]) -> list[float]:
    return [1000 * value for value in seconds]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
