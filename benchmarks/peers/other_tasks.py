"""The calls as tasks of slurm-sdk 0.4: its jobs import them by name."""

import calls
from slurm.decorators import task


@task(time="00:05:00")
def noop(item: int) -> int:
    """Give the item back."""
    return item


@task(time="00:05:00", begin="now+1hour")
def later(item: int) -> int:
    """Give the item back, in an hour."""
    return item


@task(time="00:05:00")
def join(left: int, right: int) -> int:
    """One node of a graph."""
    return left + right


@task(time="00:05:00")
def die(how: str, note: str) -> None:
    """Die in this way."""

    calls.die(how, note)
