"""A function of a module, which needs nothing but its name to get to a worker."""


def same(x: int) -> int:
    """Do nothing."""
    return x
