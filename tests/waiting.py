"""Waiting in tests: for a condition, or for as long as a condition has to hold."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(what: str, true: Callable[[], object], seconds: float = 90) -> None:
    """Wait for something; a guard against hangs, no measure of speed."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def holds(what: str, true: Callable[[], object], seconds: float) -> None:
    """Look again and again whether something stays true; for what must not happen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert true(), f"it did not hold for {seconds} s: {what}"
        time.sleep(0.05)


def age(since: float, seconds: float) -> None:
    """Wait until a moment of `time.time()` is old enough: for what a clock alone decides."""
    until(f"{seconds} s after a moment", lambda: time.time() - since >= seconds, seconds + 60)
