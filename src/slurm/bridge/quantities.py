"""Kubernetes' quantities (`500m`, `2Gi`) as whole numbers, rounded the way that Slurm needs."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

# What others write as a number; longer ones, and digits of other scripts, are none.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_FORM = re.compile(r"^([+-]?[0-9]*\.?[0-9]+)([eE][+-]?[0-9]{1,3}|[A-Za-z]{0,2})$")
_SCALE = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
MIB = 1024 * 1024


def quantity(text: str | int | float) -> Decimal:
    """The number that a quantity stands for; raises `ValueError` for anything else."""
    match = _FORM.match(str(text).strip())
    if not match:
        raise ValueError(f"{text!r} is not a quantity such as 2, 500m or 4Gi")
    number, unit = Decimal(match[1]), match[2]
    if unit in _BINARY:
        return number * Decimal(1024) ** _BINARY[unit]
    if unit in _SCALE:
        return number.scaleb(_SCALE[unit])
    if unit[:1] in "eE" and unit[1:].lstrip("+-").isdigit():
        return number.scaleb(int(unit[1:]))
    raise ValueError(f"{text!r} has an unknown unit {unit!r}")


def whole(text: object) -> int | None:
    """The whole number that somebody wrote, or None for any other text."""
    shown = str(text)
    return int(shown) if _WHOLE.fullmatch(shown) else None


def whole_up(text: str | int | float) -> int:
    """Rounded up: what is asked for is never cut."""
    return int(quantity(text).to_integral_value(ROUND_CEILING))


def mebibytes_up(text: str | int | float) -> int:
    """Bytes as MiB, rounded up: 0 would mean all of a node's memory to Slurm."""
    return int((quantity(text) / MIB).to_integral_value(ROUND_CEILING))
