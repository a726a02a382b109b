"""Which module is being imported to find a task in it: nothing may be submitted meanwhile.

Used in the job itself, so it keeps to Python 3.8 and imports nothing.
"""

_under_way: "list[str]" = []


class Importing:
    """While it is open, submissions are refused: each job would import the module and submit."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        _under_way.append(self._what)

    def __exit__(self, *_: object) -> None:
        _under_way.remove(self._what)


def imported_now() -> str:
    """What is being imported to find a task in it; "" most of the time."""
    return _under_way[-1] if _under_way else ""
