"""Frames: one message as bytes, a JSON head and a body of raw bytes; both ends, on Python 3.6.

A frame is magic, flags, three lengths, the head in JSON, then the body. Bytes anywhere in a value
travel in the body as they are; the head only says where they lie. What comes in is bounded before
it is read, and anything else than a frame ends the conversation.
"""

import json
import struct
import zlib
from typing import Any, Dict, List, NamedTuple, Tuple

#: Changes when one end could not understand the other.
PROTOCOL = 1

_MAGIC = b"\xf5SdK"
_PACKED = 1
_LAYOUT = struct.Struct(">4sBIII")
PREFIX = _LAYOUT.size

#: A head or a body that claims to be larger is not read.
HEAD_LIMIT = 64 << 20
BODY_LIMIT = 1 << 30

#: Bodies from this size on are compressed, where that makes them smaller.
_WORTH_PACKING = 2048
_SAMPLE = 64 << 10


class BadFrame(Exception):
    """What came in is no frame, or a larger one than is allowed."""


class Lengths(NamedTuple):
    """What the first bytes of a frame say about the rest."""

    head: int
    body: int
    unpacked: int
    packed: bool


def encode(value: Dict[str, Any]) -> bytes:
    """The frame of a value made of what JSON knows, and bytes."""
    pieces: List[bytes] = []
    plain = _without_bytes(value, pieces, [0])
    head = json.dumps(plain, separators=(",", ":")).encode("ascii")
    body = b"".join(pieces)
    if len(head) > HEAD_LIMIT or len(body) > BODY_LIMIT:
        raise BadFrame(f"a message of {len(head) + len(body)} bytes is too large to be sent")
    sent = _pack(body)
    flags = _PACKED if sent is not body else 0
    prefix = _LAYOUT.pack(_MAGIC, flags, len(head), len(sent), len(body))
    return b"".join((prefix, head, sent))


def _pack(body: bytes) -> bytes:
    """The body compressed, or itself where that would not help."""
    if len(body) < _WORTH_PACKING:
        return body
    sample = body[:_SAMPLE]
    if len(zlib.compress(sample, 1)) > 0.9 * len(sample):
        return body
    packed = zlib.compress(body, 1)
    return packed if len(packed) < len(body) else body


def decode_prefix(data: bytes) -> Lengths:
    """How much follows the first `PREFIX` bytes of a frame."""
    try:
        magic, flags, head, body, unpacked = _LAYOUT.unpack(data)
    except struct.error:
        raise BadFrame("a frame is cut short") from None
    if magic != _MAGIC or flags & ~_PACKED:
        raise BadFrame(f"{data[:8]!r} is not the beginning of a frame")
    if head > HEAD_LIMIT or max(body, unpacked) > BODY_LIMIT:
        raise BadFrame(f"a frame claims {head} and {max(body, unpacked)} bytes, which is too large")
    return Lengths(head, body, unpacked, bool(flags & _PACKED))


def decode(lengths: Lengths, data: bytes) -> Dict[str, Any]:
    """The value in a frame whose prefix was read."""
    head, body = data[: lengths.head], data[lengths.head :]
    if len(body) != lengths.body:
        raise BadFrame("a frame is cut short")
    try:
        if lengths.packed:
            unpacking = zlib.decompressobj()
            # One byte more than it claims shows a body that would never end.
            body = unpacking.decompress(body, lengths.unpacked + 1)
        if len(body) != lengths.unpacked:
            raise BadFrame("the body of a frame has another size than it claims")
        value = _with_bytes(json.loads(head.decode("utf-8")), body)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, zlib.error) as error:
        raise BadFrame(f"a frame cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise BadFrame("a frame holds no message")
    return value


def read(stream: Any) -> Dict[str, Any]:
    """The next message of a blocking stream; EOFError where it has ended."""
    prefix = _exactly(stream, PREFIX)
    lengths = decode_prefix(prefix)
    return decode(lengths, _exactly(stream, lengths.head + lengths.body))


def _exactly(stream: Any, count: int) -> bytes:
    pieces: List[bytes] = []
    while count:
        piece = stream.read(min(count, 1 << 20))
        if not piece:
            raise EOFError("the stream has ended")
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


# ---- bytes inside of values ---------------------------------------------------------------------


def _without_bytes(value: Any, pieces: List[bytes], used: List[int]) -> Any:
    """The value with each run of bytes replaced by where it lies in the body."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        pieces.append(data)
        used[0] += len(data)
        return {"$": [used[0] - len(data), len(data)]}
    if isinstance(value, dict):
        plain = {str(k): _without_bytes(v, pieces, used) for k, v in value.items()}
        return {"$$": plain} if "$" in plain or "$$" in plain else plain
    if isinstance(value, (list, tuple)):
        return [_without_bytes(item, pieces, used) for item in value]
    return value


def _with_bytes(value: Any, body: bytes) -> Any:
    if isinstance(value, dict):
        if "$" in value:
            start, size = _place(value["$"])
            if not 0 <= start <= start + size <= len(body):
                raise BadFrame("a frame points outside of its body")
            return body[start : start + size]
        if "$$" in value:
            return {name: _with_bytes(item, body) for name, item in value["$$"].items()}
        return {name: _with_bytes(item, body) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_bytes(item, body) for item in value]
    return value


def _place(value: Any) -> Tuple[int, int]:
    start, size = value
    if not (isinstance(start, int) and isinstance(size, int)) or size < 0:
        raise BadFrame("a frame points outside of its body")
    return start, size
