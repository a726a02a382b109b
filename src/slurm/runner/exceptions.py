"""Exceptions that pickle cannot rebuild, as objects all the same.

Pickle calls an exception's class with `args`, which fails for every class whose `__init__` takes
other arguments than it hands on, and gives up on one attribute that cannot be pickled. Here the
object is made without its `__init__`, and such attributes are left out.
"""

from typing import Any, Callable, Dict, Tuple, Type

from slurm.runner.values import loads


def pickled(error: BaseException, dumps: Callable[[Any], bytes]) -> bytes:
    """Bytes that give this exception again; none where that cannot be."""
    for carrier in (error, _Carrier(error, dumps)):
        try:
            data = dumps(carrier)
            if type(loads(data)) is type(error):
                return data
        except Exception:  # noqa: BLE001 - both run the user's own code
            continue
    return b""


def rebuild(kind: Type[BaseException], args: Tuple[Any, ...], state: Dict[str, Any]) -> Any:
    """An exception as it was, without a call of its own `__init__`."""
    error = kind.__new__(kind, *args)
    _built_in(kind).__init__(error, *args)
    error.__dict__.update(state)
    return error


def _built_in(kind: Type[BaseException]) -> Any:
    """Python's own class behind it, which has fields of its own to fill, as errno in OSError."""
    return next(cls for cls in kind.__mro__ if cls.__module__ == "builtins")


class _Carrier:
    """Stands in the pickle for an exception."""

    def __init__(self, error: BaseException, dumps: Callable[[Any], bytes]) -> None:
        self._error = error
        self._dumps = dumps

    def __reduce__(self) -> Tuple[Any, ...]:
        error = self._error
        state = {name: value for name, value in vars(error).items() if self._can(value)}
        args = _built_in(type(error)).__reduce__(error)[1]
        return rebuild, (type(error), self._carried(args), state)

    def _carried(self, value: Any) -> Any:
        """The same with carriers in the place of exceptions, as those of an exception group."""
        if isinstance(value, BaseException):
            return _Carrier(value.with_traceback(None), self._dumps)
        if isinstance(value, (list, tuple)):
            return type(value)([self._carried(each) for each in value])
        return value

    def _can(self, value: Any) -> bool:
        try:
            self._dumps(value)
        except Exception:  # noqa: BLE001 - pickling calls the user's own code
            return False
        return True
