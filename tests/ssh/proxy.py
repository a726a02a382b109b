"""A TCP proxy on loopback that delays, stalls, cuts or resets; for tests and benchmarks.

As a program: `python proxy.py TARGET_PORT ONE_WAY_SECONDS` prints its port and serves until its
standard input closes.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import sys
import threading
import time

UP, DOWN = "up", "down"


class Proxy:
    """Stands before a port of this machine. `delay` is added to each direction."""

    def __init__(self, target: int, delay: float = 0.0) -> None:
        self.target = target
        self.delay = delay
        self.passed = {UP: 0, DOWN: 0}
        self.connections = 0
        self._limits: dict[str, int | None] = {UP: None, DOWN: None}
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, direction: str, count: int) -> None:
        """Cut all connections once so many more bytes have passed in a direction; once."""
        with self._lock:
            self._limits[direction] = count

    def stall(self) -> None:
        """Let nothing pass any more, and close nothing."""
        self._flowing.clear()

    def flow(self) -> None:
        """Let it pass again."""
        self._flowing.set()

    def abandon(self) -> None:
        """Let nothing pass any more on what is open now, for ever; new connections work."""
        self._flowing, old = threading.Event(), self._flowing
        self._flowing.set()
        old.clear()

    def cut(self, reset: bool = False) -> None:
        """End all open connections, politely or by a reset."""
        with self._lock:
            sockets, self._open = self._open, []
        for s in sockets:
            with contextlib.suppress(OSError):
                if reset:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    s.shutdown(socket.SHUT_RDWR)
            s.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._flowing.set()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                there = socket.create_connection(("127.0.0.1", self.target), timeout=30)
            except OSError:
                if self._server.fileno() < 0:
                    return
                with contextlib.suppress(OSError, UnboundLocalError):
                    client.close()
                continue
            there.settimeout(None)
            self.connections += 1
            for s in (client, there):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open += [client, there]
            for direction, a, b in ((UP, client, there), (DOWN, there, client)):
                line: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                for loop, args in (
                    (self._take, (a, line)),
                    (self._give, (direction, b, line, self._flowing)),
                ):
                    threading.Thread(target=loop, args=args, daemon=True).start()

    def _take(self, source: socket.socket, line: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(64 << 10)
            except OSError:
                data = b""
            line.put((time.monotonic() + self.delay, data))

    def _give(
        self,
        direction: str,
        to: socket.socket,
        line: queue.SimpleQueue[tuple[float, bytes]],
        flowing: threading.Event,
    ) -> None:
        while True:
            at, data = line.get()
            time.sleep(max(0.0, at - time.monotonic()))
            flowing.wait()
            whole, data = data, self._within(direction, data)
            try:
                to.sendall(data)
            except OSError:
                return
            self.passed[direction] += len(data)
            if len(data) < len(whole):
                self.cut()
                return
            if not data:
                with contextlib.suppress(OSError):
                    to.shutdown(socket.SHUT_WR)
                return

    def _within(self, direction: str, data: bytes) -> bytes:
        with self._lock:
            limit = self._limits[direction]
            if limit is None or not data:
                return data
            if len(data) > limit:
                self._limits[direction] = None
                return data[:limit]
            self._limits[direction] = limit - len(data)
            return data


def main() -> None:
    proxy = Proxy(int(sys.argv[1]), float(sys.argv[2]))
    print(proxy.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
