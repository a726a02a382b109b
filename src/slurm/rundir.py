"""The run directory: its file names, its append-only results and events, and who may be trusted.

The state of record of every run lies in its directory, next to the job. This module is the only
one that knows what lies where. It runs on the node, so it keeps to Python 3.6 and to few imports:
each of typing, json and re would take as long as all that the runner itself does.
"""

import _pickle  # the part of pickle that is written in C: the other one imports re
import errno
import functools
import os
import stat
import struct
import zlib
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

# ---- names --------------------------------------------------------------------------------------

SCRIPT = "script.sh"
METADATA = "metadata.json"
ENVIRONMENT = ".slurm_environment.json"
FUNCTION = "function.bin"
ARGUMENTS = "arguments.bin"
SHARED = "shared.bin"
PARTS = "submit/parts.json"
NEXT = "submit/next.sh"
STOPPED = "submit/stopped"
RETRY = "submit/retry.json"
GUARD = "submit/guard.sh"
LOGS = "logs"
RESULTS = "results"
EVENTS = "events"
VALUES = "values"
SUBMIT = "submit"
BEATS = "beats"
OUTPUT = "output"
CHECKPOINT = "checkpoint"
TASKS = "tasks"
INBOX = "inbox"
STEPS = "steps.txt"
CALLS = "calls"
CACHE_KEYS = "cache.txt"
CALLBACKS = "callbacks.bin"
FRAMES = "frames"
SHARED_FOLDER = "shared"

#: The folders that every run has from the start.
FOLDERS = (LOGS, RESULTS, EVENTS, VALUES, SUBMIT, BEATS)

#: Folders of the base directory.
BASE_IDS = ".ids"
BASE_EVENTS = ".events"
BASE_SDK = ".sdk"
BASE_CACHE = ".cache"
BASE_ENVIRONMENTS = ".environments"
BASE_WHEELS = ".wheels"
BASE_SNAPSHOTS = ".snapshots"
BASE_PYTHONS = ".pythons"
BASE_TOOLS = ".tools"

#: In the folder of an environment: what it is made of, the whole one, and when it was last used.
RECIPE = "recipe.json"
CURRENT = "current"
USED = "used"

#: The runner's exit code when the result cannot be written (EX_IOERR of sysexits).
EXIT_NOT_WRITTEN = 74
#: The script's where the node has another, empty, directory in the run's place (EX_OSFILE).
EXIT_NOT_VISIBLE = 72

#: How many characters a cache key has.
KEY_LENGTH = 40

#: Values larger than this lie in a file of their own.
LARGE = 1 << 20


#: Stands in the script of a later part for the id of the part before it, until that is known.
PREVIOUS = "@previous@"
#: Stands in the script of a guard for the name of the part that it guards.
TOKEN = "@part@"


#: The owner of a part that must not run: its sender died before it was submitted.
NOBODY = "nobody"


def ids_token(run: str) -> str:
    """Stands in a dependency for the ids of all parts of a run, until they are known."""
    return f"@ids:{run}@"


def has_token(script: str) -> bool:
    """Whether a script waits for ids of another run's parts."""
    return "@ids:" in script


def script_name(part: int) -> str:
    """The script of a part."""
    return SCRIPT if part == 0 else f"{SUBMIT}/{part}.sh"


def intent_name(part: int) -> str:
    """The file that says a submission of this part is under way."""
    return f"{SUBMIT}/{part}.intent"


def id_name(part: object) -> str:
    """The file that holds the job id of this part."""
    return f"{SUBMIT}/{part}.id"


def pump_name(part: int) -> str:
    """The script of the small job that submits this part when its turn has come."""
    return f"{SUBMIT}/{part}.next.sh"


def journal_name(index: int) -> str:
    """Where a workflow writes down what it submits; of a map of workflows each its own."""
    return f"journal/{index}.jsonl"


def stop_name(index: int) -> str:
    """The file that tells a workflow to submit nothing more."""
    return f"{SUBMIT}/{index}.stopped"


def no_retry_name(index: int) -> str:
    """The file that says that a call is not retried any more."""
    return f"{SUBMIT}/{index}.noretry"


def claim_name(part: int) -> str:
    """The symbolic link by which a job claims this part; its target is the job id."""
    return f"{SUBMIT}/{part}.claim"


def begun_name(part: object) -> str:
    """The file in which each element of an array has a byte that says whether it has begun."""
    return f"{SUBMIT}/{part}.begun"


def none_begun(size: int) -> bytes:
    """The content of that file before anything has begun; text, which bash can read."""
    return b"." * size


def stdout_pattern(array: bool) -> str:
    """Where the scheduler writes a job's standard output, with the scheduler's own patterns."""
    return f"{LOGS}/%A_%a.out" if array else f"{LOGS}/%j.out"


def stderr_pattern(array: bool) -> str:
    """Where the scheduler writes a job's standard error."""
    return f"{LOGS}/%A_%a.err" if array else f"{LOGS}/%j.err"


_PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-"


@functools.lru_cache(maxsize=1)
def host_token() -> str:
    """Names this host and this boot: one segment file has one kernel to order its writers."""
    name = os.uname().nodename.split(".")[0]
    host = "".join(letter if letter in _PLAIN else "_" for letter in name) or "host"
    return f"{host}-{boot_id()[:8]}"


def boot_id() -> str:
    """Changes when the host reboots; `0` where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip()
    except OSError:
        return "0"


# ---- records ------------------------------------------------------------------------------------

# A record is: marker, length of body, checksum of body, body. The body is: length of the header,
# the header in JSON, the payload, a closing byte. The marker cannot overlap itself, occurs in no
# body and does not contain the closing byte: so whatever stands behind a torn record, it cannot
# make the torn one whole, and is found itself.
_MARKER = b"\xf5\x0aRcRd\x0d\xfe"
_CLOSE = b"\0"
_FRAME = struct.Struct(">II")
_HEAD = struct.Struct(">I")
_PREFIX = len(_MARKER) + _FRAME.size

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
    except (ValueError, KeyError, TypeError):
        return None, at
    return record, start + length


def append_record(
    run: str,
    who: Identity,
    kind: str,
    header: "Dict[str, Any]",
    payload: bytes,
    sync: bool = True,
) -> "Tuple[str, int, int]":
    """Append one record to this host's segment of the run and bring it to the disk.

    A large payload goes to a file of its own first (temporary name, fsync, rename), so that the
    record that points to it is never there before it. So does one that contains a marker (say, the
    bytes of a segment): a torn record must not hold what looks like another. Returns where the
    record lies: the name of the segment, its first byte and its length.
    """
    if len(payload) > LARGE or _MARKER in payload:
        name = f"{who.job}.{who.index}.{who.rank}.{who.attempt}.pkl"
        write_atomically(os.path.join(run, VALUES, name), payload)
        header = dict(header, file=name, size=len(payload), crc=zlib.crc32(payload))
        payload = b""
    data = encode_record(who, kind, header, payload)
    segment = host_token() + ".seg"
    end = append(os.path.join(run, RESULTS, segment), data, sync=sync)
    return segment, end - len(data), len(data)


def sync_records(run: str) -> None:
    """Bring to the disk what this host appended without waiting for it."""
    append(os.path.join(run, RESULTS, host_token() + ".seg"), b"", sync=True)


def load_payload(run: str, record: Record) -> bytes:
    """The pickled bytes of a record, read from their own file where the record points to one."""
    name = record.header.get("file")
    if name is None:
        return record.payload
    path = os.path.join(run, VALUES, os.path.basename(str(name)))
    return checked_payload(record, read_trusted(path))


def checked_payload(record: Record, data: bytes) -> bytes:
    """The bytes of a large value, if they are what its record says."""
    if len(data) != record.header.get("size") or zlib.crc32(data) != record.header.get("crc"):
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
    make_private_folder(os.path.join(run, FRAMES))
    name = FRAMES + "/" + host_token() + ".txt"
    end = append(os.path.join(run, name), line + b"\n", sync=False)
    return [name, end - len(line) - 1, len(line)]


def decode_events(data: bytes) -> "Tuple[List[Event], int]":
    """All complete lines in `data` as events, and how many bytes they take."""
    end = data.rfind(b"\n") + 1
    return [e for e in map(_event, data[:end].decode("utf-8", "replace").splitlines()) if e], end


def _event(line: str) -> "Optional[Event]":
    kind, _, rest = line.partition(" ")
    if not kind.isidentifier():
        return None
    pairs = [part.partition("=") for part in rest.split()]
    fields = {name: value for name, _, value in pairs}
    # A line that was cut off and the next one behind it look like one line: a word without a
    # value, or a name that comes twice, gives it away. It says nothing then.
    if len(fields) < len(pairs) or not all(equals for _, equals, _ in pairs):
        return None
    return Event(kind, fields)


# ---- arguments ----------------------------------------------------------------------------------

_ARGS_MAGIC = b"slurm-args-1\n"
_U64 = struct.Struct(">Q")
_TWO_U64 = struct.Struct(">QQ")


def encode_arguments(blobs: "List[bytes]") -> bytes:
    """All calls' pickled arguments as one indexed file: entry i is found without reading others."""
    offset = len(_ARGS_MAGIC) + _U64.size * (len(blobs) + 2)
    table = [_U64.pack(len(blobs)), _U64.pack(offset)]
    for blob in blobs:
        offset += len(blob)
        table.append(_U64.pack(offset))
    return b"".join([_ARGS_MAGIC, *table, *blobs])


def read_arguments(run: str, index: int, file: str = ARGUMENTS) -> bytes:
    """The pickled arguments of call `index`; of `SHARED`: what calls of a map have in common."""
    path = os.path.join(run, file)
    with open_trusted(path) as f:
        if f.read(len(_ARGS_MAGIC)) != _ARGS_MAGIC:
            raise ValueError(f"{path} is not an argument file of this package")
        try:
            (count,) = _U64.unpack(f.read(_U64.size))
            if not 0 <= index < count:
                raise ValueError(f"{path} has {count} entries; entry {index} was asked for")
            f.seek(len(_ARGS_MAGIC) + _U64.size * (1 + index))
            start, end = struct.unpack(">QQ", f.read(2 * _U64.size))
        except struct.error as error:
            raise ValueError(f"{path} is cut short: its table is not whole") from error
        f.seek(start)
        data = f.read(end - start)  # type: bytes
    if len(data) != end - start:
        raise ValueError(f"{path} is cut short: entry {index} is not whole")
    return data


class ArgumentFile:
    """All calls' pickled arguments, mapped into memory: many are read without many opens."""

    def __init__(self, run: str) -> None:
        import mmap

        path = os.path.join(run, ARGUMENTS)
        with open_trusted(path) as f:
            if f.read(len(_ARGS_MAGIC)) != _ARGS_MAGIC:
                raise ValueError(f"{path} is not an argument file of this package")
            self._data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            (count,) = _U64.unpack_from(self._data, len(_ARGS_MAGIC))
            end = _U64.unpack_from(self._data, len(_ARGS_MAGIC) + _U64.size * (count + 1))[0]
        except struct.error as error:
            raise ValueError(f"{path} is cut short: its table is not whole") from error
        if end > len(self._data):
            raise ValueError(f"{path} is cut short: {len(self._data)} of {end} bytes are there")

    def __getitem__(self, index: int) -> bytes:
        at = len(_ARGS_MAGIC) + _U64.size * (1 + index)
        start, end = _TWO_U64.unpack_from(self._data, at)
        return self._data[start:end]


def split_arguments(data: bytes) -> "List[bytes]":
    """All entries of an argument file."""
    at = len(_ARGS_MAGIC)
    (count,) = _U64.unpack_from(data, at)
    offsets = struct.unpack_from(f">{count + 1}Q", data, at + _U64.size)
    return [data[offsets[i] : offsets[i + 1]] for i in range(count)]


def encode_function(header: "Dict[str, Any]", pickled: bytes) -> bytes:
    """The function file: how to get the function, then its pickle where it has one.

    The header is a pickle of plain values, which the runner reads faster than JSON.
    """
    head = _pickle.dumps(header, protocol=4)
    return _HEAD.pack(len(head)) + head + pickled


def read_function(run: str) -> "Tuple[Dict[str, Any], bytes]":
    """The header and the pickle of the run's function."""
    path = os.path.join(run, FUNCTION)
    return decode_function(read_trusted(path), path)


def decode_function(data: bytes, path: str) -> "Tuple[Dict[str, Any], bytes]":
    """The header and the pickle in the bytes of a function file."""
    size = _HEAD.unpack_from(data)[0] if len(data) >= _HEAD.size else len(data)
    head, pickled = data[_HEAD.size : _HEAD.size + size], data[_HEAD.size + size :]
    if len(head) < size:
        raise ValueError(f"{path} is cut short: its header is not whole")
    try:
        return _pickle.loads(head), pickled
    except Exception as error:  # bytes that are no pickle raise many types
        raise ValueError(f"{path} is damaged: its header cannot be read") from error


# ---- reading a run as it grows ------------------------------------------------------------------


def grown(folder: str, seen: "Dict[str, int]", suffix: str = "") -> "Iterator[Tuple[str, bytes]]":
    """For each file of a folder that is longer than `seen` says: its name and the new bytes.

    The folder is listed and each file opened anew every time: on a network file system that is
    what brings the newest state, while a cached stat may be old. Text only: see `new_records`.
    """
    return _grown(folder, seen, suffix, trusted=False)


def new_records(run: str, seen: "Dict[str, int]", limit: int = -1) -> "Iterator[Tuple[str, bytes]]":
    """The new bytes of each result segment of a run, of each at most `limit` where it is given.

    What others could have written is refused.
    """
    check_private(run, os.stat(run))
    return _grown(os.path.join(run, RESULTS), seen, ".seg", trusted=True, limit=limit)


def all_records(run: str) -> "Iterator[Record]":
    """Every whole record of a run."""
    for _, data in new_records(run, {}):
        for record in decode_records(data)[0]:
            yield record


def _grown(
    folder: str, seen: "Dict[str, int]", suffix: str, trusted: bool, limit: int = -1
) -> "Iterator[Tuple[str, bytes]]":
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if not name.endswith(suffix):
            continue
        path = os.path.join(folder, name)
        try:
            with open_trusted(path) if trusted else open(path, "rb") as f:
                f.seek(seen.get(name, 0))
                data = f.read(limit)
        except OSError:
            continue
        if data:
            yield name, data


# ---- trust --------------------------------------------------------------------------------------


class Untrusted(Exception):
    """A file or directory is not ours alone, so nothing in it may be unpickled."""


def check_private(path: str, info: os.stat_result) -> None:
    """Refuse what another user owns or may write."""
    if info.st_uid != os.getuid():
        raise Untrusted(f"{path} belongs to user {info.st_uid}, not to you ({os.getuid()})")
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(info.st_mode)
        raise Untrusted(f"{path} is writable by others (mode {mode:04o}); expected 0700 or 0600")


def open_trusted(path: str) -> "Any":
    """Open a file for reading after its directory and the open file itself have been verified."""
    folder = os.path.dirname(path)
    check_private(folder, os.stat(folder))
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        check_private(path, os.fstat(fd))
    except Untrusted:
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


def read_trusted(path: str) -> bytes:
    """The content of a file that only this user can have written."""
    with open_trusted(path) as f:
        return f.read()  # type: ignore[no-any-return]


# ---- writing ------------------------------------------------------------------------------------


def append(path: str, data: bytes, sync: bool) -> int:
    """Append by ONE write: the kernel keeps the writes of processes on one host apart.

    Returns where the data ends in the file.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        written = os.write(fd, data)
        if written != len(data):
            # What follows would not be one write; the torn record is passed over by readers.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if sync:
            os.fsync(fd)
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def write_atomically(path: str, data: bytes, mode: int = 0o600, sync: bool = True) -> None:
    """Write a file so that it is either whole or not there, whatever is killed when."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            if sync:
                f.flush()
                os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:  # raised again; no half file may stay
        try:  # noqa: SIM105 - contextlib is slow to import, and a runner needs little of it
            os.unlink(temporary)
        except OSError:
            pass
        raise


def make_private_folder(path: str) -> None:
    """Make a folder, and those above it that are missing, that only this user can read."""
    # os.makedirs gives its mode to the last folder only.
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        make_private_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
