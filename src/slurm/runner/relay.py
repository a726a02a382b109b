"""Carries connections over one pair of pipes: one end runs inside the job, the other at home.

Its text is also run on its own, by a Python that knows nothing of this package.
"""

import base64
import contextlib
import socket
import struct
import sys
import threading
from typing import IO, Any, Dict, Optional

OPEN, DATA, CLOSE, READY = range(4)
_FRAME = struct.Struct(">IB")
_PIECE = 1 << 16


class Relay:
    """Many connections over one stream of frames: channel, kind, bytes; each is a line of text.

    srun passes on what a step prints when a line is whole, and only a terminal would change that.
    """

    def __init__(self, reader: IO[bytes], writer: IO[bytes], port: Optional[int] = None) -> None:
        self._reader = reader
        self._writer = writer
        self._port = port  # where this end connects to when the other one opens a channel
        self._lock = threading.Lock()
        self._sockets: Dict[int, socket.socket] = {}
        self._last = 0
        self.ready = threading.Event()

    def send(self, channel: int, kind: int, data: bytes = b"") -> None:
        """Send one frame; a stream that is gone ends the relay where it is read."""
        try:
            with self._lock:
                frame = _FRAME.pack(channel, kind) + data
                self._writer.write(base64.b64encode(frame) + b"\n")
                self._writer.flush()
        except (OSError, ValueError):
            self.end()

    def run(self) -> None:
        """Take in frames until the other end is gone."""
        while True:
            line = self._reader.readline()
            if not line.endswith(b"\n"):
                break
            frame = base64.b64decode(line)
            (channel, kind), data = _FRAME.unpack_from(frame), frame[_FRAME.size :]
            if kind == READY:
                self.ready.set()
            elif kind == OPEN:
                self._connect(channel)
            elif kind == CLOSE:
                self._drop(channel)
            elif kind == DATA:
                self._pass_on(channel, data)
        self.end()

    def open(self, connection: socket.socket) -> None:
        """Carry a connection that was made to this end."""
        with self._lock:
            self._last += 1
            channel = self._last
            self._sockets[channel] = connection
        self.send(channel, OPEN)
        self._pump(channel, connection)

    def end(self) -> None:
        """Close all connections."""
        for channel in list(self._sockets):
            self._drop(channel)

    def _connect(self, channel: int) -> None:
        connection = _dial(self._port or 0)
        if connection is None:
            self.send(channel, CLOSE)
            return
        self._sockets[channel] = connection
        threading.Thread(target=self._pump, args=(channel, connection), daemon=True).start()

    def _pass_on(self, channel: int, data: bytes) -> None:
        connection = self._sockets.get(channel)
        if connection is None:
            return  # this end has closed it, and the other does not know yet
        try:
            connection.sendall(data)
        except OSError:
            self._drop(channel)

    def _pump(self, channel: int, connection: socket.socket) -> None:
        try:
            while True:
                data = connection.recv(_PIECE)
                if not data:
                    break
                self.send(channel, DATA, data)
        except OSError:
            pass  # closed from the other side
        self.send(channel, CLOSE)
        self._drop(channel)

    def _drop(self, channel: int) -> None:
        connection = self._sockets.pop(channel, None)
        if connection is not None:
            with contextlib.suppress(OSError):  # it is gone already
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def _dial(port: int) -> Optional[socket.socket]:
    """A connection to this host; most services listen on loopback, some on the host's name only."""
    for host in ("127.0.0.1", "::1", socket.gethostname()):
        try:
            connection = socket.create_connection((host, port), timeout=5)
        except OSError:
            continue
        connection.settimeout(None)
        return connection
    return None


def main(argv: Any) -> None:
    """The end inside the job: connects to a port of its own host."""
    relay = Relay(sys.stdin.buffer, sys.stdout.buffer, int(argv[1]))
    relay.send(0, READY)
    relay.run()


if __name__ == "__main__":
    main(sys.argv)
