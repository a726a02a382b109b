"""Every option of sbatch makes the same job over slurmrestd, and the job finds the same variables.

Each case is submitted twice, by sbatch on the login node and over REST, and what the controller
then says about the two jobs is compared.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Lab
from rest_site import Site, topology

from slurm.api.agent_error import AgentError
from slurm.stack import life

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

CASES = [line.split(" & ") for line in """\
--comment='a b'
--job-name='a b $c'
--account=root
--partition=side
--partition=main,side
--qos=few
--wckey=key
--constraint=fast
--constraint=fast&big
--constraint=fast|big
--prefer=big
--nodelist=n1
--nodelist=n[1-2]
--exclude=n2
--switches=1@10:00
--contiguous
--spread-job
--use-min-nodes
--time=01:30:00
--time=90
--time=1-00:00:00
--time=UNLIMITED
--time-min=5
--begin=2030-01-31T12:00
--deadline=2030-01-31T12:00
--dependency=singleton
--kill-on-invalid-dep=yes
--kill-on-invalid-dep=no
--nice=50
--nice
--nice=-50
--priority=77
--priority=TOP
--nodes=2
--nodes=1-2
--ntasks=3
--ntasks=2 & --nodes=2
--ntasks-per-node=2
--ntasks-per-node=2 & --nodes=2
--ntasks-per-core=1
--ntasks-per-socket=2
--ntasks-per-gpu=1 & --gpus=2
--cpus-per-task=2
--cpus-per-task=2 & --ntasks=2
--cpus-per-gpu=1 & --gpus=2
--mincpus=2
--sockets-per-node=1
--threads-per-core=1
--thread-spec=1
--core-spec=1
--mem=0
--mem=500M
--mem=1G
--mem-per-cpu=100M
--mem-per-gpu=100M & --gpus=1
--tmp=100M
--gpus=2
--gpus=a100:2
--gpus-per-node=2
--gpus-per-node=a100:2
--gpus-per-socket=1 & --sockets-per-node=1
--gpus-per-task=1 & --ntasks=2
--gpus-per-task=a100:1 & --ntasks=2
--gpus-per-task=2 & --ntasks=2 & --cpus-per-task=2
--gpus-per-task=1 & --ntasks=2 & --gpu-bind=single:1
--gpu-bind=closest & --gpus=1
--gpu-freq=low & --gpus=1
--gres=gpu:2
--gres=gpu:a100:2,tape:1
--gres=tape
--gres-flags=enforce-binding & --gpus=1
--gres-flags=disable-binding & --gpus=1
--tres-per-task=gres/gpu:1 & --ntasks=2
--tres-per-task=cpu:2,gres/gpu:1 & --ntasks=2
--tres-per-task=gres/gpu:1 & --ntasks=2 & --cpus-per-task=2
--tres-bind=gres/gpu:per_task:1 & --gpus=2
--licenses=matlab:2
--licenses=matlab:1,abaqus
--exclusive
--exclusive=user
--exclusive=topo
--exclusive=mcs
--oversubscribe
--overcommit
--overcommit & --ntasks=4
--distribution=block:cyclic
--distribution=plane=2 & --ntasks=4
--distribution=cyclic,NoPack
--hint=nomultithread
--hint=compute_bound
--hint=memory_bound
--hint=multithread
--signal=B:USR1@60
--signal=TERM
--requeue
--no-requeue
--mail-type=ALL
--mail-type=NONE
--mail-type=END,FAIL & --mail-user=me@example.org
--mail-type=TIME_LIMIT,TIME_LIMIT_90,TIME_LIMIT_80,TIME_LIMIT_50,ARRAY_TASKS,INVALID_DEPEND
--error=/tmp/error
--output=/tmp/out-%x
--open-mode=append
--profile=all
--profile=task,energy
--profile=none
--array=0-9%2
--array=1,3,5
--array=0-6:2
--extra=words
--network=ib
--no-kill
--reboot
--stepmgr
--cpu-freq=high
--delay-boot=60
--container=/nowhere
--mcs-label=x
--segment=1
""".splitlines()]  # fmt: skip

#: Options that the API of 24.11 has no field for.
_ONLY_LATER = {"--hint=memory_bound"}
#: What two jobs never have in common, or what only sbatch can know.
_OWN = {
    *("JobId", "ArrayJobId", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval", "SLUID"),
    *("Scheduler", "Command", "SubmitLine", "AllocNode:Sid", "StartTime", "EndTime", "Sluid"),
}


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def site(
    request: pytest.FixtureRequest, make_lab: Callable[..., Lab], place: Path
) -> Iterator[Site]:
    shared = place / f"options-{request.param}"
    shared.mkdir()
    lab = make_lab(topology(request.param, shared))
    yield Site(lab, shared)
    life.destroy(lab.directory, lab.said.append)


def _usual(site: Site, lines: list[str]) -> list[str]:
    usual = {"time": "10", "job-name": "x", "output": f"{site.shared}/out", "mem": "50M"}
    said = {line.removeprefix("--").partition("=")[0] for line in lines}
    said |= {"mem"} if any(line.startswith("--mem") for line in lines) else set()
    return [*lines, *(f"--{name}={value}" for name, value in usual.items() if name not in said)]


def _records(text: str) -> Iterator[dict[str, str]]:
    """The records of `scontrol show job`; no value of these jobs looks like another key."""
    for record in text.strip().split("\n\n"):
        yield dict(re.findall(r"(?:^|\s)([A-Z][\w/:]*)=(.*?)(?=\s+[A-Z][\w/:]*=|\s*\Z)", record))


def test_a_job_over_rest_is_the_job_that_sbatch_makes(site: Site) -> None:
    cases = [c for c in CASES if site.version != "24.11" or not _ONLY_LATER & set(c)]
    common = ["--hold", f"--chdir={site.shared}"]
    scripts = [
        site.script(f"case{number:03}.sh", [*common, *_usual(site, lines)])
        for number, lines in enumerate(cases)
    ]
    told = site.login('for f in case*.sh; do sbatch --parsable "$f" 2>&1 | tail -1; done')
    by_sbatch = told.splitlines()
    rest = site.scheduler()
    by_rest = [_submitted(rest.submit, script, site.shared) for script in scripts]
    jobs = {
        record.get("ArrayJobId") or record["JobId"]: record
        for record in _records(site.login("scontrol show job"))
    }
    rest.cancel([job for job in by_rest if job in jobs])
    site.login("scancel --state=PENDING --user=root")
    differ: dict[str, dict[str, tuple[str | None, str | None]]] = {}
    for lines, one, other in zip(cases, by_sbatch, by_rest, strict=True):
        if one not in jobs or other not in jobs:
            differ[" ".join(lines)] = {"": (one, other)}
            continue
        keys = sorted((set(jobs[one]) | set(jobs[other])) - _OWN)
        pairs = {key: (jobs[one].get(key), jobs[other].get(key)) for key in keys}
        differ[" ".join(lines)] = {k: pair for k, pair in pairs.items() if pair[0] != pair[1]}
    assert {case: what for case, what in differ.items() if what} == {}


def _submitted(submit: Callable[..., str], script: Path, cwd: Path) -> str:
    try:
        return submit(str(script), {"PATH": "/usr/bin:/bin"}, str(cwd))
    except AgentError as error:
        return f"{error}: {error.evidence}"


RUNNING = [line.split(" & ") for line in """\
--ntasks=2 & --cpus-per-task=2
--ntasks-per-node=2 & --nodes=2
--gpus=1 & --cpus-per-gpu=1
--gpus-per-node=1 & --mem-per-gpu=50M
--gpus-per-task=1 & --ntasks=2
--ntasks-per-gpu=1 & --gpus=1
--gpu-freq=low & --gpus=1
--mem-per-cpu=50M & --cpus-per-task=2
--threads-per-core=1
--hint=compute_bound
--export=NONE
--export=PATH,X=1
--export=ALL,X=1
--array=0-0
""".splitlines()]  # fmt: skip

# What depends on where and when a job runs, and on who submitted it.
_ONES_OWN = (
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_SLUID", "SLURM_TASK_PID", "SLURM_JOB_START_TIME"),
    *("SLURM_JOB_END_TIME", "SLURMD_NODENAME", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "HOSTNAME"),
    *("SLURM_TOPOLOGY_ADDR", "SLURM_ARRAY_JOB_ID", "SLURM_SUBMIT_HOST", "SLURM_PRIO_PROCESS"),
    *("SLURM_SACK_KEY", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    *("ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "_", "SHLVL"),
)


def test_a_job_over_rest_finds_the_variables_that_sbatch_gives(site: Site) -> None:
    # With a line break, and with bytes that are no UTF-8.
    env = {"PATH": "/usr/bin:/bin", "HOME": "/root", "TWO": "a\nb", "RAW": os.fsdecode(b"\xe9")}
    given = (
        r"PATH=/usr/bin:/bin HOME=/root TWO=$'a\nb' RAW=$'\xe9' SLURM_CONF=/etc/slurm/slurm.conf"
    )
    body = f'f="{site.shared}/env.$SLURM_JOB_ID"; /usr/bin/env -0 > "$f.new"; /bin/mv "$f.new" "$f"'
    common = [f"--chdir={site.shared}", "--open-mode=append"]
    scripts = [
        site.script(f"run{number:03}.sh", [*common, *_usual(site, lines)], body)
        for number, lines in enumerate(RUNNING)
    ]
    conf = "SLURM_SACK_KEY=$SLURM_SACK_KEY SLURM_CONF=/etc/slurm/slurm.conf"
    sbatch = f"env -i {conf} {given} sbatch --parsable"
    by_sbatch = site.login(f'for f in run*.sh; do {sbatch} "$f"; done').split()
    rest = site.scheduler()
    by_rest = [
        rest.submit(str(s), {**env, "SLURM_CONF": "/etc/slurm/slurm.conf"}, str(site.shared))
        for s in scripts
    ]
    differ: dict[str, dict[str, tuple[str | None, str | None]]] = {}
    for lines, one, other in zip(RUNNING, by_sbatch, by_rest, strict=True):
        a, b = (_told(site, job) for job in (one, other))
        pairs = {k: (a.get(k), b.get(k)) for k in {*a, *b} if k not in _ONES_OWN}
        differ[" ".join(lines)] = {k: pair for k, pair in pairs.items() if pair[0] != pair[1]}
    assert {case: what for case, what in differ.items() if what} == {}


def _told(site: Site, job: str) -> dict[str, str]:
    file = site.shared / f"env.{job}"
    end = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < end, site.login(f"scontrol show job {job}")
        time.sleep(0.2)
    pairs = os.fsdecode(file.read_bytes()).split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
