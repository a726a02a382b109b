"""The locks of the client have names and one order; the check finds each way to break it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import slurm
from slurm import locks
from slurm.donecalls import DoneCalls
from waiting import until

SOURCE = Path(str(slurm.__file__)).parent
#: Who makes locks of its own, and why they are not in the order of `slurm.locks`.
OTHERS = {
    "locks.py": "makes them",
    "runner/": "runs in the job, which starts without the client and without threading",
    "api/remote.py": "the agent's, on the login node, on Python 3.6",
    "api/pushes.py": "the agent's, on the login node, on Python 3.6",
    "api/starting.py": "the agent's, too; held for the start of a program, taken first by a fork",
    "submitit/core/signals.py": "in the job, taken in signal handlers, where nothing may wait",
    "monitor/": "a program of its own, which watches no jobs",
    "web/": "a program of its own, which watches no jobs",
}
MAKERS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "allocate_lock", "Barrier"}


def _made(path: Path) -> list[int]:
    """The lines in which a module makes a lock of the standard library."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value
            named = isinstance(module, ast.Name) and module.id in ("threading", "_thread")
            if named and node.func.attr in MAKERS:
                found.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module in ("threading", "_thread"):
            found += [node.lineno for alias in node.names if alias.name in MAKERS]
    return found


def test_every_lock_of_the_client_has_a_name_in_the_order() -> None:
    wrong, used = [], set()
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        reason = next((known for known in OTHERS if name.startswith(known)), None)
        lines = _made(path)
        if lines and reason is None:
            wrong.append(f"{name}:{lines[0]}")
        elif lines:
            used.add(reason)
    assert wrong == [], "make them with slurm.locks"
    assert used == set(OTHERS)


def test_the_page_has_the_locks_in_their_order() -> None:
    page = (SOURCE.parent.parent / "docs" / "architecture.md").read_text()
    section = page.partition("## Locks and threads")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `([a-z.]+)` \|", section, re.MULTILINE)) == locks.ORDER
    taken = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(
            r'(?:locks\.r?lock|locks\.condition|_lock_name =)\s*\(?"([a-z.]+)"', path.read_text()
        )
    } | {"debug.turn", "job"}
    assert taken == set(locks.ORDER)


def refused(text: str, break_it: Callable[[], object]) -> None:
    assert locks.CHECKED
    with pytest.raises(locks.WrongOrder, match=text):
        break_it()
    assert len(locks.wrong) == 1 and "test_locks.py" in locks.wrong[0]
    locks.wrong.clear()
    assert locks._held() == []


def test_a_wrong_order_is_refused() -> None:
    outer, inner = locks.lock("watcher.reading"), locks.condition("job")

    def wrong() -> None:
        with inner, outer:
            pass

    with outer, inner, inner:
        pass
    refused("watcher.reading was taken while job was held", wrong)


def test_two_of_a_kind_are_refused_but_for_jobs() -> None:
    one, two = locks.lock("watcher"), locks.lock("watcher")

    def wrong() -> None:
        with one, two:
            pass

    with locks.condition("job"), locks.condition("job"):
        pass
    refused("watcher was taken while watcher was held", wrong)


def test_a_wait_with_another_lock_held_is_refused() -> None:
    outer, inner = locks.lock("watcher"), locks.condition("job")

    def wrong() -> None:
        with outer, inner:
            inner.wait(10)

    with inner:
        assert not inner.wait_for(lambda: False, 0.01)
    refused("a wait for job while watcher is held", wrong)


def test_user_code_is_called_with_turns_only() -> None:
    def wrong() -> None:
        with locks.condition("packed"):
            locks.refuse_held("a callback was called")

    with locks.rlock("value.turn"):
        locks.refuse_held("a value was unpickled")
    refused("a callback was called while packed is held", wrong)


def test_unasked_for_they_are_the_standard_librarys_own() -> None:
    program = (
        "import sys, slurm.locks as locks\n"
        "assert 'threading' not in sys.modules, 'imported before a lock is made'\n"
        "import threading\n"
        "assert type(locks.lock('watcher')) is type(threading.Lock())\n"
        "assert type(locks.rlock('watcher')) is type(threading.RLock())\n"
        "made = threading.Condition()\n"
        "assert locks.adopt('job', made) is made\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "SLURM_SDK_CHECK_LOCKS"}
    subprocess.run(
        [sys.executable, "-S", "-E", "-c", program], env=env, check=True, cwd=SOURCE / ".."
    )


def waits(stop: threading.Event) -> None:
    stop.wait(90)


def test_a_callback_that_takes_long_keeps_its_thread_and_no_other() -> None:
    calls, stop, heard = DoneCalls(), threading.Event(), list[int]()
    calls.run(lambda: waits(stop))
    for number in range(100):
        calls.run(lambda number=number: heard.append(number))
    until("the others were called", lambda: len(heard) == 100)
    assert heard == list(range(100))
    calls.run(lambda: waits(stop))
    calls.run(lambda: heard.append(100))
    until("and once more", lambda: len(heard) == 101)
    stop.set()
    until("all are through", lambda: calls.drain(0))


def test_a_drain_has_a_bound_and_says_so() -> None:
    calls, stop = DoneCalls(), threading.Event()
    with calls.telling():
        assert not calls.drain(0)
    calls.run(lambda: waits(stop))
    assert not calls.drain(0)
    stop.set()
    until("it is through", lambda: calls.drain(0))
