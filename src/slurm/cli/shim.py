"""`slurm submitit-shim DIR`: a package named `submitit` that leads to the drop-in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from slurm.cli.frame import FORM, Form, Said
from slurm.errors import UsageError


@dataclass(frozen=True)
class Shim(Said):
    """The stand-in, as it was written or removed."""

    package: Annotated[str, "The folder of the package."]


def shim(
    directory: Annotated[Path, Parameter(name="DIR", help="Where to write it, or remove it from.")],
    *,
    remove: Annotated[bool, Parameter(negative="", help="Remove it again.")] = False,
    form: Form = FORM,
) -> Shim:
    """Write a package named submitit for programs that import submitit themselves.

    Who has DIR first on PYTHONPATH gets `slurm.submitit` instead of submitit.
    """
    from slurm.submitit.shim import remove_shim, write_shim

    package = directory / "submitit"
    if remove:
        if not remove_shim(directory):
            raise UsageError(f"there is no stand-in for submitit in {directory}")
        return Shim(True, f"removed {package}", str(package))
    write_shim(directory)
    text = (
        f"wrote {package}\nuse it: export PYTHONPATH={directory.absolute()}:$PYTHONPATH\n"
        f"remove it: slurm submitit-shim --remove {directory}"
    )
    return Shim(True, text, str(package))
