"""Tells the ranks of a job who they are, in the variables that distributed frameworks read."""

from typing import MutableMapping

#: What frameworks read, and Slurm's own variable for it.
_NAMES = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS"}


def announce(environ: MutableMapping[str, str]) -> None:
    """Set RANK, LOCAL_RANK and WORLD_SIZE where srun started several ranks and nobody set them.

    MASTER_ADDR and MASTER_PORT are the same for all ranks: the script has set them. A job of one
    process gets none of this: frameworks would take it for a distributed one.
    """
    if not environ.get("SLURM_SDK_RANKS"):
        return
    for name, source in _NAMES.items():
        if source in environ:
            environ.setdefault(name, environ[source])
