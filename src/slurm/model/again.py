"""Whether a call has to run at all, and whether it runs again: the options `cache` and `retry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurm.model.option_values import text
from slurm.model.units import refuse


def caching(value: object, name: str) -> bool | str | Callable[..., Any] | None:
    """What `cache=` takes: True, a text that stands for the code, or a function that makes keys."""
    if value is False:
        return None
    if value is True or callable(value):
        return value
    if not isinstance(value, str):
        refuse(
            name,
            value,
            "must be True, text or a function of the arguments",
            'write cache=True, cache="v2", or cache=lambda path: path',
        )
    return text(value, name)
