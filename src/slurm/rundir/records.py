"""What the processes of a run append: outcomes as records, events as lines; and how it is read.

A host appends to files of its own, which readers follow as they grow.
"""

import os
import struct
import sys
import zlib
from collections import namedtuple

from slurm.rundir.names import EVENTS, FRAMES, RESULTS, VALUES, host_token
from slurm.rundir.pieces import Pieces, Stretch, checksum, size_of
from slurm.rundir.private import (
    append,
    check_private,
    make_run_folder,
    open_plain,
    open_trusted,
    read_most,
    write_atomically,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

    from slurm.rundir.pieces import Content

# ---- outcomes -----------------------------------------------------------------------------------

# A record is: marker, length of body, checksum of body, body. The body is: length of the header,
# the header in JSON, the payload, a closing byte. The marker cannot overlap itself, occurs in no
# body and does not contain the closing byte: so whatever stands behind a torn record, it cannot
# make the torn one whole, and is found itself.
_MARKER = b"\xf5\x0aRcRd\x0d\xfe"
_CLOSE = b"\0"
_FRAME = struct.Struct(">II")
_HEAD = struct.Struct(">I")
_PREFIX = len(_MARKER) + _FRAME.size

#: Values larger than this lie in a file of their own.
LARGE = 1 << 20

#: Bytes that are read of a file of others at once.
_MOST = 1 << 28

#: The kinds of a record.
VALUE = "value"
ERROR = "error"
EXIT = "exit"


if TYPE_CHECKING:

    class Record(NamedTuple):
        """One outcome that a process of a job wrote: a value, an exception, or an early exit."""

        job: str
        index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
        rank: int
        attempt: int
        kind: str
        header: Dict[str, Any]
        payload: bytes

    class Identity(NamedTuple):
        """Which process of which job this is; every record and event carries it."""

        job: str
        index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
        rank: int
        attempt: int

    class _Event(NamedTuple):
        kind: str
        fields: Dict[str, str]
else:
    Record = namedtuple("Record", "job index rank attempt kind header payload")
    Identity = namedtuple("Identity", "job index rank attempt")
    _Event = namedtuple("_Event", "kind fields")


def encode_record(who: Identity, kind: str, header: "Dict[str, Any]", payload: bytes) -> bytes:
    """The bytes of one record, to be appended by a single write."""
    head = dict(header, job=who.job, index=who.index, rank=who.rank, attempt=who.attempt, kind=kind)
    text = _json_text(head).encode()
    body = b"".join((_HEAD.pack(len(text)), text, payload, _CLOSE))
    return b"".join((_MARKER, _FRAME.pack(len(body), zlib.crc32(body)), body))


def _json_text(header: "Dict[str, Any]") -> str:
    """The header in JSON; of plain words and numbers, as most are, without the import of json."""
    parts = []
    for name, value in header.items():
        if type(value) is str and value.isprintable() and not set(value) & set('"\\'):
            text = f'"{value}"'
        elif type(value) is int:
            text = str(value)
        elif type(value) is bool:
            text = "true" if value else "false"
        else:
            import json

            return json.dumps(header, separators=(",", ":"))
        parts.append(f'"{name}":{text}')
    return "{" + ",".join(parts) + "}"


def decode_records(data: bytes) -> "Tuple[List[Record], int]":
    """All whole records in `data`, and how many bytes of it need not be read again.

    A torn record (its writer was killed) is passed over when another follows; at the end of the
    data it may still be growing, so the count stops before it.
    """
    records = []  # type: List[Record]
    done = 0
    at = data.find(_MARKER)
    while at >= 0:
        record, end = _record_at(data, at)
        if record is not None:
            records.append(record)
            done = end
            at = data.find(_MARKER, end)
            continue
        at = data.find(_MARKER, at + len(_MARKER))
    return records, done


def _record_at(data: bytes, at: int) -> "Tuple[Optional[Record], int]":
    start = at + _PREFIX
    if start > len(data):
        return None, at
    length, checksum = _FRAME.unpack_from(data, at + len(_MARKER))
    body = data[start : start + length]
    if len(body) < length or zlib.crc32(body) != checksum:
        return None, at
    if length < _HEAD.size + len(_CLOSE) or not body.endswith(_CLOSE):
        return None, at
    (size,) = _HEAD.unpack_from(body)
    import json

    try:
        head = json.loads(body[_HEAD.size : _HEAD.size + size].decode())
        record = Record(
            str(head["job"]),
            int(head["index"]),
            int(head["rank"]),
            int(head["attempt"]),
            str(head["kind"]),
            head,
            body[_HEAD.size + size : -len(_CLOSE)],
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, at
    return record, start + length


def append_record(
    run: str,
    who: Identity,
    kind: str,
    header: "Dict[str, Any]",
    payload: "Content",
    sync: bool = True,
) -> "Tuple[str, int, int]":
    """Append one record to this host's segment of the run and bring it to the disk.

    A large payload goes to a file of its own first (temporary name, fsync, rename), so that the
    record that points to it is never there before it. So does one that contains a marker (say, the
    bytes of a segment): a torn record must not hold what looks like another. Returns where the
    record lies: the name of the segment, its first byte and its length.
    """
    if isinstance(payload, Pieces) or len(payload) > LARGE or _MARKER in payload:
        name = f"{who.job}.{who.index}.{who.rank}.{who.attempt}.pkl"
        header = dict(header, **store_value(run, name, payload))
        payload = b""
    data = encode_record(who, kind, header, payload)
    segment = host_token() + ".seg"
    end = append(os.path.join(run, RESULTS, segment), data, sync=sync)
    return segment, end - len(data), len(data)


def store_value(run: str, name: str, payload: "Content") -> "Dict[str, Any]":
    """Write a large value to a file of its own; what the header of its record says of it."""
    write_atomically(os.path.join(run, VALUES, name), payload)
    return {"file": name, "size": size_of(payload), "crc": checksum(payload)}


def sync_records(run: str) -> None:
    """Bring to the disk what this host appended without waiting for it."""
    append(os.path.join(run, RESULTS, host_token() + ".seg"), b"", sync=True)


def load_payload(run: str, record: Record, group: "Optional[int]" = None) -> "Any":
    """The pickle of a record; a large one is not read but lies in a file of its own."""
    name = record.header.get("file")
    if name is None:
        return record.payload
    path = os.path.join(run, VALUES, os.path.basename(str(name)))
    return checked_payload(record, Stretch(path, 0, os.stat(path).st_size, group))


def checked_payload(record: Record, data: "Any") -> "Any":
    """A large value, if its bytes are what its record says."""
    size, crc = record.header.get("size"), record.header.get("crc")
    if isinstance(data, Stretch):
        good = data.check(int(size or 0), int(crc or 0))
    else:
        good = len(data) == size and zlib.crc32(data) == crc
    if not good:
        name = record.header.get("file")
        raise ValueError(f"{name} is damaged: its size or checksum is not what its record says")
    return data


# ---- events -------------------------------------------------------------------------------------


class Event(_Event):
    """One line of a run's events: what happened, and fields of plain text."""

    __slots__ = ()

    @property
    def job(self) -> str:
        """The job id this event belongs to."""
        return self.fields.get("job", "")

    def number(self, name: str, default: int = 0) -> int:
        """A field as a whole number."""
        try:
            return int(self.fields.get(name, ""))
        except ValueError:
            return default


def format_event(kind: str, who: Identity, **fields: "Any") -> str:
    """One event line without its newline; values may not contain white space."""
    parts = [kind, f"job={who.job}", f"index={who.index}", f"rank={who.rank}"]
    parts.append(f"attempt={who.attempt}")
    parts += ["{}={}".format(k, _one_word(str(v))) for k, v in fields.items()]
    return " ".join(parts)


def _one_word(text: str) -> str:
    return "".join("_" if letter.isspace() else letter for letter in text)


def append_event(run: str, line: str) -> None:
    """Append one event line to this host's events of the run."""
    append(os.path.join(run, EVENTS, host_token() + ".txt"), line.encode() + b"\n", sync=False)


def append_frames(run: str, line: bytes) -> "List[Any]":
    """Append the frames of a call that raised; returns where: file, offset, length."""
    make_run_folder(os.path.join(run, FRAMES))
    name = FRAMES + "/" + host_token() + ".txt"
    end = append(os.path.join(run, name), line + b"\n", sync=False)
    return [name, end - len(line) - 1, len(line)]


def decode_events(data: bytes) -> "Tuple[List[Event], int]":
    """All complete lines in `data` as events, and how many bytes they take."""
    end = data.rfind(b"\n") + 1
    # Not splitlines: a value may hold what Unicode takes for the end of a line.
    lines = data[:end].decode("utf-8", "replace").split("\n")
    return [e for e in map(_event, lines) if e], end


def _event(line: str) -> "Optional[Event]":
    kind, _, rest = line.partition(" ")
    if not kind.isidentifier():
        return None
    pairs = [part.partition("=") for part in rest.split(" ") if part]
    fields = {name: value for name, _, value in pairs}
    # A line that was cut off and the next one behind it look like one line: a word without a
    # value, or a name that comes twice, gives it away. It says nothing then.
    if len(fields) < len(pairs) or not all(equals for _, equals, _ in pairs):
        return None
    return Event(kind, fields)


# ---- reading a run as it grows ------------------------------------------------------------------


def grown(folder: str, seen: "Dict[str, int]", suffix: str = "") -> "Iterator[Tuple[str, bytes]]":
    """For each file of a folder that is longer than `seen` says: its name and the new bytes.

    The folder is listed and each file opened anew every time: on a network file system that is
    what brings the newest state, while a cached stat may be old. Text only: see `new_records`.
    """
    return _grown(folder, seen, suffix, open_plain)


def new_records(
    run: str, seen: "Dict[str, int]", limit: int = -1, group: "Optional[int]" = None
) -> "Iterator[Tuple[str, bytes]]":
    """The new bytes of each result segment of a run, of each at most `limit` where it is given.

    What others could have written is refused; members of `group` are trusted.
    """
    check_private(run, os.stat(run), group)

    def open_segment(path: str) -> "Any":
        return open_trusted(path, group)

    return _grown(os.path.join(run, RESULTS), seen, ".seg", open_segment, limit)


def all_records(run: str, group: "Optional[int]" = None) -> "Iterator[Record]":
    """Every whole record of a run."""
    for _, data in new_records(run, {}, group=group):
        for record in decode_records(data)[0]:
            yield record


def _grown(
    folder: str, seen: "Dict[str, int]", suffix: str, opener: "Any", limit: int = -1
) -> "Iterator[Tuple[str, bytes]]":
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    # Who looks at a run of others reads no file without end.
    most = limit if limit >= 0 else _MOST if opener is open_plain else sys.maxsize
    for name in names:
        if not name.endswith(suffix):
            continue
        path = os.path.join(folder, name)
        try:
            with opener(path) as f:
                f.seek(seen.get(name, 0))
                data = read_most(f, most)
        except OSError:
            continue
        if data:
            yield name, data
