"""Wheels and snapshots: the code that runs is the code that was there at submission."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import (
    BuildFailed,
    Cluster,
    EnvironmentFailed,
    NotDelivered,
    PackagingError,
    rundir,
    task,
)
from slurm.packaging import progress
from slurm.packaging.retention import look, sweep

sys.path.insert(0, str(Path(__file__).parents[1]))

from projects import git, make_project

CODE = """
    import sys
    from slurm import task, workflow, Cluster

    @task(time="5min")
    def where(x=0):
        import slurm
        return {"x": x, "prefix": sys.prefix, "file": __file__, "sdk": slurm.__file__}

    @workflow(time="5min")
    def flow():
        awaited = where(1).result()
        return [awaited, where(2), where.map([3, 4])[1]]

    @workflow(time="5min")
    def choosy():
        try:
            where.with_options(packaging="source")(1)
        except Exception as error:
            return str(error)

    VALUE = 1

    @task
    def value():
        return VALUE
"""


@pytest.fixture(scope="session")
def wheel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(wheel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(wheel_cache))
    # No index is asked: nothing in these projects comes from one.
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes a project and imports its package, as a program that was started there would."""
    made: list[str] = []

    def make(name: str = "shapes", code: str = CODE, **options: Any) -> Any:
        root = make_project(tmp_path / name, name, code, **options)
        monkeypatch.syspath_prepend(str(root))
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


def record(job: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(job.path) / rundir.ENVIRONMENT).read_text())
    return found


# ---- wheels -------------------------------------------------------------------------------------


def test_a_project_is_built_sent_and_installed_once(
    cluster: Cluster, project: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = tmp_path / "builds"
    monkeypatch.setenv("COUNT_BUILDS", str(builds))
    shapes = project(requires=("slurm-sdk",))
    events: list[str] = []
    with progress.listening(lambda e: events.append(f"{e.stage} {e.state}")):
        jobs = [cluster.submit(shapes.where, packaging="wheel")(n) for n in range(2)]
        found = [job.result(120) for job in jobs]
    assert [value["x"] for value in found] == [0, 1]
    store = f"{cluster.base}/{rundir.BASE_ENVIRONMENTS}/"
    assert all(value["prefix"].startswith(store) for value in found)
    assert all(value["file"].startswith(store) for value in found)
    # The project asks for slurm-sdk, and no index was there to give it.
    assert all(value["sdk"].startswith(cluster.base) for value in found)
    assert builds.read_text().splitlines() == ["built"]
    assert [e for e in events if "end" in e] == ["build end", "upload end", "upload end"]
    told = record(jobs[0])
    assert told["kind"] == "wheel"
    assert told["digest"] in told["python"]
    assert told["details"]["wheel"] == "shapes-0.1-py3-none-any.whl"
    assert told["details"]["source"]["files"] == 3
    taken = []
    for _ in range(8):
        begun = time.perf_counter()
        cluster.submit(shapes.where, packaging="wheel").prepare()
        taken.append(time.perf_counter() - begun)
    assert min(taken) < 0.02
    plan = cluster.explain(shapes.where, packaging="wheel")(1)
    assert plan.by == "reference"
    assert "asked for by cluster.submit; shapes 0.1 of" in str(plan)


def test_an_array_makes_its_environment_once(cluster: Cluster, project: Callable[..., Any]) -> None:
    shapes = project("many")
    array = cluster.submit(shapes.where, packaging="wheel").map(range(12))
    assert [value["x"] for value in array.results(120)] == list(range(12))
    logs = [p.read_text() for p in Path(cluster.base, array.run, rundir.LOGS).glob("*.err")]
    assert sum("making the environment" in text for text in logs) == 1


def test_the_children_of_a_workflow_inherit_its_environment(
    cluster: Cluster, project: Callable[..., Any]
) -> None:
    shapes = project("flows")
    job = cluster.submit(shapes.flow, packaging="wheel")()
    found = job.result(170)
    assert [value["x"] for value in found] == [1, 2, 4]
    assert len({value["prefix"] for value in found}) == 1
    assert found[0]["prefix"].startswith(f"{cluster.base}/{rundir.BASE_ENVIRONMENTS}/")


def test_a_child_that_asks_for_another_package_than_its_workflow_is_refused(
    cluster: Cluster, project: Callable[..., Any]
) -> None:
    shapes = project("choosy")
    job = cluster.submit(shapes.choosy, packaging="wheel")()
    assert "asks for source, and the job around it has wheel" in job.result(120)


def test_code_that_changed_is_another_environment_and_a_waiting_job_keeps_its_own(
    cluster: Cluster, project: Callable[..., Any], tmp_path: Path
) -> None:
    edited = project("edited")
    held = cluster.submit(edited.value, packaging="wheel", hold=True)()
    source = tmp_path / "edited" / "edited" / "__init__.py"
    source.write_text(source.read_text().replace("VALUE = 1", "VALUE = 22"))
    after = cluster.submit(edited.value, packaging="wheel")()
    assert after.result(120) == 22
    held.release()
    assert held.result(120) == 1


def test_a_function_that_is_not_in_the_wheel_travels_by_value(
    cluster: Cluster, project: Callable[..., Any], tmp_path: Path
) -> None:
    project("kernel")
    options = {"type": "wheel", "project": tmp_path / "kernel"}

    @task(packaging=options)
    def outside() -> int:
        import kernel  # type: ignore[import-not-found]

        return int(kernel.VALUE) + 1

    assert "by value" in str(cluster.explain(outside)())
    assert cluster.submit(outside)().result(120) == 2


def test_a_build_that_fails_shows_its_last_lines_and_the_command(
    cluster: Cluster, project: Callable[..., Any], tmp_path: Path
) -> None:
    broken = project("broken")
    (tmp_path / "broken" / "backend.py").write_text("raise SystemExit('the moon is full')\n")
    with pytest.raises(BuildFailed, match="could not be built") as caught:
        cluster.submit(broken.where, packaging="wheel")()
    assert any("the moon is full" in line for line in caught.value.evidence)
    assert str(caught.value.hint).startswith(f"cd {tmp_path}/broken && ")
    assert list(Path(cluster.base).glob("where-*")) == []


def test_a_dependency_that_does_not_resolve_is_the_error_of_the_job(
    cluster: Cluster, project: Callable[..., Any]
) -> None:
    wanting = project("wanting", requires=("surely-not-there==9",))
    with pytest.raises(EnvironmentFailed, match="installing the project") as caught:
        cluster.submit(wanting.where, packaging="wheel")().result(120)
    assert any("surely-not-there" in line for line in caught.value.evidence)


def test_a_task_without_a_project_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "lonely.py"
    file.write_text("def f():\n    return 1\n")
    space: dict[str, Any] = {"__name__": "lonely"}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(PackagingError, match="there is none at or above") as caught:
        cluster.submit(space["f"], packaging="wheel")()
    assert "source" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["index_url", "extra_index_urls"])
def test_a_password_in_the_address_of_an_index_is_refused(
    cluster: Cluster, project: Callable[..., Any], name: str
) -> None:
    shapes = project("secret")
    packaging = {"type": "wheel", name: "https://me:hunter2@index.example/simple"}
    with pytest.raises(PackagingError, match="user or password") as caught:
        cluster.submit(shapes.where, packaging=packaging)()
    assert "hunter2" not in str(caught.value)
    assert "secrets=" in str(caught.value.hint)


def test_what_was_removed_meanwhile_is_brought_again(
    cluster: Cluster, project: Callable[..., Any]
) -> None:
    shapes = project("again")
    submit = cluster.submit(shapes.where, packaging="wheel")
    plan = submit.plan()
    first = submit().result(120)
    gone = sweep(cluster, older=0.0)
    assert {item.kind for item in gone} == {"environment", "wheel"}
    assert submit().result(120)["prefix"] == first["prefix"]
    sweep(cluster, older=0.0)
    with pytest.raises(NotDelivered):
        cluster.backend.submit_job("x-1", {rundir.ENVIRONMENT: _needs(plan.environment.needs)})


def _needs(names: tuple[str, ...]) -> bytes:
    return json.dumps({"needs": names}).encode()


def test_what_a_queued_job_needs_is_not_swept(
    cluster: Cluster, project: Callable[..., Any]
) -> None:
    shapes = project("queued")
    held = cluster.submit(shapes.where, packaging="wheel", hold=True)()
    assert sweep(cluster, older=0.0, dry_run=True) == []
    held.cancel()


def test_an_environment_can_be_made_before_any_job_is_submitted(
    cluster: Cluster, project: Callable[..., Any]
) -> None:
    shapes = project("early")
    packaging = {"type": "wheel", "build_on": "login"}
    stages: list[str] = []
    with progress.listening(lambda e: stages.append(f"{e.stage} {e.state}")):
        job = cluster.submit(shapes.where, packaging=packaging)()
    assert "install end" in stages
    (item,) = [item for item in look(cluster)[0] if item.kind == "environment"]
    assert (item.state, item.label) == ("ready", "early 0.1")
    assert job.result(60)["x"] == 0
    assert "making" not in "".join(job.log_lines(50, stderr=True))


def test_an_environment_is_staged_to_the_disk_of_the_node(
    cluster: Cluster, project: Callable[..., Any], tmp_path: Path
) -> None:
    shapes = project("staged")
    packaging = {"type": "wheel", "stage": str(tmp_path / "scratch")}
    found = cluster.submit(shapes.where, packaging=packaging)().result(120)
    assert found["prefix"].startswith(str(tmp_path / "scratch"))
    assert found["file"].startswith(str(tmp_path / "scratch"))


def test_the_command_builds_lists_and_removes(
    cluster: Cluster, project: Callable[..., Any], tmp_path: Path
) -> None:
    project("tooled")
    place = ["--cluster", "embedded", "--job-base-dir", cluster.base, "--json"]

    def slurm(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "slurm.cli", "env", *words, *place],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    built = slurm("build", str(tmp_path / "tooled"))
    assert built["kind"] == "wheel"
    listed = slurm("list")["items"]
    assert [(row["name"], row["state"]) for row in listed] == [(built["name"], "ready")]
    assert slurm("gc", "--dry-run")["items"] == []
    assert len(slurm("rm", built["name"][:8])["items"]) == 1
    assert slurm("list")["items"] == []


# ---- snapshots ----------------------------------------------------------------------------------

SCRIPT = """
    import json, sys
    from slurm import Cluster, task
    import helpers

    @task(packaging="source")
    def run():
        import late
        return [helpers.SIDE, late.NAME, helpers.__file__]

    if __name__ == "__main__":
        with Cluster("embedded", job_base_dir=sys.argv[1]):
            job = run.with_options(hold=True)()
        with open("helpers.py", "w") as f:
            f.write("SIDE = 'changed after submission'")
        job.release()
        print(json.dumps([job.result(120), job.path]))
"""


def test_modules_beside_a_script_come_from_the_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "main.py").write_text(textwrap.dedent(SCRIPT))
    (work / "helpers.py").write_text("SIDE = 'as submitted'")
    (work / "late.py").write_text("NAME = 'imported on the node'")
    (work / "odd\nname.txt").write_text("x")
    (work / "loop").symlink_to(".")
    (work / "__pycache__").mkdir()
    (work / "__pycache__" / "helpers.cpython-311.pyc").write_bytes(b"no source")
    git(work, "init", "-q")
    git(work, "add", "main.py", "helpers.py")
    git(work, "commit", "-qm", "one")
    # Byte code is written as it is for most people.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "main.py", cluster.base],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (side, late, file), path = json.loads(done.stdout)
    assert (side, late) == ("as submitted", "imported on the node")
    assert file.startswith(f"{cluster.base}/{rundir.BASE_SNAPSHOTS}/")
    told = json.loads((Path(path) / rundir.ENVIRONMENT).read_text())
    snapshot = told["details"]["snapshot"]
    assert snapshot["git"]["commit"] == git(work, "rev-parse", "HEAD")
    assert snapshot["git"]["untracked"] == 3
    assert snapshot["digest"] == told["digest"]
    kept = Path(cluster.base, rundir.BASE_SNAPSHOTS, told["digest"])
    assert (kept / "odd\nname.txt").read_text() == "x"
    assert os.readlink(kept / "loop") == "."
    writable = [p for p in kept.rglob("*") if not p.is_symlink() and p.lstat().st_mode & 0o200]
    assert writable == []
