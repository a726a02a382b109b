"""The outcomes of many items in one record: how a packed map writes them and how they are read."""

import json
import struct
import sys
from array import array
from typing import Any, Container, Dict, Iterator, List, NamedTuple, Optional, Tuple

from slurm import rundir

#: A record with the outcomes of several items in a row.
BATCH = "batch"
#: The record with which a pack ends: its own outcome, after those of all its items.
PACK = "pack"

# Each item has one word in the table: its kind in the upper bits, the length of its bytes below.
# WAITS is never written: between worker and parent its bytes name the call whose value it lacks.
VALUE, TROUBLE, ELSEWHERE, WAITS = 0, 1 << 30, 2 << 30, 3 << 30
KIND = 3 << 30
LENGTH = (1 << 30) - 1

_HEAD = struct.Struct("<I")


class Batch(NamedTuple):
    """A read batch: item `first + i` lies at `data[ends[i - 1]:ends[i]]`."""

    record: rundir.Record
    first: int
    words: Any
    ends: List[int]
    data: memoryview

    def place(self, number: int) -> Tuple[int, int]:
        """Where the bytes of the item with this number in the batch begin and end."""
        return (self.ends[number - 1] if number else 0), self.ends[number]

    def outcome(self, number: int) -> rundir.Record:
        """The outcome of one item, as a record of its own."""
        start, end = self.place(number)
        data = bytes(self.data[start:end])
        return item_outcome(self.record, self.first + number, self.words[number], data)


def item_outcome(batch: rundir.Record, index: int, word: int, data: bytes) -> rundir.Record:
    """The outcome of one item of a batch, out of its word and its bytes."""
    header: Dict[str, Any] = {"python": batch.header.get("python", "?")}
    kind = rundir.VALUE
    if word & TROUBLE:
        (size,) = _HEAD.unpack_from(data)
        header.update(json.loads(data[_HEAD.size : _HEAD.size + size].decode()))
        data = data[_HEAD.size + size :]
        kind = str(header.pop("kind"))
    return batch._replace(index=index, rank=0, kind=kind, header=header, payload=data)


def encode_trouble(kind: str, header: Dict[str, Any], payload: bytes, limit: int) -> bytes:
    """The bytes of an item that failed; an exception object that is too large is left out."""
    text = json.dumps(dict(header, kind=kind)).encode()
    if len(text) > limit // 2:
        header = dict(header, traceback=str(header.get("traceback", ""))[-4000:], evidence=[])
        header["message"] = str(header.get("message", ""))[:2000]
        text = json.dumps(dict(header, kind=kind)).encode()
    if len(text) + len(payload) + _HEAD.size > limit:
        payload = b""
    return _HEAD.pack(len(text)) + text + payload


def encode_batch(words: Any, data: bytes) -> bytes:
    """The payload of a batch: its table, then the bytes of its items."""
    table = array("I", words)
    if sys.byteorder == "big":
        table.byteswap()
    return table.tobytes() + data


def decode_batch(record: rundir.Record) -> Batch:
    """Read a batch; only its table is looked at, no item is unpickled."""
    count = int(record.header["count"])
    words = array("I")
    words.frombytes(record.payload[: 4 * count])
    if sys.byteorder == "big":
        words.byteswap()
    ends: List[int] = []
    end = 0
    for word in words:
        end += word & LENGTH
        ends.append(end)
    data = memoryview(record.payload)[4 * count :]
    if end != len(data) or len(words) != count:
        raise ValueError(f"a batch of {count} items has {len(data)} bytes; its table says {end}")
    return Batch(record, int(record.header["first"]), words, ends, data)


def item_records(
    run: str, wanted: Optional[Container[int]] = None, group: Optional[int] = None
) -> Iterator[rundir.Record]:
    """Every outcome of a run's calls, also of those that were written in batches.

    `wanted` are the items that are looked for, so that others need not be made into records.
    """
    for record in rundir.all_records(run, group):
        if record.kind == BATCH:
            batch = decode_batch(whole(run, record, group))
            for number, word in enumerate(batch.words):
                asked = wanted is None or batch.first + number in wanted
                if asked and not word & ELSEWHERE:
                    yield batch.outcome(number)
        elif record.kind != PACK:
            yield record


def whole(run: str, record: rundir.Record, group: Optional[int] = None) -> rundir.Record:
    """The record with its payload, also where that lies in a file of its own."""
    if record.header.get("file") is None:
        return record
    stored = rundir.load_payload(run, record, group)
    return record._replace(payload=stored.read())
