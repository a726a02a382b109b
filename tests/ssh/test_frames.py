"""Frames: what goes in comes out, and nothing else than a frame is taken."""

from __future__ import annotations

import contextlib
import io
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.api import frames

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(max_size=5000),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["$", "$$"]), inner)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES))
def test_what_goes_in_comes_out(value: dict[str, Any]) -> None:
    assert frames.read(io.BytesIO(frames.encode(value))) == value


def test_large_bodies_are_compressed_where_it_helps() -> None:
    assert len(frames.encode({"a": b"x" * 1_000_000})) < 20_000
    import os

    noise = os.urandom(100_000)
    assert len(frames.encode({"a": noise})) < 100_200


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises((frames.BadFrame, EOFError)):
        frames.read(io.BytesIO(data))


@given(st.data())
def test_a_frame_with_a_changed_byte_is_refused_or_another_message(data: st.DataObject) -> None:
    frame = bytearray(frames.encode({"id": 1, "args": [b"abc" * 1000, "text"]}))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(frames.BadFrame, EOFError):
        assert isinstance(frames.read(io.BytesIO(bytes(frame))), dict)


@pytest.mark.parametrize("claim", [(1 << 31, 0, 0), (0, 1 << 31, 0), (0, 0, 1 << 31)])
def test_a_frame_that_claims_to_be_huge_is_refused_before_it_is_read(
    claim: tuple[int, int, int],
) -> None:
    with pytest.raises(frames.BadFrame, match="too large"):
        frames.decode_prefix(frames._LAYOUT.pack(b"\xf5SdK", 0, *claim))


def test_a_body_that_unpacks_to_more_than_it_claims_is_refused() -> None:
    bomb = zlib.compress(b"\0" * 10_000_000)
    data = frames._LAYOUT.pack(b"\xf5SdK", 1, 2, len(bomb), 100) + b"{}" + bomb
    with pytest.raises(frames.BadFrame, match="another size"):
        frames.read(io.BytesIO(data))


def test_a_place_outside_of_the_body_is_refused() -> None:
    head = b'{"a":{"$":[0,10]}}'
    data = frames._LAYOUT.pack(b"\xf5SdK", 0, len(head), 0, 0) + head
    with pytest.raises(frames.BadFrame, match="outside"):
        frames.read(io.BytesIO(data))
