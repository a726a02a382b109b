"""What was submitted is what runs: edits do not reach jobs that wait, children or workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from slurm import Cluster, NotDelivered, rundir
from slurm.api import whole
from slurm.packaging import capture, modules

WORK = """
    import time
    from pathlib import Path
    from slurm import task, workflow
    VALUE = 2

    @task(time="5min")
    def value(_=0):
        return VALUE

    @task(time="5min")
    def slow(_=0):
        time.sleep(0.3)
        import late
        return VALUE if late.SAME == VALUE else "mixed"

    @workflow(time="5min")
    def flow(sign):
        # The file is edited before the first child is submitted.
        while not Path(sign).exists():
            time.sleep(0.05)
        return [value().result(), *value.map([1, 2]).results()]

    @task
    def place():
        import late
        return __file__, late.__file__, (Path(__file__).parent / "data.txt").read_text()

    @task
    def fails():
        raise ValueError("as submitted")  # the line as it was

    def spawned(conn):
        import late
        conn.send((VALUE, late.SAME, __file__))

    @task
    def spawns():
        import multiprocessing
        found = []
        for way in ("spawn", "forkserver", "fork"):
            context = multiprocessing.get_context(way)
            here, there = context.Pipe()
            child = context.Process(target=spawned, args=(there,))
            child.start()
            found.append(here.recv())
            child.join()
        return found

    @task
    def source():
        import inspect
        return inspect.getsource(value.unwrapped)
"""
LATE = "SAME = 2\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; what is imported from it is forgotten afterwards."""
    path = tmp_path / "code"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    before = set(sys.modules)
    yield path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def work(folder: Path) -> Iterator[object]:
    (folder / "work_captured.py").write_text(textwrap.dedent(WORK))
    (folder / "late.py").write_text(LATE)
    (folder / "data.txt").write_text("data")
    import work_captured  # type: ignore[import-not-found]

    yield work_captured


def edit(folder: Path) -> None:
    file = folder / "work_captured.py"
    text = file.read_text().replace("VALUE = 2", "VALUE = 99")
    file.write_text("\n\n" + text.replace("as it was", "as it is now"))
    (folder / "late.py").write_text("SAME = 99\n")


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_items_that_wait_run_what_was_submitted(
    cluster: Cluster, work: object, folder: Path
) -> None:
    array = work.slow.map(range(4), max_concurrent=1)  # type: ignore[attr-defined]
    wait_until(lambda: array[0].state.value != "PENDING")
    edit(folder)
    assert array.results(60) == [2, 2, 2, 2]
    assert work.slow().result(60) == 99  # type: ignore[attr-defined]


def test_a_job_that_waits_runs_what_was_submitted(
    cluster: Cluster, work: object, folder: Path
) -> None:
    job = cluster.submit(work.slow, hold=True)()  # type: ignore[attr-defined]
    edit(folder)
    job.release()
    assert job.result(60) == 2


def test_the_items_of_packs_run_what_was_submitted(
    cluster: Cluster, work: object, folder: Path
) -> None:
    array = work.slow.map(range(4), pack=1, max_concurrent=1)  # type: ignore[attr-defined]
    wait_until(lambda: array[0].state.value != "PENDING")
    edit(folder)
    assert array.results(60) == [2, 2, 2, 2]


def test_the_children_of_a_workflow_run_what_was_submitted(
    cluster: Cluster, work: object, folder: Path, tmp_path: Path
) -> None:
    job = work.flow(str(tmp_path / "sign"))  # type: ignore[attr-defined]
    wait_until(lambda: job.state.value != "PENDING")
    edit(folder)
    (tmp_path / "sign").touch()
    assert job.result(90) == [2, 2, 2]


def test_the_workers_of_an_executor_run_what_was_submitted(
    cluster: Cluster, work: object, folder: Path
) -> None:
    with cluster.executor(1) as pool:
        first = pool.submit(work.slow)  # type: ignore[attr-defined]
        edit(folder)
        others = [pool.submit(work.slow) for _ in range(3)]  # type: ignore[attr-defined]
        assert [future.result(60) for future in [first, *others]] == [2, 2, 2, 2]


def test_calls_of_a_batch_run_what_was_there_when_they_were_made(
    cluster: Cluster, work: object, folder: Path
) -> None:
    with cluster.batch():
        job = work.slow()  # type: ignore[attr-defined]
        edit(folder)
    assert job.result(60) == 2


def test_a_script_and_the_modules_beside_it_run_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("X = 2\n")
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            f"""
            from pathlib import Path
            from slurm import Cluster, task

            @task
            def f():
                import beside
                raise ValueError(beside.X)  # line of f

            if __name__ == "__main__":
                with Cluster("embedded", job_base_dir={str(tmp_path / "jobs")!r}) as cluster:
                    job = cluster.submit(f, hold=True)()
                    Path("beside.py").write_text("X = 99")
                    text = Path("script.py").read_text()
                    Path("script.py").write_text("#\\n" + text.replace("line of", "other"))
                    job.release()
                    print(repr(job.exception(60)), job.stderr())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert "ValueError(2)" in done.stdout, done.stderr
    assert "raise ValueError(beside.X)  # line of f" in done.stdout


def test_modules_seem_to_lie_where_they_were_written(
    cluster: Cluster, work: object, folder: Path
) -> None:
    job = cluster.submit(work.place, hold=True)()  # type: ignore[attr-defined]
    failing = cluster.submit(work.fails, hold=True)()  # type: ignore[attr-defined]
    text = cluster.submit(work.source, hold=True)()  # type: ignore[attr-defined]
    edit(folder)
    for one in (job, failing, text):
        one.release()
    assert job.result(60) == (str(folder / "work_captured.py"), str(folder / "late.py"), "data")
    assert "as submitted" in str(failing.exception(60))
    log = failing.stderr()
    assert f'File "{folder}/work_captured.py"' in log
    assert 'raise ValueError("as submitted")  # the line as it was' in log
    assert "return VALUE" in text.result(60)


def test_a_file_that_is_gone_is_not_missed(cluster: Cluster, work: object, folder: Path) -> None:
    job = cluster.submit(work.slow, hold=True)()  # type: ignore[attr-defined]
    (folder / "work_captured.py").unlink()
    (folder / "late.py").unlink()
    job.release()
    assert job.result(60) == 2


def test_processes_that_a_job_spawns_import_what_was_submitted(
    cluster: Cluster, work: object, folder: Path
) -> None:
    job = cluster.submit(work.spawns, hold=True)()  # type: ignore[attr-defined]
    edit(folder)
    job.release()
    assert job.result(60) == [(2, 2, str(folder / "work_captured.py"))] * 3


def test_threads_that_submit_at_once_bring_the_code_once(cluster: Cluster, work: object) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: work.value(), range(8)))  # type: ignore[attr-defined]
    assert [job.result(60) for job in jobs] == [2] * 8


def test_resources_and_pools_of_processes_work_in_captured_code(
    cluster: Cluster, folder: Path
) -> None:
    code = """
        import importlib.resources, multiprocessing, pkgutil
        from concurrent.futures import ProcessPoolExecutor
        VALUE = 2

        def one(_):
            return VALUE

        def f():
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                values = list(pool.map(one, range(2)))
            text = importlib.resources.files("pk_r").joinpath("d.txt").read_text()
            return text, pkgutil.get_data("pk_r", "d.txt"), values
    """
    put(folder, {"pk_r/__init__.py": "", "pk_r/d.txt": "data", "pk_r/m.py": textwrap.dedent(code)})
    import pk_r.m  # type: ignore[import-not-found]

    job = cluster.submit(pk_r.m.f, hold=True)()
    (folder / "pk_r" / "m.py").write_text("VALUE = 99\n")
    job.release()
    assert job.result(60) == ("data", b"data", [2, 2])


def test_none_uses_the_files_as_they_are_when_the_job_runs(
    cluster: Cluster, work: object, folder: Path
) -> None:
    job = cluster.submit(work.slow, packaging="none", hold=True)()  # type: ignore[attr-defined]
    edit(folder)
    job.release()
    assert job.result(60) == 99


def test_unchanged_code_is_stored_once_and_explained(
    cluster: Cluster, work: object, folder: Path
) -> None:
    jobs = [work.value() for _ in range(3)]  # type: ignore[attr-defined]
    assert [job.result(60) for job in jobs] == [2, 2, 2]
    stored = list(Path(cluster.base, rundir.BASE_SNAPSHOTS).iterdir())
    assert len(stored) == 1
    plan = cluster.explain(work.value)()  # type: ignore[attr-defined]
    assert "captured: auto; the code as it is now" in str(plan)
    assert plan.environment.details["captured"]["digest"] == stored[0].name
    assert str(folder) in plan.environment.details["captured"]["roots"]


def test_captured_code_that_was_cleaned_away_is_brought_again(
    cluster: Cluster, work: object
) -> None:
    assert work.value().result(60) == 2  # type: ignore[attr-defined]
    (code,) = Path(cluster.base, rundir.BASE_SNAPSHOTS).glob(f"*/{rundir.CODE}")
    code.unlink()
    assert work.value().result(60) == 2  # type: ignore[attr-defined]


def test_a_module_that_takes_the_place_of_another_is_the_one_that_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = modules.Loaded()
    monkeypatch.setitem(sys.modules, "replaced", os)  # removed again at the end
    for number in range(50):  # a new module often gets the address of the one that has just gone
        file = tmp_path / f"place{number}" / "replaced.py"
        file.parent.mkdir()
        file.touch()
        spec = spec_from_file_location("replaced", file)
        assert spec is not None
        sys.modules.pop("replaced")
        sys.modules["replaced"] = module_from_spec(spec)
        assert [m.file for m in loaded.modules() if m.name == "replaced"] == [str(file)]


def test_captured_code_that_is_neither_there_nor_kept_is_taken_from_unchanged_files(
    cluster: Cluster, folder: Path, work: object
) -> None:
    def forget() -> None:
        shutil.rmtree(os.path.dirname(capture.spooled("any")))

    with cluster.batch():
        job = work.value()  # type: ignore[attr-defined]
        forget()
    assert job.result(60) == 2
    shutil.rmtree(Path(cluster.base, rundir.BASE_SNAPSHOTS))
    with pytest.raises(NotDelivered, match="was edited after this call was made"), cluster.batch():
        work.value()  # type: ignore[attr-defined]
        forget()
        edit(folder)


def test_what_is_captured_again_and_again_is_not_cleaned_away(
    cluster: Cluster, work: object
) -> None:
    assert work.value().result(60) == 2  # type: ignore[attr-defined]
    kept = [path for path in Path(capture.spooled("any")).parent.iterdir() if not path.suffix]
    for path in kept:
        os.utime(path, (1, 1))
    cluster.explain(work.value)()  # type: ignore[attr-defined]
    assert all(path.stat().st_mtime > 1e9 for path in kept)


def test_captured_code_that_was_cut_short_is_brought_again(
    cluster: Cluster, work: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "PAUSE", 0.0)
    monkeypatch.setattr(whole, "SHARE", 0)
    assert work.value().result(60) == 2  # type: ignore[attr-defined]
    (code,) = Path(cluster.base, rundir.BASE_SNAPSHOTS).glob(f"*/{rundir.CODE}")
    code.chmod(0o600)
    code.write_bytes(code.read_bytes()[:40])
    assert work.value().result(60) == 2  # type: ignore[attr-defined]


def test_a_folder_that_the_job_puts_in_front_of_the_path_comes_first(
    cluster: Cluster, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    put(other, {"chosen.py": "X = 'other'\n"})
    put(folder, {"chosen.py": "X = 'beside'\n"})
    put(
        folder,
        {
            "chooses.py": f"""
import sys

def f():
    sys.path.insert(0, {str(other)!r})
    import chosen
    return chosen.X
"""
        },
    )
    import chooses  # type: ignore[import-not-found]

    assert cluster.submit(chooses.f)().result(60) == "other"


# ---- once more --------------------------------------------------------------------------------

BROKEN = """
from slurm import Cluster, task

@task
def half(n):
    return n / 0

if __name__ == "__main__":
    with Cluster("embedded", job_base_dir={base!r}):
        job = {call}
    print(job.run)
    job.wait()
"""


def slurm(base: Path, *words: str) -> subprocess.CompletedProcess[str]:
    words = (*words, "--cluster", "embedded", "--job-base-dir", str(base))
    return subprocess.run(
        [sys.executable, "-m", "slurm.cli", *words],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("call", ["half(4)", "half.map([4, 8])"])
@pytest.mark.parametrize("where", ["script", "module"])
def test_rerun_says_which_code_it_runs_and_takes_todays_when_it_is_told(
    call: str, where: str, tmp_path: Path
) -> None:
    base = tmp_path / "jobs"
    text = BROKEN.format(base=str(base), call=call)
    file = tmp_path / f"half_{where}.py"
    file.write_text(text)
    program = file
    if where == "module":
        program = tmp_path / "program.py"
        program.write_text(f"from half_module import half\n{text.replace('def half', 'def other')}")
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    run = done.stdout.split()[0]
    file.write_text(text.replace("n / 0", "n / 2"))
    again = slurm(base, "rerun", run, "--failed")
    assert f"it runs the code that {run} was submitted with" in again.stdout, again.stderr
    assert f"slurm rerun {run} --code current" in again.stdout
    new = again.stdout.split()[1]
    assert "ZeroDivisionError" in slurm(base, "wait", new).stdout + slurm(base, "show", new).stdout
    again = slurm(base, "rerun", run, "--failed", "--code", "current")
    assert "it runs the code as it is now" in again.stdout, again.stderr
    with Cluster("embedded", job_base_dir=base) as cluster:
        job = cluster.attach(again.stdout.split()[1])
        found = job.results(60) if call != "half(4)" else [job.result(60)]
    assert found == [2.0, 4.0][: len(found)]


# ---- odd layouts ------------------------------------------------------------------------------


def found_in(folder: Path, *names: str, project: bool = False) -> modules.Found:
    for name in names:
        __import__(name)
    sources = modules.Sources()
    loaded = [m for m in modules.Loaded().modules() if m.file.startswith(str(folder))]
    return modules.find_modules(loaded, str(folder) if project else None, sources, None)


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_package_comes_whole_and_a_module_with_what_it_imports(folder: Path) -> None:
    put(
        folder,
        {
            "pk_a/__init__.py": "",
            "pk_a/deep/__init__.py": "",
            "pk_a/deep/x.py": "",
            "pk_a/nodot/y.py": "",
            "pk_a/data/values.csv": "1",
            "pk_a/not-a-name.py": "",
            "mo_b.py": "import mo_c, json as j\ndef f():\n    from ns_d.inner import (\n  e, g)\n",
            "mo_c.py": "from ns_d import h as k\ndef f():\n    import not_there\n",
            "ns_d/inner/e.py": "",
            "ns_d/h.py": "",
            "ns_d/unused.py": "",
            "mo_unused.py": "",
        },
    )
    found = found_in(folder, "pk_a", "mo_b")
    assert set(found.modules) == {
        *("pk_a", "pk_a.deep", "pk_a.deep.x", "pk_a.nodot.y"),
        *("mo_b", "mo_c", "ns_d.inner.e", "ns_d.h"),
    }
    assert set(found.namespaces) == {"pk_a.nodot", "ns_d", "ns_d.inner"}


def test_a_project_comes_with_what_nothing_imports(folder: Path) -> None:
    put(folder, {"pk_e/__init__.py": "", "pk_f/__init__.py": "", "pk_f/g.py": "", "mo_h.py": ""})
    found = found_in(folder, "pk_e", project=True)
    assert {"pk_e", "pk_f", "pk_f.g", "mo_h"} <= set(found.modules)


def test_strange_files_are_left_alone(folder: Path) -> None:
    put(folder, {"pk_i/__init__.py": "", "pk_i/ok.py": "", "pk_i/fast.cpython-311.so": ""})
    put(folder, {"pk_i/node_modules/x.py": "", "pk_i/envx/pyvenv.cfg": "", "pk_i/envx/z.py": ""})
    inside = folder / "pk_i"
    os.mkfifo(inside / "pipe.py")
    (inside / "loop").symlink_to(inside)
    (inside / "self.py").symlink_to("self.py")
    (inside / "dangling.py").symlink_to("nowhere.py")
    os.mkdir(os.fsencode(inside) + b"/b\xff")
    Path(os.fsdecode(os.fsencode(inside) + b"/b\xff.py")).write_text("")
    (inside / "huge.py").write_text("#" * (modules.LARGEST + 1))
    found = found_in(folder, "pk_i", project=True)
    names = {name for name in found.modules if name.startswith("pk_i")}
    assert {"pk_i", "pk_i.ok"} <= names
    assert names <= {"pk_i", "pk_i.ok", "pk_i.loop", "pk_i.loop.ok"}
    assert found.left == ["1 compiled modules stay where they are"]


def test_more_files_than_a_program_has_are_not_swept_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, {"pk_j/__init__.py": "", "pk_j/used.py": "import pk_j.named\n"})
    put(folder, {"pk_j/named.py": "", **{f"pk_j/m{n}.py": "" for n in range(30)}})
    monkeypatch.setattr(modules, "MOST_FILES", 20)
    found = found_in(folder, "pk_j.used")
    assert set(found.modules) == {"pk_j", "pk_j.used", "pk_j.named"}
    assert "more than 20 files: only what is imported" in found.left[0]


def test_a_folder_of_data_in_a_package_is_not_read_through(folder: Path) -> None:
    put(folder, {"pk_k/__init__.py": "", "pk_k/data/a.py.txt": ""})
    for number in range(modules.MOST_OTHERS * 3):
        (folder / "pk_k" / "data" / f"{number}.png").touch()
    assert found_in(folder, "pk_k").seen < modules.MOST_OTHERS + 10


def test_unchanged_code_costs_little(folder: Path, tmp_path: Path) -> None:
    put(folder, {"pk_l/__init__.py": "", **{f"pk_l/m{n}.py": "X = 1\n" * 50 for n in range(500)}})
    __import__("pk_l")
    source = str(folder / "pk_l" / "__init__.py")
    begun = time.process_time()
    first = capture.take(source)
    assert time.process_time() - begun < 2
    wait_until(lambda: all(stamp for stamp in capture.take(source).stamps.values()))  # type: ignore[union-attr]
    begun = time.process_time()
    for _ in range(10):
        assert capture.take(source).digest == first.digest  # type: ignore[union-attr]
    assert (time.process_time() - begun) / 10 < 0.02


@pytest.mark.parametrize(
    "statement",
    [
        "if True: import beside_it",
        "x = 1; import beside_it",
        "import os, \\\n        beside_it",
        "from in_it import (  # the one (of two)\n        beside_it)",
    ],
)
def test_an_import_in_the_middle_of_a_line_is_captured(
    cluster: Cluster, folder: Path, statement: str
) -> None:
    place = folder / "in_it" / "beside_it.py" if "in_it" in statement else folder / "beside_it.py"
    place.parent.mkdir(exist_ok=True)
    place.write_text("V = 'as submitted'\n")
    (folder / "imports_late.py").write_text(
        f"from slurm import task\n@task\ndef f():\n    {statement}\n    return beside_it.V\n"
    )
    import imports_late  # type: ignore[import-not-found]

    job = cluster.submit(imports_late.f, hold=True)()
    place.write_text("V = 'edited since'\n")
    job.release()
    assert job.result(60) == "as submitted"


@pytest.mark.parametrize("kept", [0, 100, -8])
def test_what_a_disk_has_lost_of_a_capture_is_captured_again(
    cluster: Cluster, work: object, tmp_path: Path, kept: int
) -> None:
    assert work.value().result(60) == 2  # type: ignore[attr-defined]
    for path in (tmp_path / "cache").rglob("captures/*"):
        if path.suffix != ".json":
            data = path.read_bytes()
            path.write_bytes(data[:kept])
    with Cluster("embedded", job_base_dir=tmp_path / "others"):
        assert work.value().result(60) == 2  # type: ignore[attr-defined]
