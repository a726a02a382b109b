"""Files of this user alone: who may be trusted, and how nothing is ever half written."""

import _thread
import errno
import os
import stat

from slurm.rundir.names import BASE_FOLDERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional

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


def check_private(path: str, info: os.stat_result, group: "Optional[int]" = None) -> None:
    """Refuse what another user owns or may write.

    `group` is one whose members this user trusts (`trust_group`): what belongs to one of them, or
    may be written by that group, is good then.
    """
    try:
        _check(path, info, (os.getuid(),), stat.S_IWGRP | stat.S_IWOTH, group)
    except Untrusted as error:
        if group is None and _would_be_good(path, info):
            error.fix += f"; or set trust_group = true if you trust the group {group_name(info)}"
        raise


def check_place(path: str) -> None:
    """Refuse a file or folder, or a link to one, that others made or may change."""
    info = os.lstat(path)
    if stat.S_ISLNK(info.st_mode):
        _check(path, info, (os.getuid(),), 0)
        info = os.stat(path)
    _check(path, info, (os.getuid(),), stat.S_IWGRP | stat.S_IWOTH)


def check_file(path: str) -> None:
    """Refuse a file that somebody else wrote or may write; one of root's is good."""
    for info in (os.lstat(path), os.stat(path)):
        _check(path, info, (os.getuid(), 0), _others(path, info))


def read_checked(path: str) -> bytes:
    """The content of a file that `check_file` lets pass, whatever its name leads to later."""
    info = os.lstat(path)
    _check(path, info, (os.getuid(), 0), 0)
    fd = os.open(path, _READING & ~getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(fd, "rb") as f:
        info = os.fstat(fd)
        _check(path, info, (os.getuid(), 0), _others(path, info))
        return f.read()


def _others(path: str, info: os.stat_result) -> int:
    """Who else may not write: everybody, and a group unless it is this user's own.

    With an access list the group's part of the mode is what any user on it may do at most.
    """
    if not info.st_mode & stat.S_IWGRP:
        return stat.S_IWOTH | stat.S_IWGRP  # whose group it is costs a look into two files
    if _is_own_group(info.st_gid) and not _has_acl(path):
        return stat.S_IWOTH
    return stat.S_IWOTH | stat.S_IWGRP


def _check(
    path: str,
    info: os.stat_result,
    owners: "tuple[int, ...]",
    forbidden: int,
    group: "Optional[int]" = None,
) -> None:
    """Refuse what belongs to none of the owners or may be written by others: all rules ask here.

    Members of `group` count as owners, and it may write what is the group's.
    """
    if not os.major(info.st_dev):  # no disk, which needs root
        _check_mount(path, info)
    if group is not None and is_trusted(group):
        if info.st_uid not in owners and is_member(info.st_uid, group):
            owners = (*owners, info.st_uid)
        if info.st_gid == group and not _has_acl(path):
            forbidden &= ~stat.S_IWGRP
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


def _check_mount(path: str, info: os.stat_result) -> None:
    from slurm.rundir.mounts import mounted_by

    mounter = mounted_by(path, info)
    if mounter in (0, os.getuid()):
        return
    if mounter is None:
        raise Untrusted(f"{path} is of a file system that is not mounted (any more)", "look again")
    raise Untrusted(
        f"{path} lies in a file system that user {user_name(mounter)} mounted, who decides what "
        "owner and mode it shows",
        f"if you trust what lies there, take a copy of your own: cp -rL {path} COPY",
    )


def _would_be_good(path: str, info: os.stat_result) -> bool:
    """Whether a file that was refused passes where its group is trusted."""
    try:
        forbidden = stat.S_IWGRP | stat.S_IWOTH
        _check(path, info, (os.getuid(),), forbidden, info.st_gid)
    except Untrusted:
        return False
    return True


def is_trusted(group: int) -> bool:
    """Whether this user may trust a group: one it is in; root may trust none."""
    return os.getuid() != 0 and group in (os.getegid(), *os.getgroups())


def is_member(uid: int, group: int) -> bool:
    """Whether the system's own word is that a user is in a group."""
    import pwd

    try:
        person = pwd.getpwuid(uid)
        return group in os.getgrouplist(person.pw_name, person.pw_gid)
    except (KeyError, OSError):
        return False


def _has_acl(path: str) -> bool:
    """Whether others than its group may write what is writable by its group."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError) as error:
        # Another system, or a file system that has none.
        return isinstance(error, OSError) and error.errno != errno.ENOTSUP


def group_name(info: os.stat_result) -> str:
    """The name and number of a file's group, or the number alone."""
    import grp

    try:
        return f"{grp.getgrgid(info.st_gid).gr_name} ({info.st_gid})"
    except KeyError:
        return str(info.st_gid)


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
    _check(base, info, (os.getuid(), 0), 0 if info.st_mode & stat.S_ISVTX else _others(base, info))
    check_way(base)
    # By name: a list of the base directory grows with every run, and this is asked for each.
    for name in BASE_FOLDERS:
        try:
            check_place(os.path.join(base, name))
        except FileNotFoundError:
            continue


def check_way(path: str) -> None:
    """Refuse a path on which others can put something else into the place of what was looked at.

    Those are the folders above it, and above the links on the way to it, that everybody may write.
    """
    for folder in _folders_on_the_way(path):
        above = os.stat(folder)
        _check(folder, above, (above.st_uid,), 0 if above.st_mode & stat.S_ISVTX else stat.S_IWOTH)


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


def open_trusted(path: str, group: "Optional[int]" = None) -> "Any":
    """Open a file for reading after its directory and the open file itself have been verified."""
    folder = os.path.dirname(path)
    check_private(folder, os.stat(folder), group)
    fd = os.open(path, _READING)
    try:
        check_private(path, os.fstat(fd), group)
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
    _check(
        folder, info, (os.getuid(), 0), 0 if info.st_mode & stat.S_ISVTX else _others(folder, info)
    )
    fd = os.open(path, _READING)
    try:
        found = os.fstat(fd)
        _check(path, found, (os.getuid(), 0), _others(path, found))
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


def read_most(f: "Any", most: int) -> bytes:
    """The rest of an open file, at most so many bytes of it.

    As much as the file has is asked for: a buffer of the limit would cost more than what is read.
    """
    left = os.fstat(f.fileno()).st_size - f.tell()
    return f.read(min(max(left, 0) + 1, most))  # type: ignore[no-any-return]


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
        if not os.fstat(fd).st_size:
            _let_group_read(fd, path, 0o600)
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
            _let_group_read(fd, path, mode)
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


def write_new(path: str, data: "Any", mode: int = 0o600) -> None:
    """Write a file into a new folder, where nobody looks for it yet; one that exists is refused.

    It may be half written when this process is killed: what says that it is whole comes later.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as f:
        _let_group_read(fd, path, mode)
        for piece in data if isinstance(data, (tuple, list)) else (data,):
            f.write(piece)


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


# ---- what the group may read --------------------------------------------------------------------


def share_folder(path: str, group: int) -> None:
    """Let a group read a new folder of ours, and what `make_run_folder` and files add to it."""
    os.chown(path, -1, group)
    os.chmod(path, _SHARED | stat.S_IRWXU)


def make_run_folder(path: str) -> None:
    """Make a folder in a run: private, or for the group to read where the run is.

    The run itself must be there: what its base lets others read says nothing of it.
    """
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        make_run_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    info = os.stat(above or ".")
    if _is_shared(info):
        share_folder(path, info.st_gid)


#: How the folders of a run look that its group may read, and of no other run.
_SHARED = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP


def _is_shared(info: os.stat_result) -> bool:
    return info.st_mode & (stat.S_ISGID | stat.S_IRWXG | stat.S_IRWXO) == _SHARED


def _let_group_read(fd: int, path: str, mode: int) -> None:
    """Let the group read a new file in a folder that it may read."""
    info = os.stat(os.path.dirname(path) or ".")
    if _is_shared(info) and not mode & stat.S_IRWXG:
        os.fchmod(fd, mode | stat.S_IRGRP)
