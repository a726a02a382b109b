"""Free TCP ports found at run time, and whether a daemon listens yet."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

from slurm.errors import StackError

_LOWEST = 10_000
_LISTEN = "0A"  # state in /proc/net/tcp
_ACCEPTS = 0x10000  # flag in /proc/net/unix


def free_ports(count: int) -> list[int]:
    """So many different ports that nobody listens on now.

    They lie below the range from which the kernel takes ports for outgoing connections: a daemon
    that is stopped for a while finds its own port free when it comes back. Another program may
    still take one before its daemon does; the caller then starts again with new ones.
    """
    candidates = list(range(_LOWEST, _outgoing_range_start()))
    random.shuffle(candidates)
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        if is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise StackError(f"{count} free TCP ports are needed, {len(ports)} were found")
    return ports


def _outgoing_range_start() -> int:
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        low = 32768
    return low if low >= _LOWEST + 2000 else 65536


def is_free(port: int) -> bool:
    """Whether a daemon could listen on this port now, on any address of this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen(1)
        except OSError:
            return False
    return True


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on the port.

    The kernel's tables are read instead of connecting: a connection that says nothing is an error
    in the daemon's log, and another program on the port would answer it too.
    """
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    return bool(inodes) and not inodes.isdisjoint(_open_files(pid))


def _open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return found


def socket_listens(path: str) -> bool:
    """Whether somebody accepts connections on this unix socket."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[-1] == path and int(fields[3], 16) & _ACCEPTS:
            return True
    return False
