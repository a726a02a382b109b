"""Calls public methods at random, from threads, asyncio tasks and forked children, for a while.

`python stress.py BASE SECONDS SEED` prints one line of JSON: what was called how often, what was
raised, and whether every done-callback was called once. It ends itself with all stacks when it
hangs. A program of its own, so that it runs under any interpreter and with `-X dev`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import faulthandler
import io
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import slurm
from slurm import ArrayJob, Cluster, Job, locks, task
from slurm.donecalls import done_calls

THREADS, TASKS = 8, 50
#: What a thread may take longer than the time it was given, on a busy machine.
PATIENCE = 400


@task
def number(x: int) -> int:
    if x == 13:
        raise ValueError("unlucky")
    return x


@task
def nap(seconds: float) -> float:
    print("asleep")
    time.sleep(seconds)
    return seconds


def plain(x: int) -> int:
    return x


def chunky(x: int) -> list[int]:
    return list(range(x))


class State:
    """What all threads share: handles, counts, and which callbacks are owed."""

    def __init__(self, base: str, end: float) -> None:
        self.base, self.end = base, end
        self.cluster = Cluster("embedded", job_base_dir=base, time="5min")
        self.lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self.unknown: list[str] = []
        self.owed: dict[int, tuple[Any, int]] = {}
        self.jobs: list[Job[Any]] = []
        self.arrays: list[ArrayJob[Any]] = []
        self.pools: list[Any] = []
        self.room = threading.Semaphore(3)  # so many submissions at once: each is a process

    def owe(self, future: Any) -> None:
        """Add a done-callback, and note that it is to be called once."""
        with self.lock:
            key = len(self.owed)
            self.owed[key] = (future, 0)
        future.add_done_callback(lambda _: self.paid(key))

    def paid(self, key: int) -> None:
        with self.lock:
            future, count = self.owed[key]
            self.owed[key] = (future, count + 1)
        if key % 7 == 0:
            sys.exit("a callback may do what it likes")

    def note(self, name: str, error: BaseException | None) -> None:
        with self.lock:
            self.calls[name] += 1
            if error is None:
                return
            kind = type(error).__name__
            self.raised[kind] += 1
            if not documented(error):
                import traceback

                self.unknown.append(f"{name}: {''.join(traceback.format_exception(error))}")


def documented(error: BaseException) -> bool:
    """What the pages say that these calls raise here."""
    if isinstance(error, (slurm.SlurmError, TimeoutError, asyncio.TimeoutError)):
        return not isinstance(error, slurm.errors.RunDirError)
    cancelled = (concurrent.futures.CancelledError, asyncio.CancelledError)
    if isinstance(error, (concurrent.futures.TimeoutError, *cancelled)):
        return True
    text = str(error)
    if isinstance(error, SystemExit):  # of our own callback, called by who adds it to what is over
        return text == "a callback may do what it likes"
    return text == "unlucky" or "cannot schedule new futures after" in text


def short(rng: random.Random) -> float:
    return rng.choice((0, 0.001, 0.01, 0.1))


# ---- what is called: by the name of the method --------------------------------------------------

Call = Callable[[State, random.Random, Any], object]


def submitted(state: State, make: Callable[[], Any], keep: list[Any]) -> None:
    """Submit, if not too many do; the handle is kept for others to ask."""
    if not state.room.acquire(blocking=False):
        return
    try:
        with state.cluster:
            made = make()
        with state.lock:
            keep.append(made)
            del keep[:-40]
    finally:
        state.room.release()


JOB: dict[str, Call] = {
    "add_done_callback": lambda s, r, j: s.owe(j),
    "cancelled": lambda s, r, j: j.cancelled(),
    "cancel": lambda s, r, j: j.cancel() if r.random() < 0.02 else None,
    "done": lambda s, r, j: j.done(),
    "exception": lambda s, r, j: j.exception(short(r)),
    "get_result": lambda s, r, j: j.get_result(short(r)),
    "get_status": lambda s, r, j: j.get_status(),
    "hold": lambda s, r, j: j.hold() if r.random() < 0.02 else None,
    "release": lambda s, r, j: j.release(),
    "requeue": lambda s, r, j: j.requeue() if r.random() < 0.02 else None,
    "signal": lambda s, r, j: j.signal(0) if r.random() < 0.05 else None,
    "log_lines": lambda s, r, j: list(j.log_lines(3)),
    "result": lambda s, r, j: j.result(short(r)),
    "running": lambda s, r, j: j.running(),
    "snapshot": lambda s, r, j: j.snapshot(),
    "stderr": lambda s, r, j: j.stderr(),
    "stdout": lambda s, r, j: j.stdout(),
    "tail": lambda s, r, j: j.tail(2, output=io.StringIO()),
    "wait": lambda s, r, j: j.wait(short(r)),
    "repr": lambda s, r, j: (repr(j), j._repr_html_()),
    **{
        name: (lambda s, r, j, name=name: getattr(j, name))  # type: ignore[misc]
        for name in (
            "attempt", "bare", "exit_code", "history", "id", "known_state", "node", "path",
            "reason", "run", "script", "settled", "state", "succeeded", "timings",
            "cached", "cache_key",
        )
    },
}  # fmt: skip

ARRAY: dict[str, Call] = {
    "as_completed": lambda s, r, a: [j.id for j in a.as_completed(short(r))],
    "cancel": lambda s, r, a: a[:1].cancel() if r.random() < 0.05 else None,
    "count": lambda s, r, a: a.count(a[0]),
    "index": lambda s, r, a: a.index(a[0]),
    "done": lambda s, r, a: a.done(),
    "failed": lambda s, r, a: len(a.failed),
    "get_results": lambda s, r, a: a.get_results(short(r)),
    "known_states": lambda s, r, a: a.known_states(),
    "members": lambda s, r, a: len(a.members),
    "partial_results": lambda s, r, a: a.partial_results(),
    "progress": lambda s, r, a: str(a.progress),
    "results": lambda s, r, a: values(a, short(r), r.choice(("items", "completed"))),
    "retry_failed": lambda s, r, a: (
        submitted(s, a.retry_failed, s.arrays) if r.random() < 0.02 else None
    ),
    "states": lambda s, r, a: a.states,
    "wait": lambda s, r, a: a.wait(short(r)),
    "rates": lambda s, r, a: getattr(a, "rates", None),
    "repr": lambda s, r, a: (repr(a), a._repr_html_(), len(a), [j.name for j in a]),
}


def values(array: ArrayJob[Any], timeout: float, order: Any) -> None:
    found = array.results(timeout, return_exceptions=True, order=order)
    assert not any(isinstance(value, TimeoutError) for value in found), found
    assert len(found) == len(array)


def batch(state: State, rng: random.Random, _: Any) -> None:
    """Collect calls; some blocks raise, and in some a result is asked for."""

    def make() -> Job[Any]:
        with state.cluster.batch():
            jobs = [number(rng.randrange(20)) for _ in range(3)]
            state.owe(jobs[0]) if rng.random() < 0.3 else None
            if rng.random() < 0.3:
                concurrent.futures.wait(jobs[:1], short(rng))  # type: ignore[type-var]
            if rng.random() < 0.2:
                raise ValueError("unlucky")
        return jobs[1]

    submitted(state, make, state.jobs)


def pool_of(state: State, rng: random.Random) -> Any:
    with state.lock:
        return rng.choice(state.pools)


def use_pool(state: State, rng: random.Random, _: Any) -> None:
    future = pool_of(state, rng).submit(plain, rng.randrange(100))
    state.owe(future)
    future.result(short(rng))


def end_pool(state: State, rng: random.Random, _: Any) -> None:
    """Shut a pool down, now and then, and put another in its place."""
    if rng.random() < 0.02 and state.room.acquire(blocking=False):
        try:
            fresh = state.cluster.executor(max_workers=1)
            with state.lock:
                at = rng.randrange(len(state.pools))
                old, state.pools[at] = state.pools[at], fresh
            old.shutdown(wait=rng.random() < 0.3, cancel_futures=rng.random() < 0.5)
        finally:
            state.room.release()


def copy(state: State, rng: random.Random, _: Any) -> None:
    name = f"{state.base}/copied-{rng.randrange(10**9)}"
    state.cluster.put(__file__, name)
    state.cluster.get(name, f"{name}.back")
    os.unlink(name)
    os.unlink(f"{name}.back")


def known(state: State, rng: random.Random) -> Job[Any]:
    with state.lock:
        return rng.choice(state.jobs)


CLUSTER: dict[str, Call] = {
    "accounting": lambda s, r, c: c.accounting([known(s, r)]),
    "attach": lambda s, r, c: repr(c.attach(known(s, r).run)),
    "backend": lambda s, r, c: c.backend.kind,
    "base": lambda s, r, c: c.base,
    "batch": batch,
    "cancel": lambda s, r, c: c.cancel([known(s, r)]) if r.random() < 0.01 else None,
    "clear_cache": lambda s, r, c: c.clear_cache(),
    "diagnose": lambda s, r, c: c.diagnose(),
    "directory": lambda s, r, c: c.directory,
    "explain": lambda s, r, c: str(c.explain(number)(1)),
    "put, get": copy,
    "get_job": lambda s, r, c: c.get_job(known(s, r).bare),
    "host": lambda s, r, c: c.host,
    "queue": lambda s, r, c: len(c.queue()),
    "run": lambda s, r, c: c.run(["true"]),
    "submit": lambda s, r, c: submitted(s, lambda: c.submit(nap)(r.random()), s.jobs),
    "with": lambda s, r, c: submitted(s, lambda: number(r.randrange(20)), s.jobs),
    "map": lambda s, r, c: submitted(
        s, lambda: number.map([r.randrange(20) for _ in range(4)]), s.arrays
    ),
    "map, pack": lambda s, r, c: submitted(s, lambda: number.map(range(10, 18), pack=4), s.arrays),
    "executor": end_pool,
    "repr": lambda s, r, c: (repr(c), c._repr_html_()),
}

POOL: dict[str, Call] = {
    "submit": use_pool,
    "map": lambda s, r, p: list(pool_of(s, r).map(plain, range(3), timeout=1 + short(r))),
    "jobs": lambda s, r, p: len(pool_of(s, r).jobs),
    "shutdown": end_pool,
}

WAIT: dict[str, Call] = {
    "wait": lambda s, r, _: concurrent.futures.wait([known(s, r), known(s, r)], short(r)),
    "as_completed": lambda s, r, _: list(
        concurrent.futures.as_completed([known(s, r), known(s, r)], short(r))
    ),
}

#: Each kind as often as its methods deserve.
KINDS: list[tuple[str, dict[str, Call], float]] = [
    ("Job", JOB, 0.5),
    ("ArrayJob", ARRAY, 0.25),
    ("Cluster", CLUSTER, 0.12),
    ("Executor", POOL, 0.06),
    ("futures", WAIT, 0.07),
]


def one(state: State, rng: random.Random) -> None:
    kind, calls, _ = rng.choices(KINDS, [weight for _, _, weight in KINDS])[0]
    name = rng.choice(list(calls))
    with state.lock:
        array = rng.choice(state.arrays)
        single = rng.choice(state.jobs)
    of = {"Job": single, "ArrayJob": array, "Cluster": state.cluster}.get(kind)
    if kind == "Job" and rng.random() < 0.3:
        of = array[rng.randrange(len(array))]
    error: BaseException | None = None
    try:
        calls[name](state, rng, of)
    except BaseException as raised:
        error = raised
    state.note(f"{kind}.{name}", error)


# ---- who calls ----------------------------------------------------------------------------------


def thread(state: State, seed: int) -> None:
    rng = random.Random(seed)
    while time.monotonic() < state.end:
        one(state, rng)


async def awaits(state: State, seed: int) -> None:
    rng = random.Random(seed)
    ways: dict[str, Callable[[], Any]] = {
        "await job": lambda: asyncio.wait_for(known(state, rng), short(rng) + 0.01),
        "await array": lambda: asyncio.wait_for(rng.choice(state.arrays), short(rng) + 0.01),
        "wrap_future": lambda: asyncio.wait_for(
            asyncio.shield(asyncio.wrap_future(known(state, rng))), short(rng) + 0.01
        ),
        "to_thread": lambda: asyncio.to_thread(known(state, rng).exception, short(rng)),
        "batch": lambda: in_batch(state, rng),
    }
    while time.monotonic() < state.end:
        name = rng.choices(list(ways), [5, 3, 3, 3, 0.1])[0]
        error: BaseException | None = None
        try:
            await ways[name]()
        except BaseException as raised:
            error = raised
        state.note(f"asyncio.{name}", error)
        await asyncio.sleep(rng.random() * 0.05)


async def in_batch(state: State, rng: random.Random) -> None:
    if state.room.acquire(blocking=False):
        try:
            with state.cluster, state.cluster.batch():
                jobs = [number(rng.randrange(12)) for _ in range(2)]
                await asyncio.sleep(0.02)
                assert all(job.key is None for job in jobs), "a batch of another task"
        finally:
            state.room.release()


async def tasks(state: State, seed: int) -> None:
    await asyncio.gather(*(awaits(state, seed + n) for n in range(TASKS)))


def child(state: State, seed: int, pipe: int) -> None:
    """What a forked child does with the parent's jobs, and with one of its own."""
    # Not dump_traceback_later: it would wait for the parent's own such thread.
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(300)
    rng = random.Random(seed)
    state.calls.clear()
    state.raised.clear()
    state.unknown.clear()
    state.owed.clear()
    state.lock = threading.Lock()
    state.room = threading.Semaphore(3)
    state.pools = [state.cluster.executor(max_workers=1)]
    end = time.monotonic() + 2
    while time.monotonic() < end:
        one(state, rng)
    with state.cluster:
        own = number(5)
    state.owe(own)
    assert own.result(150) == 5  # many jobs of the parent may stand before it
    owed = settle_up(state, 60)
    report = {"calls": sum(state.calls.values()), "unknown": state.unknown, "lost": owed}
    os.write(pipe, json.dumps(report).encode()[:60000])


def fork(state: State, seed: int) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child(state, seed, writing)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as f:
        data = f.read()
    status = os.waitpid(pid, 0)[1]
    return {"status": status, **(json.loads(data) if data else {})}


def settle_up(state: State, seconds: float) -> int:
    """End what is open; how many callbacks are still owed, or were called twice, after that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with state.lock:
            open_ones = [future for future, count in state.owed.values() if count != 1]
        if not open_ones:
            return 0
        jobs = [one for one in open_ones if isinstance(one, Job) and not one.settled]
        with contextlib.suppress(slurm.SlurmError):
            state.cluster.cancel([job for job in jobs if job.state.phase != "finished"][:50])
        time.sleep(0.2)
        done_calls.drain(time.monotonic() + 1)
    with state.lock:
        wrong = [(future, count) for future, count in state.owed.values() if count != 1]
    for future, count in wrong[:5]:
        print("owed:", future, count, file=sys.stderr)
    return len(wrong)


def main() -> None:
    base, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    faulthandler.enable()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # with -X dev it tells of slow steps
    faulthandler.dump_traceback_later(seconds + PATIENCE, exit=True)
    begun = time.monotonic()
    state = State(base, begun + 10**6)
    with state.cluster:
        state.jobs += [number(n) for n in (1, 13)] + [nap(2), nap(seconds)]
        state.arrays += [number.map(range(10, 15)), nap.map([0.5, 3, seconds / 2])]
        state.arrays.append(number.map(range(5, 21), pack=8))
    state.pools += [state.cluster.executor(max_workers=1) for _ in range(2)]
    state.end = time.monotonic() + seconds
    workers = [threading.Thread(target=thread, args=(state, seed + n)) for n in range(THREADS)]
    loop = threading.Thread(target=lambda: asyncio.run(tasks(state, seed + 1000)))
    for worker in (*workers, loop):
        worker.start()
    children: list[Any] = []
    while time.monotonic() < state.end:
        children.append(fork(state, seed + 5000 + len(children)))
        time.sleep(0.5)
    for worker in (*workers, loop):
        worker.join()
    for pool in state.pools:
        pool.shutdown(wait=True, cancel_futures=True)
    lost = settle_up(state, 60)
    report = {
        "python": sys.version.split()[0],
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "seconds": round(time.monotonic() - begun, 1),
        "calls": sum(state.calls.values()),
        "kinds": dict(sorted(state.calls.items())),
        "callbacks": len(state.owed),
        "lost": lost,
        "raised": dict(state.raised.most_common()),
        "unknown": state.unknown[:20],
        "children": len(children),
        "child_calls": sum(one.get("calls", 0) for one in children),
        "bad_children": [c for c in children if c["status"] or c["unknown"] or c["lost"]],
        "wrong_order": locks.wrong[:5],
    }
    Path(base, "report.json").write_text(json.dumps(report))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
