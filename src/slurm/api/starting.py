"""Programs are started while no thread forks: a forked child would hold their pipes open.

Who starts a program waits for the end of a pipe that only the program has, and who reads its
output for the end of another. A child that was forked in between has both, for as long as it
lives: `subprocess` closes them for programs, not for children.
"""

import os
import subprocess
import threading
from typing import Any, Sequence

#: A fork does not wait longer than this for a program that does not start.
PATIENCE = 10.0

_turn = threading.RLock()
_taken = threading.local()


def popen(command: Sequence[str], **how: Any) -> "subprocess.Popen[Any]":
    """The same as `subprocess.Popen`."""
    with _turn:
        return subprocess.Popen(command, **how)


def run(command: Sequence[str], **how: Any) -> "subprocess.CompletedProcess[Any]":
    """The same as `subprocess.run`; only the start keeps forks waiting."""
    timeout = how.pop("timeout", None)
    check = how.pop("check", False)
    if how.pop("capture_output", False):
        how.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with popen(command, **how) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:  # raised again; nothing of it stays behind
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _before_fork() -> None:
    _taken.now = _turn.acquire(timeout=PATIENCE)


def _after_fork() -> None:
    if getattr(_taken, "now", False):
        _taken.now = False
        _turn.release()


def _in_the_child() -> None:
    global _turn
    _turn = threading.RLock()
    _taken.now = False


if hasattr(os, "register_at_fork"):  # not in Python 3.6
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_the_child
    )
