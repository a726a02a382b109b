"""Files of this user alone: who may be trusted, and how nothing is ever half written."""

import _thread
import errno
import os
import stat

from slurm.rundir.names import BASE_FOLDERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

#: How a file is opened that others may have put there: no link is followed, no pipe waited for.
_READING = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"):
    _READING |= getattr(os, _flag, 0)
#: Links on the way to a file, as many as the kernel follows.
_MOST_LINKS = 40


class Untrusted(Exception):
    """A file or directory is not ours alone: nothing in it is run, imported or unpickled.

    The message names it with its owner and mode and says why; `fix` is the command that helps.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


def check_private(path: str, info: os.stat_result) -> None:
    """Refuse what another user owns or may write: the one rule, which all others ask."""
    _check(path, info, (os.getuid(),), stat.S_IWGRP | stat.S_IWOTH)


def check_place(path: str) -> None:
    """Refuse a file or folder, or a link to one, that others made or may change."""
    info = os.lstat(path)
    if stat.S_ISLNK(info.st_mode):
        _check(path, info, (os.getuid(),), 0)
        info = os.stat(path)
    check_private(path, info)


def check_file(path: str) -> None:
    """Refuse a file that somebody else wrote or may write; one of root's is good."""
    for info in (os.lstat(path), os.stat(path)):
        _check(path, info, (os.getuid(), 0), _others(info))


def _others(info: os.stat_result) -> int:
    """Who else may not write: everybody, and a group unless it is this user's own."""
    return stat.S_IWOTH if _is_own_group(info.st_gid) else stat.S_IWOTH | stat.S_IWGRP


def _check(path: str, info: os.stat_result, owners: "tuple[int, ...]", forbidden: int) -> None:
    link = stat.S_ISLNK(info.st_mode)
    mode = "" if link else f" (mode {stat.S_IMODE(info.st_mode):04o})"
    if info.st_uid not in owners:
        kind = "is a link of" if link else "belongs to"
        me = os.getuid()
        # Whose name it is costs a look-up; only who is refused pays for it.
        raise Untrusted(
            f"{path}{mode} {kind} user {user_name(info.st_uid)}, not to you ({user_name(me)})",
            f"if you trust what lies there, take a copy of your own: cp -rL {path} COPY",
        )
    if info.st_mode & forbidden and not link:
        raise Untrusted(
            f"{path} of user {user_name(info.st_uid)} is writable by others{mode}",
            f"look at what lies there, then: chmod go-w {path}",
        )


def user_name(uid: int) -> str:
    """The name and number of a user, or the number alone."""
    import pwd  # seldom needed, and not on Windows

    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def check_base(base: str) -> None:
    """Refuse a base directory in which others may put their files in the place of ours.

    What lies in it is executed and unpickled. Others may make files in a sticky one, such as
    /tmp, but not take ours away; so there each of our own folders is looked at.
    """
    info = os.stat(base)
    _check(base, info, (os.getuid(), 0), 0 if info.st_mode & stat.S_ISVTX else _others(info))
    # Whoever may write a folder above it, or above a link on the way to it, can put another base in
    # its place while jobs wait.
    for folder in _folders_on_the_way(base):
        above = os.stat(folder)
        _check(folder, above, (above.st_uid,), 0 if above.st_mode & stat.S_ISVTX else stat.S_IWOTH)
    # By name: a list of the base directory grows with every run, and this is asked for each.
    for name in BASE_FOLDERS:
        try:
            check_place(os.path.join(base, name))
        except FileNotFoundError:
            continue


def _folders_on_the_way(path: str) -> "List[str]":
    """The folders in which the names of a path are looked up; those of the links on it, too.

    A link of another user in a folder that everybody may write is refused: its owner can turn it.
    """
    found = []  # type: List[str]
    at, names, links = "/", os.path.abspath(path).split("/")[::-1], 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        if at not in found:
            found.append(at)
        inner = os.path.join(at, name)
        info = os.lstat(inner)
        if not stat.S_ISLNK(info.st_mode):
            at = inner
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        above = os.stat(at)
        if above.st_mode & stat.S_IWOTH:
            _check(inner, info, (os.getuid(), 0, above.st_uid), 0)
        target = os.readlink(inner)
        at = "/" if target.startswith("/") else at
        names += target.split("/")[::-1]
    return found


def _is_own_group(gid: int) -> bool:
    """Whether a group has this user's name and no other member: what umask 002 is made for."""
    import grp  # seldom needed
    import pwd

    try:
        group, person = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    alone = set(group.gr_mem) <= {person.pw_name}
    return group.gr_gid == person.pw_gid and group.gr_name == person.pw_name and alone


def open_trusted(path: str) -> "Any":
    """Open a file for reading after its directory and the open file itself have been verified."""
    folder = os.path.dirname(path)
    check_private(folder, os.stat(folder))
    fd = os.open(path, _READING)
    try:
        check_private(path, os.fstat(fd))
    except Untrusted:
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


def open_unchanged(path: str) -> "Any":
    """Open a file that only this user, or root, can have written or put into its folder.

    For files whose modes are those of the user's umask, in folders that the user chose: a group of
    the user's own may write, and in a sticky folder nobody takes another's file away.
    """
    folder = os.path.dirname(os.path.abspath(path))
    info = os.stat(folder)
    _check(folder, info, (os.getuid(), 0), 0 if info.st_mode & stat.S_ISVTX else _others(info))
    fd = os.open(path, _READING)
    try:
        found = os.fstat(fd)
        _check(path, found, (os.getuid(), 0), _others(found))
    except Untrusted:
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


def open_plain(path: str) -> "Any":
    """Open a file of a run that others may have made: no link, nothing that waits for a writer.

    What is no plain file is refused as OSError, as one that is not there.
    """
    fd = os.open(path, _READING)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no plain file", path)
    return os.fdopen(fd, "rb")


def read_trusted(path: str) -> bytes:
    """The content of a file that only this user can have written."""
    with open_trusted(path) as f:
        return f.read()  # type: ignore[no-any-return]


def append(path: str, data: bytes, sync: bool) -> int:
    """Append by ONE write: the kernel keeps the writes of processes on one host apart.

    Returns where the data ends in the file.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        written = os.write(fd, data)
        if written != len(data):
            # What follows would not be one write; the torn record is passed over by readers.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if sync:
            os.fsync(fd)
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def write_atomically(path: str, data: "Any", mode: int = 0o600, sync: bool = True) -> None:
    """Write a file so that it is either whole or not there, whatever is killed when.

    The data may come in pieces, which are not put together.
    """
    # Two threads may write the same file.
    temporary = f"{path}.{os.getpid()}-{_thread.get_ident()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(fd, "wb") as f:
            for piece in data if isinstance(data, (tuple, list)) else (data,):
                f.write(piece)
            if sync:
                f.flush()
                os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:  # raised again; no half file may stay
        try:  # noqa: SIM105 - contextlib is slow to import, and a runner needs little of it
            os.unlink(temporary)
        except OSError:
            pass
        raise


def make_private_folder(path: str) -> None:
    """Make a folder, and those above it that are missing, that only this user can read."""
    # os.makedirs gives its mode to the last folder only.
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        make_private_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
