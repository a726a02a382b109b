"""A task in a module of its own, so that it travels by reference."""

from slurm import task


@task
def by_reference() -> int:
    """Do nothing."""
    return 1
