"""The runner as a process of its own: a bare Python, a run directory made by hand, real signals."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurm import JobContext, rundir
from slurm.packaging import arguments
from slurm.packaging.function import context_parameter, ship_function
from slurm.packaging.sdk import sdk_files
from slurm.rundir import Event, Record
from slurm.runner.values import loads

#: Far above any time of its own; only against hanging.
LIMIT = 60


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy of the SDK as it lies on a cluster."""
    folder = tmp_path_factory.mktemp("sdk")
    for name, content in sdk_files().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


@dataclass
class Call:
    """One call in a run directory; `run()` starts the shipped runner on it."""

    path: Path
    sdk: Path
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def put(
        self, function: Callable[..., Any], *args: Any, import_path: tuple[str, ...] = (), **kw: Any
    ) -> None:
        written = [arguments.Call(args, kw)]
        shipped = arguments.ship_arguments(function, written, context_parameter(function))
        blobs = rundir.encode_arguments(list(shipped.blobs))
        rundir.write_atomically(str(self.path / rundir.ARGUMENTS), blobs)
        data = ship_function(function, import_path).data
        rundir.write_atomically(str(self.path / rundir.FUNCTION), data)

    def start(self, cwd: Path | None = None, limit: str = "") -> subprocess.Popen[str]:
        # -S: nothing that is installed is on the import path.
        words = [sys.executable, "-S", f"{self.sdk}/slurm/runner/__main__.py", str(self.path)]
        if limit:
            words = ["bash", "-c", f'{limit}; exec "$@"', "bash", *words]
        env = {
            "PATH": os.environ["PATH"],
            "SLURM_JOB_ID": "31",
            "SLURM_SDK_RUN": str(self.path),
            "SLURM_SDK_BASE": str(self.path.parent),
            **self.env,
        }
        process = subprocess.Popen(
            words,
            env=env,
            cwd=cwd or self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, **how: Any) -> tuple[int, str]:
        process = self.start(**how)
        _, errors = process.communicate(timeout=LIMIT)
        return process.returncode, errors

    def record(self) -> Record:
        (found,) = rundir.all_records(str(self.path))
        return found

    def value(self) -> Any:
        found = self.record()
        assert found.kind == rundir.VALUE, found.header
        return loads(rundir.load_payload(str(self.path), found))

    def events(self) -> list[Event]:
        files = (self.path / rundir.EVENTS).iterdir()
        return [e for f in files for e in rundir.decode_events(f.read_bytes())[0]]

    def until(self, name: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not (self.path / name).exists():
            assert time.monotonic() < deadline, f"{name} never came"
            time.sleep(0.005)


@pytest.fixture
def call(run: Path, sdk: Path) -> Iterator[Call]:
    made = Call(run, sdk)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


# The functions below travel by value: a bare Python cannot import this module.

# ---- outcomes -----------------------------------------------------------------------------------


def test_a_value_is_recorded_with_who_made_it(call: Call) -> None:
    call.env = {"SLURM_ARRAY_JOB_ID": "30", "SLURM_RESTART_COUNT": "2", "SLURM_PROCID": "1"}
    call.put(lambda a, b: {"sum": a + b}, 2, b=3)
    assert call.run() == (0, "")
    found = call.record()
    assert call.value() == {"sum": 5}
    assert (found.job, found.index, found.rank, found.attempt) == ("30", 0, 1, 2)
    assert found.header["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert [e.kind for e in call.events()] == ["start", "record"]


def put_module(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, *args: Any
) -> None:
    """A call of `function` of a module of the user's own."""
    (folder / "user_code.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    import user_code  # type: ignore[import-not-found]

    try:
        found = user_code.function
        call.put(getattr(found, "unwrapped", found), *args, import_path=(str(folder),))
    finally:
        del sys.modules["user_code"]
    assert rundir.read_function(str(call.path))[0]["by"] == "reference"


def test_a_function_by_reference_is_imported_from_the_clients_path(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "from slurm import task\nimport threading\nlock = threading.Lock()\n"
        "@task\ndef function(x):\n    return 2 * x\n"
    )
    put_module(call, tmp_path, monkeypatch, text, 21)
    assert call.run() == (0, "")
    assert call.value() == 42


# All that may be loaded before the user's code runs, beside what a bare Python has. Each import
# costs every element of every map: typing, json, re, enum, threading, contextlib, inspect,
# dataclasses, pathlib and subprocess have no place here.
OURS = {
    "slurm", "slurm.importing", "slurm.rundir", "slurm.rundir.call", "slurm.rundir.names",
    "slurm.rundir.private", "slurm.rundir.records", "slurm.runner", "slurm.runner.beat",
    "slurm.runner.memory", "slurm.runner.run", "slurm.runner.signals", "slurm.runner.usage",
    "slurm.runner.values", "slurm.rundir.pieces",
}  # fmt: skip
STANDARD = {
    "__future__", "_pickle", "_compat_pickle", "copyreg", "functools", "_functools", "collections",
    "_collections", "itertools", "keyword", "operator", "_operator", "reprlib", "types", "struct",
    "_struct", "zlib", "errno", "gc",
    # Of those, on Python 3.14.
    "collections.abc", "_types", "io",
}  # fmt: skip
LOADED = "def function():\n    import sys\n    return sorted(sys.modules)\n"


@pytest.mark.parametrize(
    ("module", "more"),
    [
        (LOADED, set()),
        ("from slurm import task\n@task\n" + LOADED, {"slurm.task"}),
        ("from slurm import JobContext\n" + LOADED, {"slurm.context"}),
    ],
    ids=["plain", "task", "context"],
)
def test_little_is_imported_before_the_users_code_runs(
    module: str, more: set[str], call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_module(call, tmp_path, monkeypatch, module)
    assert call.run() == (0, "")
    bare = [sys.executable, "-S", "-c", "import os, sys; print(*sys.modules)"]
    known = set(subprocess.check_output(bare, text=True, timeout=LIMIT).split())
    loaded = set(call.value()) - known - {"user_code"}
    assert {name for name in loaded if name.startswith("slurm")} == OURS | more
    assert loaded - OURS - more - STANDARD == set()


def test_garbage_of_the_users_own_is_collected(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_module(
        call, tmp_path, monkeypatch, "def function():\n    import gc\n    return gc.isenabled()\n"
    )
    assert call.run() == (0, "")
    assert call.value() is True


def test_a_folder_named_slurm_where_the_function_runs_does_not_shadow_the_sdk(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "__init__.py").write_text("raise SystemExit('shadowed')")
    call.env = {"PYTHONPATH": str(tmp_path)}
    call.put(lambda: 1)
    assert call.run(cwd=tmp_path) == (0, "")
    assert call.value() == 1


def test_a_coroutine_is_awaited(call: Call) -> None:
    async def later() -> int:
        import asyncio

        await asyncio.sleep(0)
        return 7

    call.put(later)
    assert call.run()[0] == 0
    assert call.value() == 7


def test_an_exception_is_recorded_whole_and_as_text(call: Call) -> None:
    def broken() -> None:
        raise ValueError("no such colour")

    call.put(broken)
    status, errors = call.run()
    assert status == 1
    assert "ValueError: no such colour" in errors
    found = call.record()
    assert (found.kind, found.header["type"]) == (rundir.ERROR, "ValueError")
    assert found.header["message"] == "no such colour"
    assert found.header["exception"] is True
    assert "in broken" in found.header["traceback"]
    assert "slurm/runner" not in found.header["traceback"]
    error = pickle.loads(found.payload)
    assert (type(error), str(error)) == (ValueError, "no such colour")


def test_an_exception_that_cannot_be_pickled_is_recorded_as_text(call: Call) -> None:
    def broken() -> None:
        import threading

        class Stubborn(Exception):
            def __str__(self) -> str:
                return "stubborn"

        raise Stubborn(threading.Lock())

    call.put(broken)
    assert call.run()[0] == 1
    found = call.record()
    assert found.payload == b""
    assert found.header["type"].endswith("Stubborn")
    assert found.header["message"] == "stubborn"
    assert "Stubborn: stubborn" in found.header["traceback"]


def test_an_exception_of_a_class_of_the_script_travels_by_value(call: Call) -> None:
    def broken() -> None:
        class Odd(Exception):
            pass

        raise Odd("own class")

    call.put(broken)
    call.run()
    error = pickle.loads(call.record().payload)
    assert (type(error).__name__, str(error)) == ("Odd", "own class")


def test_a_keyboard_interrupt_is_no_exception_for_the_client(call: Call) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    call.put(interrupted)
    assert call.run()[0] == 1
    assert call.record().header["exception"] is False


@pytest.mark.parametrize(
    ("argument", "status", "text"),
    [(None, 0, "None"), (0, 0, "0"), (3, 3, "3"), (-1, 255, "-1"), ("no data", 1, "'no data'")],
)
def test_sys_exit_is_an_outcome_of_its_own(
    call: Call, argument: object, status: int, text: str
) -> None:
    def leave(argument: Any) -> None:
        import sys

        sys.exit(argument)

    call.put(leave, argument)
    assert call.run()[0] == status
    found = call.record()
    assert (found.kind, found.header["code"], found.header["text"]) == (rundir.EXIT, status, text)


def test_os_exit_leaves_a_start_and_no_record(call: Call) -> None:
    def leave() -> None:
        import os

        os._exit(5)

    call.put(leave)
    assert call.run()[0] == 5
    assert list(rundir.all_records(str(call.path))) == []
    assert [e.kind for e in call.events()] == ["start"]


def test_a_result_that_cannot_be_pickled_is_a_typed_error_with_its_text(call: Call) -> None:
    def make() -> Any:
        import threading

        return {"lock": threading.Lock()}

    call.put(make)
    assert call.run()[0] == 1
    header = call.record().header
    assert header["error"] == "UnpicklableResult"
    assert "the function returned a dict that cannot be pickled: TypeError" in header["message"]
    assert "unlocked _thread.lock" in header["evidence"][0]
    assert header["hint"]


def test_a_result_whose_repr_fails_too_still_has_a_record(call: Call) -> None:
    def hopeless() -> Any:
        class Hopeless:
            def __reduce__(self) -> Any:
                raise RuntimeError("never")

            def __repr__(self) -> str:
                raise RuntimeError("nor this")

        return Hopeless()

    call.put(hopeless)
    assert call.run()[0] == 1
    assert call.record().header["error"] == "UnpicklableResult"


def test_a_value_of_a_class_of_the_script_travels_by_value(call: Call) -> None:
    def make() -> Any:
        class Point:
            def __init__(self) -> None:
                self.x = 3

        return Point()

    call.put(make)
    assert call.run() == (0, "")
    assert call.value().x == 3


def test_a_large_value_lies_in_a_file_of_its_own(call: Call) -> None:
    call.put(lambda: b"x" * 3_000_000)
    assert call.run()[0] == 0
    assert call.record().payload == b""
    assert len(call.value()) == 3_000_000


def test_a_result_that_cannot_be_written_ends_with_74(call: Call) -> None:
    """A file size limit of the kernel stands in for a full disk."""
    call.put(lambda: b"x" * 100_000)
    status, errors = call.run(limit="ulimit -f 8")
    assert status == rundir.EXIT_NOT_WRITTEN
    assert "the result could not be written" in errors
    assert list(rundir.all_records(str(call.path))) == []


# ---- what the runner refuses --------------------------------------------------------------------


def test_a_function_by_value_of_another_python_is_not_run(call: Call) -> None:
    call.put(lambda: 1)
    header, pickled = rundir.read_function(str(call.path))
    header["python"] = [3, 5, 0]
    data = rundir.encode_function(header, pickled)
    rundir.write_atomically(str(call.path / rundir.FUNCTION), data)
    status, errors = call.run()
    assert status == 1
    found = call.record().header
    assert found["error"] == "PythonMismatch"
    assert "pickled by value on Python 3.5" in found["message"]
    assert "python=" in found["hint"]
    assert "byte code cannot run here" in errors


@pytest.mark.parametrize("attempt", ["0", "1"])
@pytest.mark.parametrize("what", [".", rundir.FUNCTION, rundir.ARGUMENTS])
def test_nothing_is_unpickled_that_others_could_have_written(
    call: Call, what: str, attempt: str
) -> None:
    def canary(path: str) -> None:
        open(path, "w").close()

    call.put(canary, str(call.path / "canary"))
    (call.path / what).chmod(0o777)
    call.env = {"SLURM_RESTART_COUNT": attempt}
    status, errors = call.run()
    assert status == 1
    assert "writable by others" in errors
    assert not (call.path / "canary").exists()
    call.path.chmod(0o700)
    assert call.record().header["error"] == "UntrustedRun"


@pytest.mark.parametrize("what", [rundir.FUNCTION, rundir.ARGUMENTS])
def test_a_payload_that_is_missing_or_damaged_is_said_so(call: Call, what: str) -> None:
    call.put(lambda: 1)
    (call.path / what).write_bytes(b"\0\0")
    status, errors = call.run()
    assert status == 1
    assert what in errors
    assert call.record().header["error"] == "UntrustedRun"


def test_without_a_run_the_usage_is_said(sdk: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", f"{sdk}/slurm/runner/__main__.py"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 2
    assert "python -m slurm.runner RUN" in done.stderr


def test_a_run_can_be_run_again_by_hand(call: Call) -> None:
    call.put(lambda: 5)
    done = subprocess.run(
        [sys.executable, "-m", "slurm.runner", str(call.path)], timeout=LIMIT, cwd="/"
    )
    assert done.returncode == 0
    assert call.value() == 5


# ---- attempts and upstream ----------------------------------------------------------------------


def test_a_later_attempt_that_finds_a_value_ends_without_running(call: Call) -> None:
    call.put(lambda: 1)
    assert call.run()[0] == 0
    call.env = {"SLURM_RESTART_COUNT": "1"}
    status, errors = call.run()
    assert status == 0
    assert "an earlier attempt has the value" in errors
    assert call.record().attempt == 0


def test_a_later_attempt_runs_after_one_that_failed(call: Call) -> None:
    def second_time(folder: str) -> int:
        import os

        marker = os.path.join(folder, "marker")
        if not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("the first time")
        return 2

    call.put(second_time, str(call.path))
    assert call.run()[0] == 1
    call.env = {"SLURM_RESTART_COUNT": "1"}
    assert call.run()[0] == 0
    kinds = [(r.kind, r.attempt) for r in rundir.all_records(str(call.path))]
    assert kinds == [(rundir.ERROR, 0), (rundir.VALUE, 1)]


class FinishedJob:
    """Has what the pickler needs of a Job."""

    def __init__(self, run: str) -> None:
        self.run, self.index = run, 0

    def __slurm_reference__(self) -> tuple[str, str, int]:
        return ("job", self.run, self.index)


def _upstream(base: Path, payload: bytes | None) -> FinishedJob:
    folder = base / "upstream"
    folder.mkdir(mode=0o700)
    for name in rundir.FOLDERS:
        (folder / name).mkdir(mode=0o700)
    if payload is not None:
        who = rundir.Identity("8", 0, 0, 0)
        rundir.append_record(str(folder), who, rundir.VALUE, {}, payload)
    return FinishedJob("upstream")


@pytest.mark.parametrize("size", [3, 2_000_000])
def test_the_value_of_another_job_is_read_on_the_node(call: Call, size: int) -> None:
    job = _upstream(call.path.parent, pickle.dumps("x" * size))
    call.put(lambda given: [len(given["deep"][0]), given["deep"][1]], {"deep": [job, 1]})
    assert call.run() == (0, "")
    assert call.value() == [size, 1]


def test_an_upstream_without_a_value_is_named(call: Call) -> None:
    call.put(lambda given: given, _upstream(call.path.parent, None))
    assert call.run()[0] == 1
    assert "upstream has no value for call 0" in call.record().header["message"]


def test_an_upstream_that_others_could_have_written_is_not_unpickled(call: Call) -> None:
    job = _upstream(call.path.parent, pickle.dumps(1))
    (call.path.parent / "upstream" / rundir.RESULTS).chmod(0o777)
    call.put(lambda given: given, job)
    assert call.run()[0] == 1
    assert "writable by others" in call.record().header["message"]


# ---- context and signals ------------------------------------------------------------------------


def by_value(function: Any) -> Any:
    """The same function without a module, so that it travels by value."""
    copy = type(function)(
        function.__code__, {"JobContext": JobContext}, "nested", function.__defaults__
    )
    copy.__annotations__ = dict(function.__annotations__)
    copy.__qualname__ = "test.<locals>.nested"
    return copy


def first(ctx: JobContext, a: int, b: int = 0) -> list[Any]:
    return [type(ctx).__name__, ctx.job_id, a, b]


def middle(a: int, ctx: JobContext, b: int = 0) -> list[Any]:
    return [type(ctx).__name__, ctx.job_id, a, b]


def keyword(a: int, b: int = 0, *, ctx: JobContext) -> list[Any]:
    return [type(ctx).__name__, ctx.job_id, a, b]


def positional_only(a: int, ctx: JobContext, /, b: int = 0) -> list[Any]:
    return [type(ctx).__name__, ctx.job_id, a, b]


CALLS: list[tuple[tuple[int, ...], dict[str, int]]] = [
    ((1, 2), {}),
    ((1,), {"b": 2}),
    ((), {"a": 1, "b": 2}),
]


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [(f, *written) for f in (first, middle, keyword) for written in CALLS]
    + [(positional_only, *written) for written in CALLS[:2]],
)
def test_the_context_reaches_its_parameter_however_the_call_is_written(
    call: Call, function: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, Any]
) -> None:
    call.put(by_value(function), *args, **kwargs)
    status, errors = call.run()
    assert (status, errors) == (0, "")
    assert call.value() == ["JobContext", "31", 1, 2]


def wait_for_stop(folder: str, ctx: JobContext) -> str | None:
    import time

    open(folder + "/ready", "w").close()
    for _ in range(6000):
        if ctx.should_stop:
            return ctx.stop_signal
        time.sleep(0.01)
    return "never"


def wait_long(folder: str) -> str:
    import time

    open(folder + "/ready", "w").close()
    time.sleep(0.5)
    return "went on"


@pytest.mark.parametrize(
    ("number", "warning", "name"),
    [
        (signal.SIGUSR2, "USR2", "SIGUSR2"),
        (signal.SIGUSR1, "USR1", "SIGUSR1"),
        (signal.SIGTERM, "USR2", "SIGTERM"),
    ],
)
def test_a_function_with_a_context_can_end_in_time(
    call: Call, number: signal.Signals, warning: str, name: str
) -> None:
    call.env = {"SLURM_SDK_WARNING": warning}
    call.put(by_value(wait_for_stop), str(call.path))
    process = call.start()
    call.until("ready")
    process.send_signal(number)
    process.communicate(timeout=LIMIT)
    assert call.value() == name


def test_the_warning_does_not_kill_a_function_that_does_not_know_it(call: Call) -> None:
    call.put(by_value(wait_long), str(call.path))
    process = call.start()
    call.until("ready")
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert call.value() == "went on"


def test_term_ends_a_function_without_a_context_at_once(call: Call) -> None:
    call.put(by_value(wait_for_stop_without), str(call.path))
    process = call.start()
    call.until("ready")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGTERM
    assert list(rundir.all_records(str(call.path))) == []


def wait_for_stop_without(folder: str) -> None:
    import time

    open(folder + "/ready", "w").close()
    time.sleep(50)
