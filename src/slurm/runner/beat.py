"""The runner's beat: one small write per node every ten seconds shows that the node is alive."""

from __future__ import annotations

import _thread  # all that is needed of `threading`, which is slow to import
import os
import time

from slurm import rundir

INTERVAL = 10.0


class Beat:
    """Writes the node's beat while the function runs; processes of one node share the file."""

    def __init__(self, run: str) -> None:
        self._path = os.path.join(run, rundir.BEATS, rundir.host_token())
        self._alive = _thread.allocate_lock()

    def __enter__(self) -> Beat:
        self._alive.acquire()
        _thread.start_new_thread(self._run, ())
        return self

    def __exit__(self, *_: object) -> None:
        self._alive.release()

    def _run(self) -> None:
        while not self._alive.acquire(timeout=INTERVAL):
            self.beat()

    def beat(self) -> None:
        """Write one beat, unless another process of the node has just done so."""
        try:
            # Both times are of this host's clock: another process has beaten just now. Where the
            # clock was set back, the last beat lies ahead.
            if abs(time.time() - os.stat(self._path).st_mtime) < INTERVAL / 2:
                return
        except OSError:
            pass
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(fd, f"{time.time():020.6f}\n".encode(), 0)
            finally:
                os.close(fd)
        except OSError:
            return
