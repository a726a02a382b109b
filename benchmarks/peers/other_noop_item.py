"""The mapped task of the slurm-sdk 0.4 peer: its jobs import it by name."""

from slurm.decorators import task


@task(time="00:05:00")
def noop(item: int) -> int:
    """Give the item back."""
    return item
