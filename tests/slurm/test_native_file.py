"""A cluster of plain processes from a cluster.toml: what it is, how it is used, how it changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm import Cluster
from slurm.cli import main
from slurm.errors import OptionError, StackError
from slurm.stack import native_life
from slurm.stack.read import parse_topology

pytestmark = pytest.mark.timeout(600)

TEXT = """\
name = "plain"
engine = "native"
[[nodes]]
names = "a[1-2]"
cpus = 4
memory = "1G"
features = ["fast"]
[[partitions]]
name = "short"
max_time = "10m"
[[qos]]
name = "quick"
max_submit = 5
[[accounts]]
name = "lab"
users = ["root"]
qos = ["normal", "quick"]
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for a cluster: the path of a unix socket in it holds 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-test-", dir="/tmp"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    # Only the name leads there.
    monkeypatch.delenv("SLURM_CONF")
    yield folder / "c"
    if (folder / "c" / "cluster.json").exists():
        native_life.destroy(folder / "c")
    shutil.rmtree(folder)


def cli(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_a_file_makes_a_cluster_that_is_used_by_name_and_changed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    file = folder / "cluster.toml"
    file.write_text(TEXT)
    assert cli("cluster", "up", "--dir", str(folder)) == 0
    assert 'Cluster.from_stack("plain")' in capfd.readouterr().out

    with Cluster.from_stack("plain", job_base_dir=folder.parent / "jobs", mem="50M") as cluster:
        asked = cluster.submit(os.getenv, constraint="fast", qos="quick", account="lab")
        assert asked("SLURM_JOB_PARTITION").result(timeout=120) == "short"
        held = cluster.submit(os.getpid, hold=True)()
        assert [node["name"] for node in cluster.backend.nodes()] == ["a1", "a2"]

        file.write_text(TEXT.replace("a[1-2]", "a[1-3]").replace("10m", "20m"))
        assert cli("cluster", "apply", "plain") == 0
        assert "new: a3" in capfd.readouterr().out
        assert [node["name"] for node in cluster.backend.nodes()] == ["a1", "a2", "a3"]
        assert cluster.backend.partitions()[0]["time_limit"] == "20:00"
        assert [row.job_id for row in cluster.backend.queue()] == [held.id]
        held.cancel()

    assert cli("cluster", "exec", "plain", "sinfo", "--noheader", "--format=%P") == 0
    assert cli("cluster", "logs", "plain", "slurmctld") == 0
    said = capfd.readouterr().out
    assert said.startswith("short*\n") and "slurmctld: " in said
    assert cli("cluster", "destroy", "plain", "--yes") == 0
    assert sorted(p.name for p in folder.iterdir()) == [".lock", "cluster.toml"]


@pytest.mark.full
def test_a_file_that_slurm_refuses_leaves_the_cluster_as_it_was(folder: Path) -> None:
    native_life.up(folder, parse_topology(TEXT), TEXT)
    native_life.up(folder, parse_topology(TEXT), TEXT)  # all is well: nothing happens
    more = TEXT.replace("a[1-2]", "a[1-3]")
    with pytest.raises(StackError, match="is up, and its file asks for something else"):
        native_life.up(folder, parse_topology(more), more)
    bad = TEXT + '[conf]\nslurm = ["SelectTypeParameters=CR_Nonsense"]\n'
    with pytest.raises(StackError, match="slurmctld"):
        native_life.apply(folder, bad)
    with Cluster.from_stack("plain") as cluster:
        assert [node["state"] for node in cluster.backend.nodes()] == ["IDLE", "IDLE"]
    assert (folder / "cluster.toml").read_text() == TEXT


@pytest.mark.full
def test_a_node_with_jobs_is_not_removed(folder: Path) -> None:
    running = native_life.up(folder, parse_topology(TEXT), TEXT)
    argv = ["sbatch", "--parsable", "--nodelist=a2", "--output=/dev/null", "--wrap=sleep 600"]
    env = {**os.environ, **running.env}
    subprocess.run(argv, env=env, check=True, timeout=60, cwd="/")
    fewer = TEXT.replace("a[1-2]", "a1")
    look = ["squeue", "-h", "-t", "RUNNING", "-w", "a2"]
    end = time.monotonic() + 120
    while not subprocess.run(look, env=env, capture_output=True, text=True).stdout:
        assert time.monotonic() < end
        time.sleep(0.2)
    with pytest.raises(StackError, match="jobs run on a2"):
        native_life.apply(folder, fewer)


def test_a_wrong_use_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(OptionError, match=r"slurm_conf=.* does not go with"):
        Cluster("embedded", slurm_conf="/etc/slurm/slurm.conf")
    other = TEXT.replace('"native"', '"native"\nversion = "26.05"')
    with pytest.raises(StackError, match="is installed here"):
        native_life.up(folder, parse_topology(other), other)
