"""The calls as tasks, in a module of their own, so that they travel by reference."""

from slurm import task


@task
def noop(item: int) -> int:
    """Give the item back."""
    return item


@task
def join(left: int, right: int) -> int:
    """One node of a graph."""
    return left + right


@task
def die(how: str, note: str) -> None:
    """Die in this way."""
    import calls

    calls.die(how, note)
