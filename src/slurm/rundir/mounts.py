"""Who decides what a file system shows: root, or the user who runs its program (FUSE)."""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

    #: The users of mounted file systems, by device and by the number of the mount.
    Users = Tuple[Dict[int, int], Dict[int, int]]

#: What was read, and when.
_read = (({}, {}), -60.0)  # type: Tuple[Users, float]
_FRESH = 1.0


def mounted_by(path: str, info: os.stat_result) -> "Optional[int]":
    """The user whose word a file's owner and mode are, as they were found; None: nobody can say."""
    global _read
    devices, read = _read[0][0], _read[1]
    # One that was mounted since may be anybody's.
    if info.st_dev not in devices or time.monotonic() - read > _FRESH:
        _read = _users(), time.monotonic()
        devices = _read[0][0]
    if not devices:
        return 0  # another system than Linux
    if info.st_dev not in devices:
        found = _by_mount(path, info)
        if found is None:
            return None
        devices[info.st_dev] = found  # as long as it is there, no other has its number
    return devices[info.st_dev]


def _by_mount(path: str, info: os.stat_result) -> "Optional[int]":
    """The same for a device that is in no list: a part of btrfs, or what is mounted no more.

    Then the mount itself says who it is of, if the path still leads to that very file.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        try:
            if not os.path.samestat(os.fstat(fd), info):
                os.close(fd)
                fd = os.open(path, os.O_PATH)
            if not os.path.samestat(os.fstat(fd), info):
                return None
            with open(f"/proc/self/fdinfo/{fd}") as f:
                words = f.read().split()
        finally:
            os.close(fd)
        return _users()[1].get(int(words[words.index("mnt_id:") + 1]))
    except (OSError, ValueError):
        return None


def _users() -> "Users":
    devices, mounts = {}, {}  # type: Dict[int, int], Dict[int, int]
    try:
        with open("/proc/self/mountinfo", "rb") as f:
            lines = f.read().splitlines()
    except OSError:
        return devices, mounts
    for line in lines:
        words, _, kind = line.partition(b" - ")
        options = kind.split(b" ")[-1].split(b",") if kind.startswith(b"fuse") else []
        users = [int(word[8:]) for word in options if word.startswith(b"user_id=")]
        number, _, device, _ = words.split(b" ", 3)
        major, _, minor = device.partition(b":")
        user = users[0] if users else 0
        devices[os.makedev(int(major), int(minor))] = mounts[int(number)] = user
    return devices, mounts
