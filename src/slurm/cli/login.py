"""`slurm login HOST`: log in once by hand; programs then use the open connection."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from slurm.api import openssh
from slurm.cli import DONE, UNREACHABLE
from slurm.cli.frame import FORM, PORT, Form, Said


@dataclass(frozen=True)
class LoggedIn(Said):
    """Whether the connection is there now."""

    host: Annotated[str, "The login node."]

    @property
    def exit_code(self) -> int:
        """3 where no connection could be made."""
        return DONE if self.done else UNREACHABLE


def login(
    host: Annotated[str, Parameter(help="The login node, as in Cluster(hostname=...).")],
    *,
    username: Annotated[str | None, Parameter(help="The user there.")] = None,
    port: Annotated[int | None, Parameter(help="The port of sshd.", validator=PORT)] = None,
    identity_file: Annotated[str | None, Parameter(help="The private key.")] = None,
    jump_host: Annotated[str | None, Parameter(help="A host to go through.")] = None,
    ssh_option: Annotated[
        list[str] | None,
        Parameter(negative="", help="An option of ssh_config, NAME=VALUE; repeatable."),
    ] = None,
    close: Annotated[
        bool, Parameter(negative="", help="End the open connection instead of making one.")
    ] = False,
    form: Form = FORM,
) -> LoggedIn:
    """Open the connection that programs of yours then share; ssh asks what the host wants to know.

    It stays open until this machine loses it, or until `slurm login HOST --close`. Give the same
    options here as to Cluster(...).
    """
    how = openssh.settings(
        host,
        username=username,
        port=port,
        identity_file=identity_file,
        jump_host=jump_host,
        ssh_options=ssh_option or (),
    )
    control = openssh.control_path(how)
    if close:
        done = _run(openssh.control_words(how, control, "exit"), quiet=True)
        text = "closed" if done == 0 else "no connection was open"
        return LoggedIn(True, f"{how.name}: {text}", how.name)
    if _run(openssh.control_words(how, control, "check"), quiet=True) == 0:
        return LoggedIn(True, f"{how.name}: already logged in", how.name)
    # ssh itself talks to the terminal: what is typed there never passes through this program.
    if _run(openssh.login_words(how, control), quiet=False) != 0:
        text = f"{how.name}: no connection was made; ssh says above why"
        return LoggedIn(False, text, how.name)
    return LoggedIn(True, f"{how.name}: logged in", how.name)


def _run(command: list[str], quiet: bool) -> int:
    nowhere = subprocess.DEVNULL if quiet else None
    try:
        # A person may take a while; a question to the open connection may not.
        done = subprocess.run(
            command, stdout=nowhere, stderr=nowhere, timeout=15 if quiet else None
        )
    except subprocess.TimeoutExpired:
        return 255
    return done.returncode
