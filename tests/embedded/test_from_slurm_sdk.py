"""What programs written for slurm-sdk 0.4 use, and what they find here."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import slurm
from slurm import BaseCallback, Cluster, JobContext, task, workflow
from slurm.callbacks import flush
from slurm.callbacks.base import OLD_HOOKS
from slurm.callbacks.older import FIELDS


@task
def double(x: int) -> int:
    print("doubling", x)
    return 2 * x


@task
def fail() -> None:
    raise ValueError("no")


@task
def places(ctx: JobContext) -> tuple[int, int, int, str]:
    return ctx.num_nodes, ctx.local_world_size, ctx.gpus_per_node, ctx.environment["SLURM_JOB_ID"]


@workflow
def nested() -> int:
    return double(4).result()


class Reader(BaseCallback):
    """Writes every field that its contexts had in slurm-sdk 0.4 to a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, ctx: Any) -> None:
        kind = type(ctx).__name__
        values = {name: str(getattr(ctx, name)) for name in FIELDS.get(kind, {})}
        with Path(self.path).open("a") as file:
            file.write(json.dumps([kind, values]) + "\n")


for _hook in OLD_HOOKS:
    setattr(Reader, _hook, Reader.read)
for _new in OLD_HOOKS.values():
    setattr(Reader, _new, Reader.read)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster("embedded", job_base_dir=tmp_path / "runs")


def test_every_old_field_of_a_context_is_there(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    callbacks = [Reader(str(seen))]
    with Cluster("embedded", job_base_dir=tmp_path / "runs", callbacks=callbacks):
        assert nested().result(60) == 8
        failed = fail()
        assert failed.exception(60) is not None
    assert flush()
    told: dict[str, dict[str, str]] = {}
    for line in seen.read_text().splitlines():
        kind, values = json.loads(line)
        told.setdefault(kind, {}).update(values)
    assert set(told) >= set(FIELDS)
    over = told["CompletedContext"]
    assert (over["job_dir"], over["error_type"]) == (failed.path, "ValueError")
    assert Path(over["stderr_path"]).is_file()
    assert told["ChildSubmittedContext"]["child_task_name"] == "double"
    assert told["RunEndContext"]["function"] in ("fail", "double", "nested")


def test_a_field_that_never_was_is_an_attribute_error(cluster: Cluster) -> None:
    missed = []

    class Curious(BaseCallback):
        def on_completed(self, ctx: Any) -> None:
            missed.append(hasattr(ctx, "colour"))

    with Cluster.from_backend(cluster.backend, callbacks=[Curious()]):
        double(1).result(60)
    assert flush()
    assert missed == [False]


def test_tail_prints_and_log_lines_gives_the_lines(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster:
        job = double(3)
    assert job.wait(60, poll_interval=1.0)
    job.tail(5)
    assert capsys.readouterr().out == "doubling 3\n"
    kept = io.StringIO()
    job.tail(follow=True, output=kept)
    assert kept.getvalue() == "doubling 3\n"
    assert list(job.log_lines(1)) == ["doubling 3"]


def test_the_status_has_slurms_form_of_the_exit_code(cluster: Cluster) -> None:
    with cluster:
        good, bad = double(1), fail()
    assert good.wait(60)
    assert not bad.wait(60)
    assert (good.get_status()["ExitCode"], bad.get_status()["ExitCode"]) == ("0:0", "1:0")


def test_no_cluster_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="SLURM-E102"):
        double(1)


def test_after_nothing_there_is_nothing_to_wait_for(cluster: Cluster) -> None:
    before: list[slurm.Job[int]] = []
    with cluster:
        job = double.after(*before)(2)
        assert job.result(60) == 4
        assert double.with_dependencies(before).map([1, 2]).results(60) == [2, 4]
        with pytest.raises(slurm.UsageError, match="singleton takes no jobs"):
            double.after(job, kind="singleton")


def test_a_job_knows_its_place_by_the_old_names(cluster: Cluster) -> None:
    with cluster:
        job = places()
        assert job.result(60) == (1, 1, 0, job.id)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"key_filename": "~/.ssh/id", "hostname": "h"}, "write identity_file="),
        ({"default_packaging": "none"}, "write packaging="),
        ({"default_packaging_registry": "r"}, 'write packaging={"type": ..., "registry": ...}'),
        ({"host_key_policy": "auto"}, "~/.ssh/config"),
        ({"backend_config": {}}, "arguments of Cluster"),
    ],
)
def test_an_old_argument_is_refused_with_its_new_name(given: dict[str, Any], fix: str) -> None:
    with pytest.raises(slurm.OptionError) as told:
        Cluster(**given)
    assert fix in str(told.value)


def test_an_old_profile_is_named_by_position_or_profile() -> None:
    with pytest.raises(slurm.UsageError, match="a profile is the first argument") as told:
        Cluster.from_env(env="prod")
    assert "Cluster.from_env('prod')" in str(told.value)


def test_key_filename_of_an_old_slurmfile_is_the_identity_file(tmp_path: Path) -> None:
    from slurm.config import load_profile

    file = tmp_path / "Slurmfile.toml"
    file.write_text(
        '[default.cluster]\nbackend = "ssh"\n[default.cluster.backend_config]\n'
        'hostname = "h"\nkey_filename = "~/.ssh/id"\n'
    )
    assert load_profile(file)["identity_file"] == "~/.ssh/id"
    file.write_text('[default]\nkey_filename = "~/.ssh/id"\n')
    with pytest.raises(slurm.ConfigError, match="write identity_file="):
        load_profile(file)
