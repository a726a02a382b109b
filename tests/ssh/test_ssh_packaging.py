"""Code for a cluster that shares no files with the client: sent once, installed and run there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, rundir, task
from slurm.api.ssh import SshBackend
from slurm.packaging import progress

sys.path.insert(0, str(Path(__file__).parents[1]))

from projects import make_project

CODE = """
    import sys
    from slurm import task
    from . import inner

    @task(time="5min")
    def where(x=0):
        return [x, sys.prefix, inner.NAME]

    @task(time="5min")
    def told(thing):
        return thing.name
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    made: list[str] = []

    def make(name: str) -> Any:
        root = make_project(tmp_path / "client" / name, name, CODE)
        (root / name / "inner.py").write_text(
            "NAME = 'inner'\n\nclass Thing:\n    name = 'thing'\n"
        )
        monkeypatch.syspath_prepend(str(root))
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        for loaded in (name, f"{name}.inner"):
            sys.modules.pop(loaded, None)


@pytest.fixture
def verbs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the agent, in order; the watcher's own questions left out."""
    asked: list[str] = []
    call = SshBackend.call

    def counted(self: SshBackend, verb: str, *args: Any) -> Any:
        asked.append(verb)
        return call(self, verb, *args)

    monkeypatch.setattr(SshBackend, "call", counted)
    return asked


def test_a_project_is_sent_once_and_the_second_submit_is_one_round_trip(
    cluster: Cluster, project: Callable[..., Any], verbs: list[str]
) -> None:
    shapes = project("farshapes")
    stages: list[str] = []
    with progress.listening(lambda e: stages.append(f"{e.stage} {e.state}")):
        first = shapes.where(1)
        assert [s for s in stages if s.endswith("end")] == ["build end", "upload end"]
        first_result = first.result(170)
        del stages[:], verbs[:]
        second = shapes.where(2)
        asked = [verb for verb in verbs if verb in ("submit", "find_modules", "python_version")]
        asked += [verb for verb in verbs if verb.startswith(("file_", "store_", "put_", "env"))]
    assert asked == ["submit"]
    assert stages == []
    assert first_result[0] == 1
    assert first_result[1].startswith(f"{cluster.base}/{rundir.BASE_ENVIRONMENTS}/")
    assert second.result(100)[1:] == first_result[1:]
    # Classes of the project go by name, for the node has them.
    assert shapes.told(shapes.inner.Thing()).result(100) == "thing"
    told = str(cluster.explain(shapes.where)(1))
    assert "by reference" in told
    assert "wheel: auto: " in told


def test_a_snapshot_is_sent_and_imported_there(
    cluster: Cluster, project: Callable[..., Any], verbs: list[str]
) -> None:
    shapes = project("farsource")
    found = cluster.submit(shapes.where, packaging="source")(1).result(100)
    assert (found[0], found[2]) == (1, "inner")
    del verbs[:]
    job = cluster.submit(shapes.where, packaging="source")(2)
    assert [v for v in verbs if v.startswith(("file_", "store_", "sub"))] == ["submit"]
    assert job.result(100)[0] == 2
    (snapshot,) = Path(cluster.base, rundir.BASE_SNAPSHOTS).iterdir()
    assert (snapshot / "farsource" / "inner.py").exists()


def test_a_python_that_the_login_node_does_not_have_is_provided(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = cluster.backend.hello()
    monkeypatch.setitem(facts, "python", {"same": None, "any": None, "tried": ["/usr/bin/python3"]})
    run = cluster.submit(task(lambda: sys.prefix))
    assert "provided by uv: 127.0.0.1 has /usr/bin/python3" in str(run.plan())
    assert run().result(170).startswith(f"{cluster.base}/{rundir.BASE_ENVIRONMENTS}/")


@pytest.mark.full
def test_an_environment_is_made_on_the_login_node(
    cluster: Cluster, project: Callable[..., Any]
) -> None:
    shapes = project("farlogin")
    job = cluster.submit(shapes.where, packaging={"type": "wheel", "build_on": "login"})(1)
    assert job.result(100)[0] == 1
    assert "making" not in "".join(job.log_lines(50, stderr=True))
