"""The real sbatch reads every flag that we render; it runs without a cluster as far as `--help`."""

import datetime
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm.model.options import OPTIONS, normalize, option_names, sbatch_flags

SBATCH = shutil.which("sbatch")
pytestmark = [
    pytest.mark.packages,
    pytest.mark.skipif(SBATCH is None, reason="needs the sbatch program (slurm-client)"),
]

# Values at the edges of what we let through.
ACCEPTED: dict[str, list[object]] = {
    "job_name": ["my job", "a'b\"c$(d)"],
    "comment": ["x"],
    "partition": [["a", "b"]],
    "account": ["lab"],
    "qos": ["high"],
    "reservation": ["r"],
    "wckey": ["k"],
    "constraint": ["[a|b]&c*2"],
    "nodelist": ["n[1-3,7],m1"],
    "exclude": [["n1", "n2"]],
    "switches": [1, "1@10min", "2@1-00:00:00"],
    "contiguous": [True],
    "spread_job": [True],
    "time": ["2h", 1, 0.1, "UNLIMITED", "30-00", "90:00", datetime.timedelta(days=400)],
    "time_min": ["5min"],
    "begin": [
        "now", "now+60", "now+1hour", "now+3weeks", "today", "tomorrow", "midnight", "noon",
        "teatime", "fika", "tomorrow 16:00", "16:00", "04:30 PM", "2040-01-20", "2040-01-20T12:34",
        "2040-01-20T12:34:56", "010240", "01/02/40", "01.02.40", "01/02/40-16:00",
        datetime.datetime(2040, 5, 6, 7, 8), datetime.timedelta(hours=3),
    ],
    "deadline": ["2040-01-20T12:34:56", "now+1day"],
    "dependency": ["afterok:1:2,singleton", "after:1+5?afterany:2_*"],
    "hold": [True],
    "nice": [0, 100, -100, 2147483645, -2147483645],
    "priority": [0, "TOP", 4294967293],
    "nodes": [1, "2-4"],
    "ntasks": [4],
    "ntasks_per_node": [4],
    "cpus_per_task": [4],
    "cpus_per_gpu": [4],
    "threads_per_core": [1],
    "mem": [0, "1K", "8GiB", "1P"],
    "mem_per_cpu": ["1.5G"],
    "mem_per_gpu": ["1T"],
    "gpus": [1, "a100:2", "a100:2,v100:1"],
    "gpus_per_node": ["a100:2"],
    "gpus_per_task": [1],
    "gres": ["gpu:a100:2", "gpu:2,shard:3", "none"],
    "tres_per_task": ["gres/gpu:1"],
    "tmp": ["20G"],
    "licenses": ["matlab:2,b"],
    "exclusive": [True, "user", "mcs"],
    "oversubscribe": [True],
    "overcommit": [True],
    "distribution": ["block", "cyclic:block:fcyclic", "plane=4", "*:cyclic", "block,NoPack"],
    "hint": ["compute_bound", "memory_bound", "multithread", "nomultithread"],
    "signal": ["USR1", "SIGUSR1@60", "B:USR1@120", "R:TERM@1", "RB:15@60", 10],
    "requeue": [True, False],
    "mail_type": [
        "NONE", "ALL", "BEGIN,END,FAIL,REQUEUE,INVALID_DEPEND,STAGE_OUT,TIME_LIMIT",
        "TIME_LIMIT_90,TIME_LIMIT_80,TIME_LIMIT_50,ARRAY_TASKS,END",
    ],
    "mail_user": ["me@example.org"],
    "output": ["a b/%j.out"],
    "error": ["x.err"],
    "export": ["ALL", "NONE", ["ALL", "A=b"]],
    "profile": ["all", "none", "task,energy,lustre,network"],
    "sbatch": [{"core-spec": 2, "--use_min_nodes": True, "reboot": False, "mincpus": 4}],
}  # fmt: skip


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The least configuration with which sbatch starts; no controller is ever asked."""
    path = tmp_path_factory.mktemp("sbatch") / "slurm.conf"
    path.write_text(
        "ClusterName=none\nSlurmctldHost=localhost\nSelectType=select/cons_tres\nGresTypes=gpu\n"
        "NodeName=localhost CPUs=1\nPartitionName=p Nodes=ALL\n"
    )
    return path


def parse_with_sbatch(conf: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """sbatch reads its flags from left to right and stops, content, at `--help`."""
    assert SBATCH is not None
    return subprocess.run(
        [SBATCH, *flags, "--help"],
        env={"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def version(conf: Path) -> tuple[int, ...]:
    assert SBATCH is not None
    told = subprocess.run(
        [SBATCH, "--version"], env={"SLURM_CONF": str(conf)}, capture_output=True, text=True,
        timeout=60, check=True,
    ).stdout  # fmt: skip
    found = re.search(r"(\d+)\.(\d+)", told)
    assert found is not None
    return tuple(int(part) for part in found.groups())


def test_every_flag_of_ours_has_a_value_to_try() -> None:
    rendered = {spec.name for spec in OPTIONS if spec.flag}
    assert set(ACCEPTED) == rendered | {"sbatch"}
    assert set(ACCEPTED) <= set(option_names())


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ACCEPTED.items() for value in values]
)
def test_sbatch_reads_what_we_render(
    conf: Path, version: tuple[int, ...], name: str, value: object
) -> None:
    spec = next((spec for spec in OPTIONS if spec.name == name), None)
    if spec is not None and spec.since and version < tuple(map(int, spec.since.split("."))):
        pytest.skip(f"this sbatch is older than {spec.since}")
    flags = sbatch_flags(normalize({name: value}, where="test"))
    assert flags
    line = [f"--{flag}" if text is None else f"--{flag}={text}" for flag, text in flags]
    done = parse_with_sbatch(conf, *line)
    assert done.returncode == 0 and not done.stderr, (line, done.stderr)


@pytest.mark.parametrize("flag", ["--no-such-flag", "--time=soon", "--mem=8X", "--begin=later"])
def test_sbatch_refuses_wrong_flags_in_this_way_of_asking(conf: Path, flag: str) -> None:
    done = parse_with_sbatch(conf, flag)
    assert done.returncode != 0 and done.stderr
