"""Exceptions on their way from the runner to the client."""

from __future__ import annotations

import builtins
import pickle
import sys
import threading
from typing import Any

import pytest

from slurm import rundir
from slurm.runner.exceptions import pickled
from slurm.runner.run import dumps


class Twisted(Exception):
    """Hands on other arguments than it takes."""

    def __init__(self, a: int, *, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.a, self.b = a, b


class NoFile(OSError):
    """Has fields that only OSError itself can fill."""

    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)


class Holding(Exception):
    """Has an attribute that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.lock = threading.Lock()


class Refusing(Exception):
    """Has a `__reduce__` that is wrong."""

    def __reduce__(self) -> Any:
        raise RuntimeError("no")


def as_bytes(value: Any) -> bytes:
    return rundir.joined(dumps(value))


def there_and_back(error: BaseException) -> Any:
    return pickle.loads(pickled(error, as_bytes))


def test_a_class_that_takes_other_arguments_than_it_hands_on_comes_back() -> None:
    error = there_and_back(Twisted(1, b=2))
    assert type(error) is Twisted
    assert (str(error), error.args, error.a, error.b) == ("1 and 2", ("1 and 2",), 1, 2)


def test_fields_of_built_in_classes_are_filled() -> None:
    error = there_and_back(NoFile("/nowhere"))
    assert type(error) is NoFile
    assert (error.errno, error.strerror, error.filename) == (2, "not there", "/nowhere")


def test_an_attribute_that_cannot_be_pickled_is_left_out() -> None:
    error = there_and_back(Holding("words"))
    assert vars(error) == {"text": "words"}


def test_a_wrong_reduce_is_passed_by() -> None:
    assert there_and_back(Refusing(5)).args == (5,)


def test_a_note_comes_along() -> None:
    error = Twisted(1, b=2)
    error.__notes__ = ["while it was tried"]
    assert there_and_back(error).__notes__ == ["while it was tried"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are new in Python 3.11")
def test_a_group_keeps_its_members() -> None:
    error = there_and_back(builtins.ExceptionGroup("both", [Twisted(1, b=2), ValueError(3)]))
    assert [type(each) for each in error.exceptions] == [Twisted, ValueError]
    assert error.exceptions[0].b == 2


def test_arguments_that_cannot_be_pickled_give_no_bytes() -> None:
    assert pickled(ValueError(threading.Lock()), as_bytes) == b""
