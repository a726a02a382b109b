"""Times, memory and GPUs: human forms and Slurm's own mean the same number."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import OptionError
from slurm.model.units import (
    LARGEST_MEMORY,
    LONGEST_DURATION,
    GpuRequest,
    Seconds,
    format_duration,
    format_memory,
    parse_duration,
    parse_gpus,
    parse_memory,
)

ANYTHING = st.one_of(
    st.text(),
    st.text("0123456789:-. dhmsDHMKGTiBau,"),
    st.integers(),
    st.sampled_from([10**5000, -(10**5000), 1e308, float("inf"), float("-inf")]),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(),
    st.lists(st.integers()),
    st.timedeltas(),
)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        # Slurm's own forms.
        ("30", 1800),
        ("30:15", 1815),
        ("02:00:00", 7200),
        ("25:00:00", 90000),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:30:05", 131405),
        ("1-00:00:00", 86400),
        # Human forms.
        ("2h", 7200),
        ("90min", 5400),
        ("90 m", 5400),
        ("1d12h", 129600),
        ("1h 30m", 5400),
        ("45s", 45),
        ("2 hours", 7200),
        ("1 Day 2 Hours", 93600),
        ("1w", 604800),
        ("1.5h", 5400),
        ("0.1s", 1),
        (" 2h ", 7200),
        # Numbers are minutes, as in Slurm.
        (90, 5400),
        (0.5, 30),
        (0.01, 1),
        (timedelta(hours=2), 7200),
        (timedelta(milliseconds=1), 1),
        (Seconds(90), 90),
    ],
)
def test_a_time_is_read_in_each_of_its_forms(value: object, seconds: int) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize("value", ["UNLIMITED", "unlimited", "INFINITE"])
def test_unlimited_time_is_none(value: str) -> None:
    assert parse_duration(value) is None
    assert format_duration(None) == "UNLIMITED"


@pytest.mark.parametrize(
    "value",
    ["", " ", "2x", "h", "two hours", "1h1h", "1h 2", "1-", "-1", "1:2:3:4", "1.5", "2h\n3", "-5m",
     "1d-12h", True, None, [1], b"2h", float("nan"), float("inf")],
)  # fmt: skip
def test_a_wrong_time_is_refused_with_its_name_its_value_and_the_forms(value: object) -> None:
    with pytest.raises(OptionError) as refused:
        parse_duration(value, name="time_min")
    assert refused.value.message.startswith(f"time_min={value!r}")
    assert "HH:MM:SS" in (refused.value.hint or "")


def test_the_longest_timedelta_is_refused_and_not_an_overflow() -> None:
    with pytest.raises(OptionError, match="longer than Slurm can count"):
        parse_duration(timedelta(days=999_999_999, microseconds=1))


@pytest.mark.parametrize("value", [0, "0", "00:00", "0h", -5, timedelta(0), timedelta(hours=-1)])
def test_no_time_at_all_is_refused_with_what_to_write_instead(value: object) -> None:
    with pytest.raises(OptionError, match="longer than zero") as refused:
        parse_duration(value)
    assert "UNLIMITED" in (refused.value.hint or "")


@pytest.mark.parametrize("value", ["100y", "99999d", 10**12, "99999999999"])
def test_a_time_that_slurm_cannot_count_is_refused(value: object) -> None:
    with pytest.raises(OptionError):
        parse_duration(value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "00:00:01"), (7200, "02:00:00"), (86399, "23:59:59"), (129605, "1-12:00:05")],
)
def test_a_time_is_written_as_slurm_writes_it(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(1, LONGEST_DURATION))
def test_a_written_time_reads_as_itself(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
    assert parse_duration(timedelta(seconds=seconds)) == seconds


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_human_and_slurm_forms_agree(d: int, h: int, m: int, s: int) -> None:
    assert parse_duration(f"{d}d{h}h{m}m{s}s") == parse_duration(f"{d}-{h}:{m}:{s}")


@given(ANYTHING)
def test_no_value_makes_the_time_parser_raise_anything_but_option_error(value: object) -> None:
    try:
        seconds = parse_duration(value)
    except OptionError:
        return
    assert seconds is None or 0 < seconds <= LONGEST_DURATION
    assert parse_duration(seconds or "UNLIMITED") == seconds


@pytest.mark.parametrize(
    ("value", "mib"),
    [
        ("512M", 512),
        ("512MB", 512),
        ("4G", 4096),
        ("4g", 4096),
        ("8GiB", 8192),
        ("8GB", 8192),
        ("8 GB", 8192),
        ("1.5TiB", 1572864),
        ("1K", 1),
        ("1025K", 2),
        ("1P", 2**30),
        ("2000", 2000),
        (2000, 2000),
        (1.5, 2),
        (0, 0),
        ("0", 0),
    ],
)
def test_memory_is_read_in_each_of_its_forms(value: object, mib: int) -> None:
    assert parse_memory(value) == mib


@pytest.mark.parametrize(
    "value",
    ["", "G", "8X", "8 gigs", "-1", -1, "1e3", "8G\\n1G", "8G 1M", "512B", True, None, [8],
     float("nan"), float("inf"), "99999999P"],
)  # fmt: skip
def test_wrong_memory_is_refused_with_its_name_its_value_and_the_forms(value: object) -> None:
    with pytest.raises(OptionError) as refused:
        parse_memory(value, name="mem_per_cpu")
    assert refused.value.message.startswith(f"mem_per_cpu={value!r}")
    assert '"8GiB"' in (refused.value.hint or "")


@given(st.integers(0, LARGEST_MEMORY))
def test_written_memory_reads_as_itself(mib: int) -> None:
    assert parse_memory(format_memory(mib)) == mib
    assert parse_memory(mib) == mib


@given(ANYTHING)
def test_no_value_makes_the_memory_parser_raise_anything_but_option_error(value: object) -> None:
    try:
        mib = parse_memory(value)
    except OptionError:
        return
    assert 0 <= mib <= LARGEST_MEMORY


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"),
        ("2", "2"),
        ("a100", "a100:1"),
        ("a100:2", "a100:2"),
        ("gpu:a100:2", "a100:2"),
        ("gpu:2", "2"),
        ("gpu", "1"),
        ("2080ti:1", "2080ti:1"),
        ("1g.5gb:3", "1g.5gb:3"),
        ("a100:2,v100:1", "a100:2,v100:1"),
        ("a100:2, v100:1", "a100:2,v100:1"),
        (0, ""),
        ("a100:0", ""),
    ],
)
def test_gpus_are_read_in_each_of_their_forms(value: object, text: str) -> None:
    requests = parse_gpus(value)
    assert ",".join(map(str, requests)) == text
    assert parse_gpus(requests) == requests


def test_a_gpu_request_has_a_type_and_a_count() -> None:
    assert parse_gpus("a100:2") == (GpuRequest("a100", 2),)
    assert parse_gpus(3) == (GpuRequest(None, 3),)


@pytest.mark.parametrize(
    "value",
    ["", "a100:", ":2", "a100:x", "2:a100", "a100:2,a100:1", "2,a100:1", "a b", "-1", -1, 1.5, True,
     None, ["a100"], "a100;rm"],
)  # fmt: skip
def test_wrong_gpus_are_refused_with_their_name_and_value(value: object) -> None:
    with pytest.raises(OptionError) as refused:
        parse_gpus(value, name="gpus_per_node")
    assert refused.value.message.startswith(f"gpus_per_node={value!r}")


@given(ANYTHING)
def test_no_value_makes_the_gpu_parser_raise_anything_but_option_error(value: object) -> None:
    try:
        requests = parse_gpus(value)
    except OptionError:
        return
    assert parse_gpus(",".join(map(str, requests)) or 0) == requests


def test_a_huge_wrong_value_does_not_flood_the_message() -> None:
    with pytest.raises(OptionError) as refused:
        parse_duration("x" * 100_000)
    assert len(str(refused.value)) < 500
