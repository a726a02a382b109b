"""Free TCP ports on the loopback address, found at run time."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """So many different ports that nobody listens on now.

    All are held open together, so that none is given twice. Another program may still take one
    before its daemon does; the caller then starts again with new ones.
    """
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            # All addresses, not only loopback: slurmdbd listens on all.
            listener.bind(("", 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


def is_free(port: int) -> bool:
    """Whether a daemon could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Whether somebody accepts connections on this port of the loopback address."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def socket_answers(path: str) -> bool:
    """Whether somebody accepts connections on this unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        try:
            client.connect(path)
        except OSError:
            return False
    return True
