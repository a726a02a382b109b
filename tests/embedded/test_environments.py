"""Environments are made once, whole or not at all, whoever dies when: by real processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import rundir
from slurm.packaging.build import find_uv
from slurm.runner import environment_state as state
from slurm.runner import lease
from slurm.runner.lease import Lease
from waiting import holds, until

sys.path.insert(0, str(Path(__file__).parents[1]))

from projects import make_project

PROGRAM = Path(str(slurm.__file__)).parent / "runner" / "environment.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an environment below a base directory."""
    path = tmp_path / "base" / rundir.BASE_ENVIRONMENTS / "key"
    path.mkdir(parents=True)
    return path


def write_recipe(folder: Path, **changes: Any) -> None:
    version = "{}.{}".format(*sys.version_info)
    recipe = {
        "label": "test",
        "python": {"version": version, "path": sys.executable},
        "wheel": None,
        "wheels": [],
        "installer": "auto",
        "uv": find_uv(),
        **changes,
    }
    (folder / rundir.RECIPE).write_text(json.dumps(recipe))


def build(tmp_path: Path, name: str, code: str) -> Path:
    """The wheel of a small project."""
    project = make_project(tmp_path / name, name, code)
    words = [str(find_uv()), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path)]
    subprocess.run([*words, str(project)], check=True, timeout=120)
    return tmp_path / f"{name}-0.1-py3-none-any.whl"


def slow_uv(tmp_path: Path, body: str) -> str:
    """A program that stands before uv; `REAL` is uv itself."""
    program = tmp_path / "uv-slow"
    program.write_text(f"#!/bin/bash\nREAL={find_uv()}\n{body}\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts what a job's script would start; kills what is left of it."""
    started: list[subprocess.Popen[str]] = []

    def make(**env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield make
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(path: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.02)


def attempts(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()]


def test_many_who_need_it_at_once_make_it_once_and_it_is_read_only(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    count = tmp_path / "count"
    write_recipe(folder, uv=slow_uv(tmp_path, f'echo "$1" >> {count}; sleep 0.5; exec $REAL "$@"'))
    processes = [start() for _ in range(6)]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 6
    assert count.read_text().splitlines() == ["venv"]
    assert sum("making the environment" in text for text in said) == 1
    (made,) = attempts(folder)
    modes = [p.lstat().st_mode for p in [made, *made.rglob("*")] if not p.is_symlink()]
    assert not any(mode & stat.S_IWUSR for mode in modes)
    assert not (folder / state.LOCK).exists()


def test_when_its_maker_is_killed_another_makes_it_and_nobody_uses_the_half(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    mark = tmp_path / "first"
    body = f'$REAL "$@"; if [ ! -e {mark} ]; then touch {mark}; sleep 60; fi'
    write_recipe(folder, uv=slow_uv(tmp_path, body))
    first = start()
    wait_for(mark)
    half = attempts(folder)
    assert half
    assert not state.is_ready(str(folder))
    others = [start() for _ in range(2)]
    holds("both wait", lambda: all(process.poll() is None for process in others), 1)
    os.killpg(first.pid, signal.SIGKILL)
    for process in others:
        assert process.wait(60) == 0
    assert state.is_ready(str(folder))
    assert half[0].name not in os.readlink(folder / rundir.CURRENT)
    assert not half[0].exists()


def test_a_maker_that_is_told_to_stop_leaves_nothing_behind(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    mark = tmp_path / "begun"
    write_recipe(folder, uv=slow_uv(tmp_path, f'$REAL "$@"; touch {mark}; sleep 60'))
    process = start()
    wait_for(mark)
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    assert attempts(folder) == []
    assert not (folder / state.LOCK).exists()
    assert state.describe(str(folder))["state"] == "unmade"


def test_a_failure_is_told_to_all_who_waited_and_is_not_repeated_for_them(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    count = tmp_path / "count"
    body = f'echo x >> {count}; sleep 2; echo "no such thing as that"; exit 3'
    write_recipe(folder, uv=slow_uv(tmp_path, body))
    processes = [start() for _ in range(4)]
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [1] * 4
    assert all("no such thing as that" in text for text in said)
    assert count.read_text().splitlines() == ["x"]
    found = state.describe(str(folder))
    assert found["state"] == "failed"
    # Who comes later tries again: the cause may have gone.
    write_recipe(folder)
    assert start().wait(60) == 0


def test_an_array_fails_as_a_whole_and_the_next_attempt_tries_again(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    count = tmp_path / "count"
    write_recipe(folder, uv=slow_uv(tmp_path, f"echo x >> {count}; exit 3"))
    for element in ("0", "1", "2"):
        job = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": f"7{element}"}
        assert start(**job).wait(60) == 1
    assert count.read_text().splitlines() == ["x"]
    assert start(SLURM_ARRAY_JOB_ID="7", SLURM_RESTART_COUNT="1").wait(60) == 1
    assert count.read_text().splitlines() == ["x", "x"]


def test_a_dependency_that_does_not_resolve_is_explained(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    write_recipe(
        folder,
        dependencies=["surely-not-there==9.9"],
        find_links=[str(tmp_path / "empty")],
        index_url="http://127.0.0.1:9/simple",
    )
    process = start(UV_HTTP_RETRIES="0", UV_HTTP_CONNECT_TIMEOUT="2")
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert "surely-not-there" in said
    failure = state.describe(str(folder))["failure"]
    assert failure is not None
    assert "index" in failure["hint"]
    assert attempts(folder) == []


def test_a_full_disk_leaves_no_half_environment(tmp_path: Path) -> None:
    base = tmp_path / "small"
    base.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(base)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a file system of one megabyte cannot be mounted here")
    try:
        folder = base / rundir.BASE_ENVIRONMENTS / "key"
        folder.mkdir(parents=True)
        wheel = build(tmp_path, "large", f"DATA = '{'x' * 3_000_000}'")
        write_recipe(folder, wheel=str(wheel), index_url="http://127.0.0.1:9/simple")
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1
        assert "No space left" in done.stderr
        assert attempts(folder) == []
        assert not state.is_ready(str(folder))
        assert not (folder / state.LOCK).exists()
    finally:
        subprocess.run(["umount", str(base)], check=True)


def test_an_environment_that_was_removed_says_so(
    folder: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start()  # no recipe
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "recipe" in said


def test_pip_makes_it_where_there_is_no_uv(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    wheel = build(tmp_path, "piped", "NAME = 'by pip'")
    no_index = "http://127.0.0.1:9/simple"
    write_recipe(folder, installer="pip", wheel=str(wheel), index_url=no_index)
    assert start().wait(120) == 0
    python = folder / rundir.CURRENT / "bin" / "python"
    done = subprocess.run(
        [str(python), "-c", "import piped; print(piped.NAME)"], capture_output=True, text=True
    )
    assert done.stdout == "by pip\n"


@pytest.mark.full
def test_uv_provides_a_python_that_is_not_on_path(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    found = sorted(Path("~/.pyenv/versions").expanduser().glob("3.12.*"))
    if not found:
        pytest.skip("no Python 3.12 is here that could stand for what uv has fetched")
    store = tmp_path / "managed"
    (store / f"cpython-{found[0].name}-linux-x86_64-gnu").mkdir(parents=True)
    for part in found[0].iterdir():
        (store / f"cpython-{found[0].name}-linux-x86_64-gnu" / part.name).symlink_to(part)
    write_recipe(folder, python={"version": "3.12", "path": None})
    own = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "UV_PYTHON_INSTALL_DIR": str(store)}
    assert start(**own).wait(120) == 0
    python = folder / rundir.CURRENT / "bin" / "python"
    done = subprocess.run([str(python), "-V"], capture_output=True, text=True)
    assert done.stdout.startswith("Python 3.12")


@pytest.mark.full
def test_an_old_python_of_the_login_node_can_make_it(folder: Path) -> None:
    old = sorted(Path("~/.pyenv/versions").expanduser().glob("3.6.*/bin/python"))
    if not old:
        pytest.skip("no Python 3.6 is here")
    write_recipe(folder)
    done = subprocess.run(
        [str(old[0]), str(PROGRAM), str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert state.is_ready(str(folder))


def test_a_program_that_is_killed_points_to_the_memory_of_the_job(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    write_recipe(folder, uv=slow_uv(tmp_path, "kill -KILL $$"))
    assert start().wait(60) == 1
    failure = state.describe(str(folder))["failure"]
    assert failure is not None
    assert "slurm env build" in failure["hint"]


def test_a_python_that_cannot_be_fetched_names_the_setting(
    folder: Path, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    write_recipe(
        folder,
        python={"version": "3.99", "path": None},
        python_mirror=f"file://{tmp_path}/nothing",
    )
    said = start().communicate(timeout=60)[1]
    assert "making an environment with Python 3.99 failed" in said
    failure = state.describe(str(folder))["failure"]
    assert failure is not None
    assert "python_mirror" in failure["hint"]
    assert "UV_PYTHON_INSTALL_MIRROR" in failure["hint"]


# ---- the lock itself ----------------------------------------------------------------------------


def test_a_lock_has_one_holder_and_is_free_after_release(tmp_path: Path) -> None:
    one, other = Lease(str(tmp_path / "lock")), Lease(str(tmp_path / "lock"))
    assert one.take()
    assert not other.take()
    assert other.break_dead() is None
    one.release()
    assert other.take()
    other.release()


def test_a_lock_of_another_host_is_taken_over_when_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    far = {"token": "far-1", "host": "elsewhere-00000000", "pid": 1, "started": "1", "beats": 0}
    path.write_text(json.dumps(far))
    waiting = Lease(str(path))
    assert waiting.break_dead() is None
    path.write_text(json.dumps({**far, "beats": 1}))  # it lives
    assert waiting.break_dead() is None
    monkeypatch.setattr(lease, "SILENT", 0.3)
    found: list[Any] = []

    def broken() -> bool:
        found.append(waiting.break_dead())
        return found[-1] is not None

    until("the lock of a silent host is broken", broken)
    gone = found[-1]
    assert (gone["token"], gone["dead"]) == ("far-1", False)
    assert waiting.take()
    waiting.release()


def test_a_number_that_another_process_has_now_is_no_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = Lease(str(path))
    assert holder.take()
    content = json.loads(path.read_text())
    holder._released.set()
    path.write_text(json.dumps({**content, "token": "before", "started": "1"}))
    gone = Lease(str(path)).break_dead()
    assert gone is not None
    assert gone["dead"]


def test_a_holder_notices_that_another_has_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    one = Lease(str(path))
    assert one.take()
    path.write_text(json.dumps({"token": "another"}))
    assert not one.is_ours()
    one.release()
    assert path.exists()
