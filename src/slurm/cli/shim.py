"""`slurm submitit-shim DIR`: a package named `submitit` that leads to the drop-in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from slurm.cli import DONE
from slurm.errors import UsageError

app = App(
    name="submitit-shim",
    help="Write a package named submitit that leads to slurm.submitit, for programs that import "
    "submitit themselves.",
    help_format="plaintext",
)


@app.default
def shim(
    directory: Annotated[Path, Parameter(name="DIR", help="Where to write it, or remove it from.")],
    *,
    remove: Annotated[bool, Parameter(negative="", help="Remove it again.")] = False,
) -> int:
    """Write the stand-in; who has DIR first on PYTHONPATH gets it instead of submitit."""
    from slurm.submitit.shim import remove_shim, write_shim

    if remove:
        if not remove_shim(directory):
            raise UsageError(f"there is no stand-in for submitit in {directory}")
        print(f"removed {directory / 'submitit'}")
        return DONE
    package = write_shim(directory)
    print(f"wrote {package}\nuse it: export PYTHONPATH={directory.absolute()}:$PYTHONPATH")
    print(f"remove it: slurm submitit-shim --remove {directory}")
    return DONE
