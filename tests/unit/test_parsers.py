"""Every parser reads its input or refuses it in its own words, whatever the input is."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import FOUND, PARSERS

#: What is put into a good input: lengths that lie, ends of lines and fields, text that is no text.
_ODD = st.sampled_from(
    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\0", b"\n", b"\r", b"\x1f",
     b"|", b"=", b"\xc3\x28", "\u0661\u00b2".encode(), b"-1", b"9" * 5000, b"1e999", b"nan", b"[",
     b"]", b"{", b"}", b"\"", b"'", b"\\", b",", b"null", b"true", b"[" * 3000, b"n[0-999999999]",
     b"\xed\xa0\x80"]
)  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A good input that was cut, changed, doubled or mixed with something odd."""
    data = bytearray(draw(st.sampled_from(seeds))[:20_000])
    for _ in range(draw(st.integers(1, 4))):
        at, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        match draw(st.sampled_from(["cut", "swap", "odd", "flip", "double"])):
            case "cut":
                del data[at : min(end, at + 40)]
            case "swap":
                data[at:end] = data[at:end][::-1]
            case "odd":
                data[at : min(end, at + 8)] = draw(_ODD)
            case "flip" if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "double":
                data[at:at] = data[at:end][:2000]
    return bytes(data)


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_reads_what_it_is_made_for(name: str) -> None:
    parser = PARSERS[name]
    assert parser.seeds
    for seed in parser.seeds:
        parser.call(seed)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=15, derandomize=True)
@given(data=st.data())
def test_a_parser_reads_or_refuses_whatever_it_gets(name: str, data: st.DataObject) -> None:
    parser = PARSERS[name]
    given_bytes = data.draw(st.one_of(spoiled(parser.seeds), st.binary(max_size=200)))
    tracemalloc.start()
    begun = time.monotonic()
    try:
        parser.holds(given_bytes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20, f"{peak} bytes for {len(given_bytes)}"
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    "file", sorted(FOUND.glob("*/*")), ids=lambda f: f"{f.parent.name}-{f.name}"
)
def test_what_fuzzing_once_found_is_read_or_refused(file: Path) -> None:
    PARSERS[file.parent.name.replace("_", " ")].holds(file.read_bytes())
