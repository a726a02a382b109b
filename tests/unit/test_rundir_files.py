"""Events, arguments, trust and atomic files of a run directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm import rundir
from slurm.rundir import Identity, Untrusted

WHO = Identity("42", 7, 1, 2)

# ---- events -------------------------------------------------------------------------------------


def test_an_event_is_complete_only_with_its_newline() -> None:
    line = rundir.format_event("exit", WHO, code=0, phase="run").encode()
    for cut in range(len(line) + 1):
        assert rundir.decode_events(line[:cut]) == ([], 0)
    events, used = rundir.decode_events(line + b"\n" + line)
    assert [e.fields for e in events] == [
        {"job": "42", "index": "7", "rank": "1", "attempt": "2", "code": "0", "phase": "run"}
    ]
    assert used == len(line) + 1


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.text(), max_size=4))
def test_any_value_in_an_event_stays_one_field_of_one_line(fields: dict[str, str]) -> None:
    for name in ("job", "index", "rank", "attempt", "kind", "who"):
        fields.pop(name, None)
    data = rundir.format_event("note", WHO, **fields).encode("utf-8", "replace") + b"\n"
    events, used = rundir.decode_events(data)
    assert used == len(data)
    assert [sorted(e.fields) for e in events] == [sorted([*fields, *Identity._fields])]
    assert events[0].job == "42"


@given(
    st.sampled_from(["begin", "start", "record", "exit"]),
    st.sampled_from(["begin", "start", "record", "exit"]),
    st.integers(0, 255),
)
def test_a_line_cut_off_and_the_next_one_behind_it_are_never_taken_for_an_event(
    first: str, second: str, code: int
) -> None:
    """A shell killed while it writes, or a disk that was full for a moment."""
    torn = rundir.format_event(first, WHO, code=code, phase="run").encode()
    next_ = rundir.format_event(second, WHO._replace(attempt=3), code=0).encode() + b"\n"
    last = rundir.format_event("exit", WHO._replace(attempt=4), code=9).encode() + b"\n"
    for cut in range(1, len(torn)):
        events, used = rundir.decode_events(torn[:cut] + next_ + last)
        known = [e for e in events if e.kind in ("begin", "start", "record", "exit")]
        assert [(e.kind, e.fields["attempt"], e.fields["code"]) for e in known] == [
            ("exit", "4", "9")
        ]
        assert used == cut + len(next_) + len(last)


@given(st.binary(max_size=200))
def test_foreign_bytes_in_an_event_file_break_nothing(junk: bytes) -> None:
    line = rundir.format_event("exit", WHO, code=3).encode() + b"\n"
    events, used = rundir.decode_events(junk + b"\n" + line)
    assert events[-1].kind == "exit"
    assert events[-1].number("code") == 3
    assert used == len(junk) + 1 + len(line)


def test_a_field_that_is_no_number_gives_the_default() -> None:
    (event,), _ = rundir.decode_events(b"exit job=1 code=x\n")
    assert event.number("code", -1) == -1
    assert event.number("signal") == 0
    assert event.number("job") == 1


def test_only_what_grew_is_read_again(run: Path) -> None:
    folder = str(run / rundir.EVENTS)
    rundir.append_event(str(run), "begin job=1")
    ((name, data),) = rundir.grown(folder, {}, ".txt")
    assert data == b"begin job=1\n"
    assert list(rundir.grown(folder, {name: len(data)}, ".txt")) == []
    rundir.append_event(str(run), "exit job=1")
    assert list(rundir.grown(folder, {name: len(data)}, ".txt")) == [(name, b"exit job=1\n")]


def test_a_folder_that_is_not_there_has_nothing_new(tmp_path: Path) -> None:
    assert list(rundir.grown(str(tmp_path / "none"), {})) == []


# ---- arguments ----------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8))
def test_each_entry_of_the_argument_file_is_found_by_its_index(
    tmp_path_factory: pytest.TempPathFactory, blobs: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    rundir.write_atomically(
        str(folder / rundir.ARGUMENTS), rundir.encode_arguments(blobs), sync=False
    )
    found = [rundir.read_arguments(str(folder), i) for i in range(len(blobs))]
    # What lies between two entries, so that large ones are aligned, is behind the pickle.
    assert all(one.startswith(blob) for one, blob in zip(found, blobs, strict=True))
    assert not b"".join(one[len(blob) :] for one, blob in zip(found, blobs, strict=True)).strip(
        b"\0"
    )
    for outside in (-1, len(blobs)):
        with pytest.raises(ValueError, match=f"has {len(blobs)} entries; entry {outside}"):
            rundir.read_arguments(str(folder), outside)


def test_an_argument_file_cut_at_any_byte_is_refused_or_gives_the_right_entry(run: Path) -> None:
    whole = rundir.joined(rundir.encode_arguments([b"first", b"second"]))
    path = run / rundir.ARGUMENTS
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        path.chmod(0o600)
        with pytest.raises(ValueError):
            rundir.read_arguments(str(run), 1)


def test_a_foreign_file_is_no_argument_file(run: Path) -> None:
    path = run / rundir.ARGUMENTS
    path.write_bytes(b"\x80\x05something else that is long enough")
    path.chmod(0o600)
    with pytest.raises(ValueError, match="is not an argument file"):
        rundir.read_arguments(str(run), 0)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.binary(max_size=50))
def test_the_function_file_keeps_header_and_pickle(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, str], pickled: bytes
) -> None:
    folder = tmp_path_factory.mktemp("run")
    data = rundir.encode_function(header, pickled)
    rundir.write_atomically(str(folder / rundir.FUNCTION), data, sync=False)
    assert rundir.read_function(str(folder)) == (header, pickled)


@pytest.mark.parametrize(
    "content", [b"", b"\0\0", b"\0\0\0\x09{}", b"\0\0\0\x02[", b"\0\0\0\x01\xff"]
)
def test_a_damaged_function_file_is_a_value_error(run: Path, content: bytes) -> None:
    path = run / rundir.FUNCTION
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ValueError):
        rundir.read_function(str(run))


# ---- trust --------------------------------------------------------------------------------------


@pytest.fixture
def with_record(run: Path) -> Path:
    rundir.append_record(str(run), Identity("1", 0, 0, 0), rundir.VALUE, {}, b"v" * 2_000_000)
    return run


def test_what_is_ours_alone_is_read(with_record: Path) -> None:
    (record,) = rundir.all_records(str(with_record))
    assert len(rundir.load_payload(str(with_record), record).read()) == 2_000_000


@pytest.mark.parametrize("where", [".", rundir.RESULTS, "segment"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_refused(with_record: Path, where: str, mode: int) -> None:
    (segment,) = (with_record / rundir.RESULTS).iterdir()
    path = segment if where == "segment" else with_record / where
    path.chmod(path.stat().st_mode | mode)
    with pytest.raises(Untrusted, match="writable by others"):
        list(rundir.all_records(str(with_record)))


def test_what_others_can_only_read_is_still_ours(with_record: Path) -> None:
    with_record.chmod(0o755)
    assert len(list(rundir.all_records(str(with_record)))) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("where", [".", rundir.RESULTS, "segment"])
def test_what_another_user_owns_is_refused(with_record: Path, where: str) -> None:
    (segment,) = (with_record / rundir.RESULTS).iterdir()
    os.chown(segment if where == "segment" else with_record / where, 12345, -1)
    with pytest.raises(Untrusted, match="belongs to user 12345, not to you"):
        list(rundir.all_records(str(with_record)))


def test_a_run_of_another_user_is_refused(
    with_record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.raises(Untrusted, match=rf"belongs to user (\w+ \()?{me}"):
        list(rundir.all_records(str(with_record)))


@pytest.mark.parametrize("where", [rundir.VALUES, "file"])
def test_a_large_value_that_others_can_write_is_refused(with_record: Path, where: str) -> None:
    (record,) = rundir.all_records(str(with_record))
    (file,) = (with_record / rundir.VALUES).iterdir()
    (file if where == "file" else with_record / where).chmod(0o777)
    with pytest.raises(Untrusted):
        rundir.load_payload(str(with_record), record)


def test_a_symbolic_link_in_the_place_of_a_file_is_not_followed(run: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.write_bytes(rundir.joined(rundir.encode_arguments([b"x"])))
    planted.chmod(0o600)
    (run / rundir.ARGUMENTS).symlink_to(planted)
    with pytest.raises(OSError, match="symbolic links"):
        rundir.read_arguments(str(run), 0)


def test_function_and_arguments_are_not_read_from_a_folder_that_others_can_write(
    run: Path,
) -> None:
    for name, data in (
        (rundir.FUNCTION, rundir.encode_function({}, b"")),
        (rundir.ARGUMENTS, rundir.encode_arguments([b""])),
    ):
        rundir.write_atomically(str(run / name), data)
    run.chmod(0o770)
    with pytest.raises(Untrusted, match="mode 0770"):
        rundir.read_function(str(run))
    with pytest.raises(Untrusted, match="mode 0770"):
        rundir.read_arguments(str(run), 0)


# ---- writing ------------------------------------------------------------------------------------


def test_a_failed_atomic_write_leaves_the_old_file_and_no_other(run: Path) -> None:
    """A file size limit of the kernel stands in for a full disk."""
    target = run / "metadata.json"
    rundir.write_atomically(str(target), b"old")
    program = textwrap.dedent("""
        import resource, sys
        sys.path.insert(0, sys.argv[1])
        from slurm import rundir
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            rundir.write_atomically(sys.argv[2], b"new" * 1000)
        except OSError as error:
            print("OSError")
    """)
    source = str(Path(rundir.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, source, str(target)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "OSError\n"
    assert target.read_bytes() == b"old"
    assert [p.name for p in run.iterdir() if p.is_file()] == ["metadata.json"]


def test_a_reader_sees_the_old_or_the_new_file_whatever_is_killed_when(run: Path) -> None:
    target = run / "metadata.json"
    program = textwrap.dedent("""
        import sys
        sys.path.insert(0, sys.argv[1])
        from slurm import rundir
        letter = b"a"
        while True:
            rundir.write_atomically(sys.argv[2], letter * 300000, sync=False)
            letter = b"b" if letter == b"a" else b"a"
    """)
    source = str(Path(rundir.__file__).parent.parent)
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-I", "-c", program, source, str(target)])
        try:
            deadline = time.monotonic() + 60
            while not target.exists():
                assert time.monotonic() < deadline
            for _ in range(50):
                content = target.read_bytes()
                assert content in (b"a" * 300_000, b"b" * 300_000)
            os.kill(writer.pid, signal.SIGKILL)
        finally:
            writer.kill()
            writer.wait()
        assert target.read_bytes() in (b"a" * 300_000, b"b" * 300_000)
        target.unlink()


def test_every_folder_that_is_made_is_closed_to_others(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        rundir.make_private_folder(str(tmp_path / "base" / "tasks" / "run"))
        rundir.make_private_folder(str(tmp_path / "base" / "tasks" / "run"))
    finally:
        os.umask(old)
    made = [tmp_path / "base", tmp_path / "base" / "tasks", tmp_path / "base" / "tasks" / "run"]
    assert [p.stat().st_mode & 0o777 for p in made] == [0o700] * 3


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "base").write_text("")
    with pytest.raises(OSError):
        rundir.make_private_folder(str(tmp_path / "base"))
    with pytest.raises(OSError):
        rundir.make_private_folder(str(tmp_path / "base" / "below"))


# ---- names --------------------------------------------------------------------------------------


def test_a_host_and_its_boot_name_the_files_that_its_kernel_orders() -> None:
    token = rundir.host_token()
    host, _, boot = token.rpartition("-")
    assert host == re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename.split(".")[0])
    assert boot == rundir.boot_id()[:8]


def test_the_names_of_a_part_do_not_collide() -> None:
    names = [
        f(p) for p in (0, 1, 10) for f in (rundir.intent_name, rundir.id_name, rundir.claim_name)
    ]
    assert len(set(names)) == 9
    assert all(name.startswith(rundir.SUBMIT + "/") for name in names)
