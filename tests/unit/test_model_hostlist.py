"""Host lists expand to names and names collapse to host lists, as Slurm does it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.model.hostlist import MOST_HOSTS, collapse_hostlist, expand_hostlist, host_order


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3,7],gpu[01-02]-ib", ["n1", "n2", "n3", "n7", "gpu01-ib", "gpu02-ib"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[99-100]x", ["n99x", "n100x"]),
        ("b, a", ["b", "a"]),
        ("n1,n[1-2]", ["n1", "n2"]),
        ("host.example.org", ["host.example.org"]),
        ("n[5]", ["n5"]),
    ],
)
def test_a_host_list_expands_in_the_order_it_is_written(text: str, names: list[str]) -> None:
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[1-2", "n1-2]", "n[1-[2]]", "n[2-1]", "n[a-b]", "n[]", "n[1-]", "n1,,n2", ",", "a b", "a;b",
     "n[1,]", "$(id)", "../x", "n\x00"],
)  # fmt: skip
def test_a_wrong_host_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        expand_hostlist(text)


@pytest.mark.parametrize(
    "text", ["n[0-999999999]", "n[1-1000]m[1-1000]", "n[1-99999],m[1-99999]", "[1-9]" * 500]
)
def test_a_host_list_of_too_many_names_is_refused_before_it_is_expanded(text: str) -> None:
    with pytest.raises(ValueError):
        expand_hostlist(text)


def test_a_host_list_of_many_names_is_expanded() -> None:
    assert len(expand_hostlist(f"n[1-{MOST_HOSTS}]")) == MOST_HOSTS


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n10", "n9", "n1", "n2"], "n[1-2,9-10]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["gpu01-ib", "gpu02-ib"], "gpu[01-02]-ib"),
        (["login", "n1", "n2", "n2"], "login,n[1-2]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["r10n1", "r2n1"], "r2n1,r10n1"),
        (["n1", "n01"], "n[1,01]"),
        (["n", "n0"], "n,n0"),
    ],
)
def test_names_collapse_to_the_short_form(names: list[str], text: str) -> None:
    assert collapse_hostlist(names) == text


@pytest.mark.parametrize("name", ["", "a,b", "a[1]", "a b", "a\n"])
def test_what_is_no_host_name_is_not_collapsed(name: str) -> None:
    with pytest.raises(ValueError):
        collapse_hostlist([name])


@given(st.sets(st.text("abn019-.", min_size=1, max_size=6)))
def test_collapsed_names_expand_to_the_same_names_in_order(names: set[str]) -> None:
    assert expand_hostlist(collapse_hostlist(names)) == sorted(names, key=host_order)


@given(st.sets(st.integers(0, 2000), max_size=60), st.integers(0, 5))
def test_numbered_nodes_come_back_whatever_their_padding(numbers: set[int], width: int) -> None:
    names = {f"node{number:0{width}}" for number in numbers}
    assert expand_hostlist(collapse_hostlist(names)) == sorted(names, key=host_order)


@given(st.text(), st.text("n[]1-9,0 "))
def test_no_text_makes_the_parser_raise_anything_but_value_error(free: str, near: str) -> None:
    for text in (free, near):
        with contextlib.suppress(ValueError):
            expand_hostlist(text)
