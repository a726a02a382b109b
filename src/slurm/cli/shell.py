"""`slurm shell JOB`: a shell, or one command, in the environment of a job that runs."""

from __future__ import annotations

import subprocess
from typing import Annotated

from cyclopts import Parameter

from slurm.cli.ended import Ended
from slurm.cli.frame import COMMON, Common, Run
from slurm.cli.pick import Node, one_job
from slurm.inside import command_inside, terminal


def shell(
    run: Run,
    *command: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="A command instead of a shell, after --.")
    ],
    node: Node = None,
    common: Common = COMMON,
) -> Ended:
    """Open a shell inside a job that runs, with the variables and the directory of its function.

    `slurm shell last -- nvidia-smi` runs one command. The exit code is that of the command.
    """
    job = one_job(common.attach(run), run, "shell")
    words = list(command) or ["bash"]
    inside = command_inside(job, words, tty=terminal(), node=node)
    try:
        return Ended(subprocess.run(inside).returncode)
    except KeyboardInterrupt:
        return Ended(130)
