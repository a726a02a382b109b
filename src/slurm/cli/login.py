"""`slurm login HOST`: log in once by hand; programs then use the open connection."""

from __future__ import annotations

import subprocess
from typing import Annotated

from cyclopts import App, Parameter

from slurm.api import openssh
from slurm.cli import DONE, UNREACHABLE

app = App(
    name="login",
    help="Open a connection to a login node that asks for a password or a second factor.",
    help_format="plaintext",
)


@app.default
def login(
    host: Annotated[str, Parameter(help="The login node, as in Cluster(hostname=...).")],
    *,
    username: Annotated[str | None, Parameter(help="The user there.")] = None,
    port: Annotated[int | None, Parameter(help="The port of sshd.")] = None,
    identity_file: Annotated[str | None, Parameter(help="The private key.")] = None,
    jump_host: Annotated[str | None, Parameter(help="A host to go through.")] = None,
    ssh_option: Annotated[
        list[str] | None,
        Parameter(negative="", help="An option of ssh_config, NAME=VALUE; repeatable."),
    ] = None,
    close: Annotated[
        bool, Parameter(negative="", help="End the open connection instead of making one.")
    ] = False,
) -> int:
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
        print(f"{how.name}: " + ("closed" if done == 0 else "no connection was open"))
        return DONE
    if _run(openssh.control_words(how, control, "check"), quiet=True) == 0:
        print(f"{how.name}: already logged in")
        return DONE
    # ssh itself talks to the terminal: what is typed there never passes through this program.
    if _run(openssh.login_words(how, control), quiet=False) != 0:
        print(f"{how.name}: no connection was made; ssh says above why")
        return UNREACHABLE
    print(f"{how.name}: logged in")
    return DONE


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
