"""A base directory of a group: each user has a folder of their own in it, which others may read.

`trust_group = true` in a profile. Called by the agent, so it keeps to Python 3.6.
"""

import os
import stat

from slurm import rundir
from slurm.api.agent_error import AgentError


def group_of(shared: str) -> int:
    """The group whose members are trusted; refused unless the directory is that group's alone.

    The group may write it, and so put folders into it; others may not, sticky or not.
    """
    if os.getuid() == 0:
        raise _refusal(
            f"trust_group = true with {shared} is not for root: what any member of the group "
            "writes would run as root",
            "work as a user of the group, or leave trust_group out",
        )
    try:
        info = os.stat(shared)
    except OSError as error:
        raise _refusal(
            f"{shared} cannot be shared by a group: {error.strerror}",
            f"make it, or have it made: mkdir {shared} && chgrp GROUP {shared} && "
            f"chmod 3770 {shared}",
        ) from error
    group = rundir.group_name(info)
    owner, mode = rundir.user_name(info.st_uid), stat.S_IMODE(info.st_mode)
    what = f"{shared} of user {owner} and group {group} (mode {mode:04o})"
    if info.st_mode & stat.S_IWOTH:
        raise _refusal(
            f"{what} is writable by everybody, not by its group alone",
            f"look at what lies there, then: chmod o-w {shared}",
        )
    if not rundir.is_trusted(info.st_gid):
        raise _refusal(
            f"{what} cannot be trusted: you are not in that group",
            f"choose a directory of a group of yours ({_own_groups()}), or: chgrp GROUP {shared}",
        )
    known = info.st_uid in (os.getuid(), 0) or rundir.is_member(info.st_uid, info.st_gid)
    if not known:
        raise _refusal(
            f"{what} belongs to a user who is not in that group",
            f"have it given to a member: chown MEMBER {shared}",
        )
    return info.st_gid


def own_folder(shared: str) -> str:
    """This user's own base directory in that of the group."""
    return os.path.join(shared, rundir.user_name(os.getuid()).partition(" ")[0])


def make_own(base: str, group: int) -> None:
    """Make that folder, which the group may read, unless it is there; the caller looks at it."""
    if os.path.islink(base):
        # Any member may have made it, and could let it lead elsewhere while jobs wait.
        words = f"{base} is a link; nothing is written where it leads"
        raise _refusal(words, "move it away: your own folder is made there")
    if os.path.lexists(base):
        return
    snapshots = os.path.join(base, rundir.BASE_SNAPSHOTS)
    for folder in (base, snapshots):
        rundir.make_private_folder(folder)
        rundir.share_folder(folder, group)


def is_closed(base: str) -> bool:
    """Whether this user's own folder was made otherwise, so that the group cannot read it."""
    try:
        return stat.S_IMODE(os.stat(base).st_mode) & 0o050 != 0o050
    except FileNotFoundError:
        return False


def _own_groups() -> str:
    import grp

    names = []
    for number in sorted({os.getegid()}.union(os.getgroups())):
        try:
            names.append(grp.getgrgid(number).gr_name)
        except KeyError:
            names.append(str(number))
    return ", ".join(names)


def _refusal(words: str, hint: str) -> AgentError:
    return AgentError("rundir", words, [], hint)
