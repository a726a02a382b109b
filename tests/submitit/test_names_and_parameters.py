"""The parts that need no job: names, parameters, watching, old folders, plug-ins, the stand-in."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slurm.submitit as submitit
from slurm.errors import UsageError
from slurm.submitit import helpers
from slurm.submitit.core import plugins, signals, utils
from slurm.submitit.core.core import InfoWatcher, PicklingExecutor
from slurm.submitit.shim import MODULES, remove_shim, write_shim
from slurm.submitit.slurm import slurm as on_slurm
from slurm.submitit.slurm.watching import SlurmInfoWatcher

PUBLIC = {
    "core.core": "InfoWatcher Job DelayedJob AsyncJobProxy EquivalenceDict Executor "
    "PicklingExecutor R",
    "core.utils": "JobPaths DelayedSubmission CommandFunction UncompletedJobError FailedJobError "
    "FailedSubmissionError environment_variables temporary_save_path archive_dev_folders "
    "copy_par_file pickle_load cloudpickle_dump copy_process_streams",
    "core.job_environment": "JobEnvironment SignalHandler",
    "core.submission": "process_job submitit_main",
    "core.plugins": "get_executors get_job_environments get_job_environment",
    "core.logger": "get_logger exception warning CONFIG",
    "auto.auto": "AutoExecutor flexible_init",
    "local.local": "LocalExecutor LocalJob LocalJobEnvironment LOCAL_REQUEUE_RETURN_CODE",
    "local.debug": "DebugExecutor DebugJob DebugJobEnvironment DebugInfoWatcher",
    "slurm.slurm": "SlurmExecutor SlurmJob SlurmInfoWatcher SlurmJobEnvironment "
    "SlurmParseException read_job_id _make_sbatch_string _get_default_parameters",
    "helpers": "Checkpointable FunctionSequence DelayedSubmission CommandFunction as_completed "
    "monitor_jobs RsyncSnapshot clean_env environment_variables TorchDistributedEnvironment",
}


@pytest.fixture
def with_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH on which srun is found; nothing of it is started."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


# ---- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_of_submitit_is_where_it_was(module: str) -> None:
    found = importlib.import_module(f"slurm.submitit.{module}")
    assert [name for name in PUBLIC[module].split() if not hasattr(found, name)] == []


def test_the_stand_in_leads_every_module_path_to_ours_and_goes_away(tmp_path: Path) -> None:
    package = write_shim(tmp_path)
    write_shim(tmp_path)  # over itself
    code = """
import sys, importlib, importlib.metadata
import submitit
for name in sys.argv[1:]:
    module = importlib.import_module("submitit." + name)
    assert module is importlib.import_module("slurm.submitit." + name), name
assert submitit.AutoExecutor is submitit.auto.auto.AutoExecutor
assert importlib.metadata.version("submitit") == submitit.__version__
assert tuple(int(part) for part in submitit.__version__.split(".")) >= (1, 5, 3)
print(submitit.__version__, submitit.__file__)
"""
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.pathsep.join(sys.path)}"}
    done = subprocess.run(
        [sys.executable, "-c", code, *MODULES], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.5.4", str(package / "__init__.py")]
    assert remove_shim(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_real_submitit_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "submitit").mkdir()
    (tmp_path / "submitit" / "__init__.py").write_text("__version__ = '1.5.4'\n")
    with pytest.raises(UsageError, match="left alone"):
        write_shim(tmp_path)
    assert not remove_shim(tmp_path)


def test_the_import_loads_little() -> None:
    code = "import sys; import slurm.submitit as s; s.AutoExecutor; s.SlurmJob; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    loaded = set(done.stdout.split())
    assert not {"asyncio", "importlib.metadata", "logging.config", "ssl", "cloudpickle"} & loaded


# ---- parameters ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("with_srun")
def test_all_wrong_names_are_told_at_once_with_the_right_ones(tmp_path: Path) -> None:
    executor = submitit.AutoExecutor(tmp_path)
    assert executor.cluster == "slurm"
    with pytest.raises(NameError) as caught:
        executor.update_parameters(timeout_mins=3, slurm_partitions="x", local_setup=["true"])
    text = str(caught.value)
    assert "did you mean timeout_min?" in text
    assert "did you mean slurm_partition?" in text
    assert "local_setup" not in text
    with pytest.raises(ValueError, match="array_parallelism"):
        submitit.SlurmExecutor(tmp_path).update_parameters(blue=1)
    with pytest.raises(ValueError, match="ssh://HOST"):
        submitit.AutoExecutor(tmp_path, cluster="pbs")


@pytest.mark.usefixtures("with_srun")
def test_an_executors_own_parameter_wins_over_the_shared_one(tmp_path: Path) -> None:
    executor = submitit.AutoExecutor(tmp_path, slurm_max_num_timeout=7, local_python="ignored")
    executor.update_parameters(
        timeout_min=60, slurm_timeout_min=120, tasks_per_node=2, slurm_ntasks_per_node=3, mem_gb=3.5
    )
    expected = {"time": 120, "ntasks_per_node": 3, "mem": "3584MB"}
    assert executor._executor.parameters == expected
    assert executor._executor.max_num_timeout == 7  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="slurm_partition"):
        executor.update_parameters(partition="gpu")


@pytest.mark.usefixtures("with_srun")
def test_any_flag_of_sbatch_can_be_given_and_wins(tmp_path: Path) -> None:
    executor = submitit.SlurmExecutor(tmp_path)
    executor.update_parameters(
        mem="2GB", additional_parameters={"mem-per-gpu": "4G", "core_spec": 2, "no_requeue": True}
    )
    options = executor._options(1, listens=False)
    assert options["mem_per_gpu"] == "4G"
    assert "mem" not in options
    assert options["sbatch"] == {"core-spec": 2}
    assert options["requeue"] is False


# ---- watching what the core does not know -------------------------------------------------------


class Recorded(SlurmInfoWatcher):
    """Answers what a test says, at a time that the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, states: Callable[[], str]) -> None:
        self.now = 1e9
        self.asked: list[list[str]] = []
        self.states = states
        monkeypatch.setattr(time, "time", lambda: self.now)
        super().__init__(delay_s=600)

    def _ask(self, command: list[str]) -> str:
        self.asked.append(command)
        return "JobID|State\n" + self.states()


def test_a_finished_array_is_asked_about_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Recorded(monkeypatch, lambda: "12_0|COMPLETED\n12_1|FAILED\n12_0.batch|RUNNING\n")
    for job in ("12_0", "12_1", "12"):
        watcher.register_job(job)
    assert watcher.is_done("12_0")
    assert watcher.is_done("12")
    watcher.now += 1e6
    assert watcher.get_state("12_1") == "FAILED"
    assert len(watcher.asked) == 1


def test_a_submission_every_five_seconds_costs_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Recorded(monkeypatch, lambda: "1|RUNNING\n")
    for number in range(720):
        watcher.get_state(str(number + 1))
        watcher.now += 5
    assert watcher.num_calls == len(watcher.asked) <= 40


def test_an_end_that_slurm_may_take_back_is_no_end_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = ["NODE_FAIL"]
    watcher = Recorded(monkeypatch, lambda: f"5|{state[0]}\n")
    assert not watcher.is_done("5", mode="force")
    state[0] = "RUNNING"
    watcher.now += 60
    assert not watcher.is_done("5", mode="force")
    for word in ("SUSPENDED", "CONFIGURING", "REQUEUE_HOLD", "RESIZING", "COMPLETING"):
        state[0] = word
        watcher.now += 60
        assert not watcher.is_done("5", mode="force"), word
    state[0] = "PREEMPTED"
    watcher.now += 60
    assert not watcher.is_done("5", mode="force")
    watcher.now += 60
    assert watcher.is_done("5", mode="force")


def test_where_accounting_is_disabled_the_controller_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {
        "sacct": 'echo "Slurm accounting storage is disabled" >&2; exit 1',
        "squeue": "echo '77|RUNNING|n1'; echo '78_[0-2%1]|PENDING|'",
    }
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    watcher = SlurmInfoWatcher()
    assert watcher.get_state("77") == "RUNNING"
    assert watcher.get_state("78_2", mode="force") == "PENDING"
    assert watcher.get_info("77", mode="cache")["NodeList"] == "n1"


# ---- time-outs and preemptions ------------------------------------------------------------------


class Here(on_slurm.SlurmJobEnvironment):
    """A job with so many seconds left."""

    left: float | None = None

    def time_left(self) -> float | None:
        return self.left


def test_a_preemption_of_a_short_job_is_not_taken_for_a_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBMITIT_SIGNAL_DELAY_S", "90")
    call = utils.DelayedSubmission(print)
    call.set_timeout(5, 3)
    env = Here()
    handler = signals.SignalHandler(env, utils.JobPaths(tmp_path, "1"), call)
    for env.left, timed_out in ((240.0, False), (100.0, True), (149.0, True), (160.0, False)):
        assert handler.has_timed_out() is timed_out, env.left
    env.left = None  # nobody can tell: what was asked for decides
    now = time.time()
    for minutes, timed_out in ((1, False), (4.5, True)):
        monkeypatch.setattr(time, "time", lambda at=now + 60 * minutes: at)
        assert handler.has_timed_out() is timed_out, minutes


# ---- files --------------------------------------------------------------------------------------


def test_a_folder_that_submitit_wrote_can_be_read(tmp_path: Path) -> None:
    # As submitit pickles it, without submitit: a call of its own class, by its module's name.
    body = pickle.dumps({"function": len, "args": ("abc",), "kwargs": {}, "_done": False}, 4)
    head = b"\x80\x04csubmitit.core.utils\nDelayedSubmission\n)\x81"
    (tmp_path / "123_submitted.pkl").write_bytes(head + body[2:-1] + b"b.")
    (tmp_path / "123_0_result.pkl").write_bytes(pickle.dumps(("success", 3)))
    (tmp_path / "123_0_log.out").write_bytes("caf\xe9\n".encode("latin-1"))
    job: submitit.SlurmJob[int] = submitit.SlurmJob(tmp_path, "123")
    assert job.done()
    assert job.result() == 3
    assert job.submission().args == ("abc",)
    assert job.submission().result() == 3
    assert job.stdout() == "caf\ufffd\n"


def test_a_write_that_was_killed_leaves_the_old_file_and_blocks_no_new_one(tmp_path: Path) -> None:
    path = tmp_path / "value.pkl"
    utils.cloudpickle_dump(1, path)
    (tmp_path / "value.pkl.save_tmp").write_bytes(b"half")
    with pytest.raises(TypeError):
        utils.cloudpickle_dump((i for i in range(0)), path)
    assert utils.pickle_load(path) == 1
    utils.cloudpickle_dump(2, path)
    assert utils.pickle_load(path) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["value.pkl"]


# ---- executors of others ------------------------------------------------------------------------


class EchoWatcher(InfoWatcher):
    def _make_command(self) -> list[str]:
        return ["echo", *sorted(self._registered - self._finished)]

    def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
        words = bytes(string).decode().split()  # type: ignore[arg-type]
        return {job: {"State": "DONE"} for job in words}


class EchoJob(submitit.Job[Any]):
    watcher = EchoWatcher()
    _results_timeout_s = 0.1


class EchoExecutor(PicklingExecutor):
    """A cluster whose submission command prints an id; the worker is started by the test."""

    job_class = EchoJob
    refuses = False

    @property
    def _submitit_command_str(self) -> str:
        return "echo worker"

    def _num_tasks(self) -> int:
        return 1

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return f"#!/bin/sh\n{command}\n"

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["false"] if self.refuses else ["echo", "submitted", "job", "42"]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        return str(string).split()[-1]


def test_the_hooks_of_plug_ins_submit_run_and_end_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm.submitit.core.submission import process_job

    executor = EchoExecutor(tmp_path)
    job = executor.submit(max, 3, 4)
    assert job.job_id == "42"
    assert "echo worker" in job.paths.submission_file.read_text()
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    process_job(tmp_path)
    assert job.result() == 4
    lost: EchoJob = EchoJob(tmp_path, "43")
    assert "left no result" in str(lost.exception())
    before = sorted(tmp_path.iterdir())
    executor.refuses = True
    with pytest.raises(utils.FailedJobError):
        executor.submit(max, 1, 2)
    assert sorted(tmp_path.iterdir()) == before


def test_faulty_plug_ins_are_logged_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "plug.py").write_text(
        "from slurm.submitit import Executor\nclass FineExecutor(Executor): pass\n"
    )
    info = tmp_path / "plug-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[submitit]\nexecutor = plug:FineExecutor\njob_environment = plug:Missing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    caches = (plugins._get_plugins, plugins.get_executors)
    for cache in caches:
        cache.cache_clear()
    try:
        assert "fine" in plugins.get_executors()
        assert "Missing" in caplog.text
    finally:
        for cache in caches:
            cache.cache_clear()


# ---- debugging and helpers ----------------------------------------------------------------------


def test_a_call_runs_in_this_process_when_its_result_is_asked_for(tmp_path: Path) -> None:
    executor = submitit.AutoExecutor(tmp_path, cluster="debug")
    made: list[str] = []
    job = executor.submit(lambda: made.append(submitit.JobEnvironment().job_id))
    assert (job.state, made) == ("QUEUED", [])
    job.result()
    assert (job.state, made) == ("DONE", [job.job_id])
    failing = executor.submit(int, "x")
    assert isinstance(failing.exception(), ValueError)


def test_a_job_hides_itself_but_not_its_cluster_from_what_it_submits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = {"SLURM_CONF": "/etc/slurm.conf"}
    for name, value in {"SLURM_JOB_ID": "1", "SUBMITIT_FOLDER": "f", "RANK": "0", **kept}.items():
        monkeypatch.setenv(name, value)
    with helpers.clean_env():
        names = ("SLURM_JOB_ID", "SUBMITIT_FOLDER", "RANK", "SLURM_CONF")
        assert [name for name in names if name in os.environ] == ["SLURM_CONF"]
    assert os.environ["SLURM_JOB_ID"] == "1"


def test_tasks_agree_where_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                 "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"):  # fmt: skip
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    first, second = (helpers.TorchDistributedEnvironment().export() for _ in range(2))
    assert first.master_port == second.master_port
    told = [os.environ[n] for n in ("MASTER_ADDR", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    assert told == ["n1", "3", "4", "2"]


@pytest.mark.skipif(not helpers.RsyncSnapshot.available(), reason="needs rsync and git")
def test_a_block_runs_in_a_copy_of_the_tracked_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    for name in ("kept.py", "left_out.py", "untracked.py"):
        (repository / name).write_text("")
    for words in (["init", "--quiet"], ["add", "kept.py", "left_out.py"]):
        subprocess.run(["git", *words], cwd=repository, check=True, timeout=60)
    (repository / "kept.py").write_text("edited after it was added")
    monkeypatch.chdir(repository)
    with helpers.RsyncSnapshot(tmp_path / "copy", exclude=["left_*"]):
        assert Path.cwd() == tmp_path / "copy"
        assert {path.name for path in Path().iterdir()} == {"kept.py"}
        assert Path("kept.py").read_text() == "edited after it was added"
    assert Path.cwd() == repository


def test_jobs_come_in_the_order_of_their_ends_and_a_time_limit_is_kept(tmp_path: Path) -> None:
    jobs = [EchoJob(tmp_path, "61"), EchoJob(tmp_path, "62")]
    EchoJob.watcher.clear()
    assert set(helpers.as_completed(jobs)) == set(jobs)

    class Never(EchoJob):
        def done(self, force_check: bool = False) -> bool:
            return False

    with pytest.raises(TimeoutError, match="1 of 1 jobs"):
        list(helpers.as_completed([Never(tmp_path, "63")], timeout=0.1))
