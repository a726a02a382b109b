"""The classes of errors: one root, stable codes, text for people, and they survive pickling."""

from __future__ import annotations

import concurrent.futures
import inspect
import pickle

import pytest

import slurm
from slurm import errors
from slurm.errors import SlurmError, join_names, nearest


def _all_errors() -> list[type[SlurmError]]:
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    return [c for c in found if issubclass(c, SlurmError)]


def test_every_class_has_a_code_of_its_own() -> None:
    codes = [c.code for c in _all_errors()]
    assert len(set(codes)) == len(codes)
    assert all(code.startswith("SLURM-E") and code[7:].isdigit() for code in codes)


def test_the_codes_that_users_may_have_written_down_do_not_change() -> None:
    stable = {
        "OptionError": "SLURM-E101",
        "NoActiveCluster": "SLURM-E102",
        "SubmittedOnImport": "SLURM-E103",
        "ConfigError": "SLURM-E110",
        "UnpicklableArgument": "SLURM-E120",
        "WrongArguments": "SLURM-E122",
        "SubmitRefused": "SLURM-E201",
        "JobFailed": "SLURM-E301",
        "JobCancelled": "SLURM-E302",
        "TimeLimitReached": "SLURM-E303",
        "JobOutOfMemory": "SLURM-E304",
        "JobLost": "SLURM-E308",
        "UntrustedRun": "SLURM-E403",
    }
    assert {name: getattr(errors, name).code for name in stable} == stable


def test_every_class_says_in_a_sentence_when_it_is_raised() -> None:
    for cls in _all_errors():
        assert cls.__doc__ and cls.__doc__ != cls.__mro__[1].__doc__, cls


def test_every_error_but_those_of_our_own_clusters_is_a_public_name() -> None:
    expected = {c.__name__ for c in _all_errors() if not issubclass(c, errors.StackError)}
    assert expected <= set(slurm.__all__)


def test_the_text_has_code_message_evidence_and_fix_in_this_order() -> None:
    error = errors.OptionError("mem='x' is no size", hint="write mem='4G'\nor 4096", evidence=["a"])
    assert str(error).splitlines() == [
        "SLURM-E101 OptionError: mem='x' is no size",
        "  | a",
        "  fix: write mem='4G'",
        "       or 4096",
    ]


@pytest.mark.parametrize("cls", _all_errors(), ids=lambda c: c.__name__)
def test_an_error_keeps_its_parts_when_it_travels(cls: type[SlurmError]) -> None:
    facts = {"job_id": "7", "node": "n1"} if issubclass(cls, errors.JobError) else {}
    error = cls("what", hint="fix", evidence=["e"], **facts)
    error.extra = "noted"  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.args == ("what",)


def test_a_cancelled_job_is_an_exception_that_futures_know() -> None:
    assert issubclass(errors.JobCancelled, concurrent.futures.CancelledError)
    assert issubclass(errors.JobCancelled, Exception)


def test_the_remote_traceback_is_shown_as_the_job_wrote_it() -> None:
    error = errors.RemoteTraceback("Traceback ...\nValueError: x\n")
    assert str(error).endswith("ValueError: x\n")
    assert pickle.loads(pickle.dumps(error)).text == error.text


def test_the_nearest_name_is_suggested_and_nothing_far_away() -> None:
    assert nearest("partion", ["partition", "account"]) == "partition"
    assert nearest("zzz", ["partition", "account"]) is None
    assert nearest("x", []) is None


def test_names_are_joined_for_people() -> None:
    assert join_names([]) == ""
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b"]) == "a or b"
    assert join_names(["a", "b", "c"]) == "a, b or c"
