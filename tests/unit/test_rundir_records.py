"""Result records: whole ones are always found, torn ones never believed, however writers die."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm import rundir
from slurm.rundir import Identity, Record, decode_records, encode_record

MARKER = rundir.records._MARKER

# Bytes that look like the beginning of a record are what a careless reader falls for.
_payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", MARKER[:-1], MARKER[:1] * 9, b"\n" + MARKER[1:], bytes(16)]),
)
_identities = st.builds(
    Identity,
    job=st.integers(1, 2**32 - 1).map(str),
    index=st.integers(0, 4_000_000),
    rank=st.integers(0, 5000),
    attempt=st.integers(0, 9),
)
# Plain words and numbers take another way into JSON than the rest.
_fields = st.one_of(
    st.text(max_size=12),
    st.text('ab"\\é ', max_size=5),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.none(),
    st.lists(st.text(max_size=5), max_size=2),
)
_headers = st.dictionaries(st.sampled_from(["message", "traceback", "x"]), _fields, max_size=2)
_written = st.tuples(
    _identities,
    st.sampled_from([rundir.VALUE, rundir.ERROR, rundir.EXIT]),
    _headers,
    _payloads,
)


Written = tuple[Identity, str, dict[str, str], bytes]


def as_bytes(written: Written) -> bytes:
    return encode_record(*written)


def key(record: Record) -> tuple[Identity, str, bytes]:
    who = Identity(record.job, record.index, record.rank, record.attempt)
    return who, record.kind, record.payload


def keys(written: list[Written]) -> list[object]:
    return [(who, kind, payload) for who, kind, _, payload in written]


@given(st.lists(_written, max_size=5))
def test_what_was_written_is_read_back_in_order(written: list[Written]) -> None:
    data = b"".join(map(as_bytes, written))
    records, done = decode_records(data)
    assert [key(r) for r in records] == keys(written)
    assert done == len(data)
    for record, (_, _, header, _) in zip(records, written, strict=True):
        assert {name: record.header[name] for name in header} == header


@given(st.lists(_written, min_size=1, max_size=3))
def test_a_file_cut_at_any_byte_keeps_every_whole_record_and_no_other(
    written: list[Written],
) -> None:
    pieces = [as_bytes(w) for w in written]
    data = b"".join(pieces)
    ends = [sum(map(len, pieces[: i + 1])) for i in range(len(pieces))]
    for cut in range(len(data) + 1):
        records, done = decode_records(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert [key(r) for r in records] == keys(written[:whole])
        assert done == ([0, *ends])[whole]


@given(_written, _written, st.lists(_written, max_size=2))
def test_records_behind_a_torn_one_are_all_found_wherever_it_was_torn(
    before: tuple, torn: tuple, behind: list
) -> None:
    first, broken = as_bytes(before), as_bytes(torn)
    rest = b"".join(map(as_bytes, behind))
    for cut in range(len(broken)):
        records, done = decode_records(first + broken[:cut] + rest)
        assert [key(r) for r in records] == keys([before, *behind])
        if behind:
            assert done == len(first) + cut + len(rest)


@given(st.lists(_written, min_size=1, max_size=2), st.data())
def test_a_changed_byte_never_becomes_a_record_that_was_not_written(
    written: list, data: st.DataObject
) -> None:
    whole = bytearray(b"".join(map(as_bytes, written)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found = [key(r) for r in decode_records(bytes(whole))[0]]
    left = keys(written)
    for one in found:
        left.remove(one)  # raises when it was not written
    assert len(found) >= len(written) - 1


@given(st.lists(st.tuples(_written, st.floats(0, 1)), min_size=1, max_size=6), st.data())
def test_reading_in_arbitrary_chunks_neither_loses_nor_repeats_a_record(
    written: list, data: st.DataObject
) -> None:
    """The agent's way: it keeps an offset, reads from there to the end, adds what was used."""
    content, expected = b"", []
    for record, share in written:
        encoded = as_bytes(record)
        torn = share < 0.4
        content += encoded[: int(len(encoded) * share)] if torn else encoded
        expected += [] if torn else [record]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    offset, found = 0, []
    for size in [*cuts, len(content), len(content)]:
        records, used = decode_records(content[offset:size])
        # The client decodes only what the agent counted: both must see the same.
        again, _ = decode_records(content[offset : offset + used])
        assert [key(r) for r in again] == [key(r) for r in records]
        offset += used
        found += records
    assert [key(r) for r in found] == keys(expected)


@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_records(junk: bytes) -> None:
    records, done = decode_records(junk)
    assert records == []
    assert done == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0",
        struct.pack(">I", 5) + b"not j",
        struct.pack(">I", 4000) + b"{}",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 4) + b"null",
        struct.pack(">I", 2) + b"\xff\xff",
    ],
)
def test_a_record_with_a_right_checksum_and_a_senseless_body_is_passed_over(body: bytes) -> None:
    frame = struct.pack(">II", len(body), zlib.crc32(body))
    good = encode_record(Identity("7", 0, 0, 0), rundir.VALUE, {}, b"x")
    records, _ = decode_records(MARKER + frame + body + good)
    assert [r.job for r in records] == ["7"]


def test_a_torn_record_whose_payload_holds_a_record_does_not_bring_it_to_life(run: Path) -> None:
    """A function may return the bytes of a segment; a torn copy of it must not speak for others."""
    forged = encode_record(Identity("1", 5, 0, 0), rundir.VALUE, {}, b"forged")
    payload = b"head " + forged + b" tail"
    rundir.append_record(str(run), Identity("1", 0, 0, 0), rundir.VALUE, {}, payload)
    (segment,) = (run / rundir.RESULTS).iterdir()
    data = segment.read_bytes()
    for cut in range(len(data)):
        assert decode_records(data[:cut])[0] == []
    (record,) = decode_records(data)[0]
    assert record.index == 0
    assert rundir.load_payload(str(run), record).read() == payload


_WRITER = """
import os, random, sys
sys.path.insert(0, sys.argv[1])
from slurm import rundir
run, number, count, largest = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
rng = random.Random(number)
os.fsync = lambda fd: None  # the order of writers is the point, not the disk
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    payload = bytes([number]) * rng.randrange(largest)
    rundir.append_record(run, rundir.Identity(str(number), i, 0, 0), "value", {}, payload)
"""


def _start_writer(run: Path, number: int, count: int, largest: int) -> subprocess.Popen[str]:
    source = str(Path(rundir.__file__).parent.parent)
    words = [sys.executable, "-I", "-c", _WRITER, source, str(run), str(number)]
    return subprocess.Popen(
        [*words, str(count), str(largest)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _wait_ready(writer: subprocess.Popen[str]) -> None:
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"


def _begin(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()


def test_four_processes_appending_at_once_lose_and_tear_nothing(run: Path) -> None:
    writers = [_start_writer(run, number, 1000, 20_000) for number in range(1, 5)]
    try:
        for writer in writers:
            _wait_ready(writer)
        for writer in writers:
            _begin(writer)
        assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert len(list((run / rundir.RESULTS).iterdir())) == 1
    found: dict[str, list[int]] = {number: [] for number in "1234"}
    for record in rundir.all_records(str(run)):
        assert record.payload == bytes([int(record.job)]) * len(record.payload)
        found[record.job].append(record.index)
    assert found == {number: list(range(1000)) for number in "1234"}
    expected = {n: random.Random(int(n)).randrange(20_000) for n in "1234"}
    assert {r.job: len(r.payload) for r in rundir.all_records(str(run)) if not r.index} == expected


def test_a_writer_killed_in_the_middle_leaves_a_file_that_others_go_on_with(run: Path) -> None:
    whole = 0
    for number in range(1, 4):
        writer = _start_writer(run, number, 10**6, 200_000)
        try:
            _wait_ready(writer)
            _begin(writer)
            deadline = time.monotonic() + 60
            while not any(int(r.job) == number for r in rundir.all_records(str(run))):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(writer.pid, signal.SIGKILL)
        finally:
            writer.kill()
            writer.communicate()
    rundir.append_record(str(run), Identity("9", 0, 0, 1), rundir.VALUE, {}, b"after")
    found: dict[str, list[int]] = {}
    for record in rundir.all_records(str(run)):
        whole += 1
        found.setdefault(record.job, []).append(record.index)
        if record.job != "9":
            assert record.payload == bytes([int(record.job)]) * len(record.payload)
    assert set(found) == {"1", "2", "3", "9"}
    assert all(indexes == list(range(len(indexes))) for indexes in found.values())
    assert whole >= 4


def test_a_write_that_the_disk_cuts_short_is_an_error_and_only_a_torn_record(run: Path) -> None:
    """A file size limit of the kernel stands in for a full disk: the write comes back short."""
    program = textwrap.dedent("""
        import resource, sys
        sys.path.insert(0, sys.argv[1])
        from slurm import rundir
        who = rundir.Identity("1", 0, 0, 0)
        rundir.append_record(sys.argv[2], who, "value", {}, b"a" * 500)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            rundir.append_record(sys.argv[2], who._replace(index=1), "value", {}, b"b" * 5000)
        except OSError as error:
            print("OSError", error.errno)
    """)
    source = str(Path(rundir.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, source, str(run)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("OSError")
    (segment,) = (run / rundir.RESULTS).iterdir()
    assert segment.stat().st_size == 1000
    assert [r.index for r in rundir.all_records(str(run))] == [0]
    rundir.append_record(str(run), Identity("1", 2, 0, 0), rundir.VALUE, {}, b"c")
    assert [r.index for r in rundir.all_records(str(run))] == [0, 2]


def test_a_large_value_lies_in_a_file_of_its_own_and_the_record_points_to_it(run: Path) -> None:
    payload = os.urandom(rundir.LARGE + 1)
    rundir.append_record(str(run), Identity("12", 3, 0, 1), rundir.VALUE, {"oom": 0}, payload)
    (record,) = rundir.all_records(str(run))
    assert record.payload == b""
    assert [p.name for p in (run / rundir.VALUES).iterdir()] == ["12.3.0.1.pkl"]
    assert rundir.load_payload(str(run), record).read() == payload


def test_a_value_at_the_limit_stays_in_the_segment(run: Path) -> None:
    rundir.append_record(str(run), Identity("1", 0, 0, 0), rundir.VALUE, {}, b"v" * rundir.LARGE)
    (record,) = rundir.all_records(str(run))
    assert len(record.payload) == rundir.LARGE
    assert list((run / rundir.VALUES).iterdir()) == []


@pytest.mark.parametrize("damage", ["shorter", "longer", "changed"])
def test_a_damaged_file_of_a_large_value_is_refused(run: Path, damage: str) -> None:
    rundir.append_record(str(run), Identity("1", 0, 0, 0), rundir.VALUE, {}, b"v" * 2_000_000)
    (record,) = rundir.all_records(str(run))
    (file,) = (run / rundir.VALUES).iterdir()
    content = file.read_bytes()
    broken = {"shorter": content[:-1], "longer": content + b"v", "changed": b"w" + content[1:]}
    file.write_bytes(broken[damage])
    with pytest.raises(ValueError, match="is damaged"):
        rundir.load_payload(str(run), record)


def test_a_pointer_out_of_the_values_folder_is_not_followed(run: Path) -> None:
    secret = run.parent / "secret"
    secret.write_bytes(b"s")
    header = {"file": "../../secret", "size": 1, "crc": zlib.crc32(b"s")}
    record = Record("1", 0, 0, 0, rundir.VALUE, header, b"")
    with pytest.raises(FileNotFoundError):
        rundir.load_payload(str(run), record)


def test_segments_and_folders_are_closed_to_others(run: Path) -> None:
    old = os.umask(0)
    try:
        rundir.append_record(str(run), Identity("1", 0, 0, 0), rundir.VALUE, {}, b"v" * 2_000_000)
        rundir.append_event(str(run), "start job=1")
    finally:
        os.umask(old)
    files = [p for p in run.rglob("*") if p.is_file()]
    assert len(files) == 3
    assert {p.stat().st_mode & 0o777 for p in files} == {0o600}


def test_a_record_is_read_only_once_when_the_offset_is_kept(run: Path) -> None:
    seen: dict[str, int] = {}
    counts = []
    for index in range(3):
        rundir.append_record(str(run), Identity("1", index, 0, 0), rundir.VALUE, {}, b"v")
        new = 0
        for name, data in rundir.new_records(str(run), seen):
            records, used = decode_records(data)
            seen[name] = seen.get(name, 0) + used
            new += len(records)
        counts.append(new)
    assert counts == [1, 1, 1]
    assert list(rundir.new_records(str(run), seen)) == []


def test_the_header_survives_any_text_a_traceback_can_hold(run: Path) -> None:
    text = 'line\n\0"\u2028\ud83d\ude00 \udcff'
    rundir.append_record(str(run), Identity("1", 0, 0, 0), rundir.ERROR, {"traceback": text}, b"")
    (record,) = rundir.all_records(str(run))
    assert record.header["traceback"] == json.loads(json.dumps(text))
