"""Done-callbacks are the user's code: they run on a thread of their own, never the watcher's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class DoneCalls:
    """Runs done-callbacks in order on one thread, which is started when the first is due."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, callback: Callable[[], None]) -> None:
        """Run a callback when those before it are through."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._work, name="slurm-callbacks", daemon=True
                )
                self._thread.start()
        self._queue.put(callback)

    def _work(self) -> None:
        while True:
            self._queue.get()()


done_calls = DoneCalls()
