"""The inbox of an allocation: every order gets a number of its own, whoever leaves it."""

from __future__ import annotations

import threading
from pathlib import Path

from slurm.runner import inbox


def test_orders_are_numbered_and_read_in_turn(tmp_path: Path) -> None:
    folder = str(tmp_path / "inbox")
    assert [inbox.put_order(folder, {"run": name}) for name in "ab"] == [1, 2]
    orders, words = inbox.read_inbox(folder, 1)
    assert orders == [(2, {"run": "b"})]
    assert words == []


def test_orders_left_at_the_same_time_get_different_numbers(tmp_path: Path) -> None:
    folder, numbers = str(tmp_path / "inbox"), []

    def leave() -> None:
        for _ in range(20):
            numbers.append(inbox.put_order(folder, {}))

    threads = [threading.Thread(target=leave) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 81))


def test_words_lie_beside_the_orders(tmp_path: Path) -> None:
    folder = str(tmp_path / "inbox")
    inbox.tell(folder, [inbox.CLOSE, "cancel-4_7"])
    inbox.put_order(folder, {})
    assert sorted(inbox.read_inbox(folder, 0)[1]) == ["cancel-4_7", "close"]


def test_an_inbox_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert inbox.read_inbox(str(tmp_path / "no"), 0) == ([], [])
