"""Keys are cheap: the limits are several times what they take on an idle machine."""

from __future__ import annotations

import array
import time
from collections.abc import Callable
from typing import Any

import numpy
import pandas
import pyarrow
import pytest

from slurm.content import Digest
from slurm.content.origins import Origins


def seconds(make: Callable[[], Any]) -> float:
    """The CPU time of a digest, the best of three: other programs may be busy."""
    value, found = make(), []
    for _ in range(3):
        began = time.process_time()
        Digest(Origins()).of(value)
        found.append(time.process_time() - began)
    return min(found)


MILLION = 10**6


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: list(range(MILLION)), 0.2),
        (lambda: [0.5 * n for n in range(MILLION)], 0.2),
        (lambda: [n % 2 == 0 for n in range(MILLION)], 0.2),
        (lambda: list(map(str, range(MILLION))), 0.4),
        (lambda: [(n, 0.5, "x") for n in range(MILLION // 3)], 0.6),
        (lambda: [[n] * 1000 for n in range(1000)], 0.4),
        (lambda: {f"k{n}": n for n in range(MILLION)}, 0.8),
        (lambda: array.array("d", bytes(100 << 20)), 0.6),
        (lambda: bytes(100 << 20), 0.4),
        (lambda: numpy.zeros(100 << 20, "u1"), 0.4),
        (lambda: numpy.zeros((1000, 13000)).T, 0.6),
        (lambda: pandas.DataFrame({"a": numpy.zeros(6 << 20), "b": numpy.ones(6 << 20)}), 0.5),
        (lambda: pyarrow.table({"a": numpy.zeros(12 << 20)}), 0.5),
    ],
    ids=["ints", "floats", "bools", "texts", "rows", "matrix", "dict", "array", "bytes", "numpy",
         "fortran", "pandas", "arrow"],
)  # fmt: skip
def test_the_digest_of_a_large_value_is_cheap(make: Callable[[], Any], limit: float) -> None:
    assert seconds(make) < 2 * limit
