"""The command line as a user drives it, at a terminal and in pipes, on the embedded scheduler."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from terminal import Shown, Terminal, check_snapshot, slurm

SNAPSHOTS = Path(__file__).parent / "snapshots"

TASKS = '''
import time
from slurm import JobContext, task

@task(time="5min", mem="200MiB")
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    print("adding", a, b)
    return a + b

@task(time="5min")
def bad(x: int) -> None:
    print("about to fail")
    raise ValueError(f"no {x}")

@task(time="5min")
def slow(seconds: float, ctx: JobContext) -> float:
    print("begun", flush=True)
    time.sleep(seconds)
    return seconds

@task(time="5min")
def nap(seconds: float) -> None:
    time.sleep(seconds)

@task(time="5min", ntasks=2)
def ranks(ctx: JobContext) -> int:
    print("rank", ctx.rank, "speaks")
    return ctx.rank

def plain(names: list[str], loud: bool = False) -> str:
    return "+".join(names).upper() if loud else "+".join(names)
'''

SCRIPT = """
import sys
from tasks import add
from slurm import Cluster

with Cluster.from_env():
    print("sum", sum(add.map([(1, 2), (3, 4)]).results()), *sys.argv[1:])
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with tasks, a script and a Slurmfile for the embedded scheduler."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tasks.py").write_text(TASKS)
    (folder / "script.py").write_text(SCRIPT)
    base = tmp_path / "jobs"
    (folder / "Slurmfile.toml").write_text(
        f'[default]\nbackend_type = "embedded"\njob_base_dir = "{base}"\n'
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def at_terminal(project: Path, *words: str, columns: int = 100) -> Shown:
    return Terminal(*words, cwd=project, columns=columns).finish()


def as_json(project: Path, *words: str) -> dict[str, object]:
    shown = slurm(*words, "--json", cwd=project)
    found: dict[str, object] = json.loads(shown.text)
    return found


def test_a_user_runs_a_task_looks_at_it_and_asks_why_another_failed(project: Path) -> None:
    ran = at_terminal(project, "run", "tasks.py::add", "3", "--b", "4")
    assert ran.code == 0 and ran.plain.splitlines()[-1] == "7" and "adding 3 4" in ran.plain
    failed = at_terminal(project, "run", "tasks.py::bad", "--x", "5")
    assert failed.code == 1 and "ValueError: no 5" in failed.plain
    assert "Traceback" not in failed.plain

    listed = at_terminal(project, "ls")
    numbers = re.sub(r" +\d+ +\d+s +\d+s", " N", listed.plain)
    check_snapshot(SNAPSHOTS, "ls.txt", re.sub(" +", " ", numbers))
    check_snapshot(SNAPSHOTS, "ls.json", slurm("ls", "--json", cwd=project).text)
    shown = at_terminal(project, "show", "add", columns=300)
    check_snapshot(SNAPSHOTS, "show.txt", shown.plain)
    check_snapshot(SNAPSHOTS, "show.json", slurm("show", "add", "--json", cwd=project).text)
    why = at_terminal(project, "why", "last", columns=300)
    assert why.code == 1
    check_snapshot(SNAPSHOTS, "why.txt", re.sub(r"(slurm \w+ )\d+", r"\1ID", why.plain))
    assert slurm("result", "add", cwd=project) == Shown("7\n", 0)
    assert as_json(project, "result", "add")["value"] == 7


@pytest.mark.full
def test_colours_are_for_terminals_only(project: Path) -> None:
    slurm("run", "tasks.py::add", "1", cwd=project)
    assert "\x1b[32mCOMPLETED" in at_terminal(project, "ls").text
    assert "\x1b" not in slurm("ls", cwd=project).text
    plain = Terminal("ls", cwd=project, env={"NO_COLOR": "1"}).finish()
    assert "\x1b" not in plain.text


def test_forty_columns_without_utf_8_hold_every_line(project: Path) -> None:
    slurm("run", "tasks.py::add", "1", cwd=project)
    ascii_only = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    for words in (["ls"], ["nodes"], ["show", "last"]):
        shown = Terminal(*words, cwd=project, columns=40, env=ascii_only).finish()
        assert shown.code == 0 and shown.text.isascii(), words
        # Names and paths are never broken: they are for copying.
        long = [line for line in shown.plain.splitlines() if len(line) > 40 and "/" not in line]
        assert long == [], words


@pytest.mark.full
def test_interrupting_run_leaves_the_job_alone_and_attach_finds_it_again(project: Path) -> None:
    terminal = Terminal("run", "tasks.py::slow", "--seconds", "3", cwd=project)
    terminal.wait_for("begun")
    terminal.interrupt()
    left = terminal.finish()
    assert left.code == 130 and "the job goes on: slurm attach slow-" in left.plain
    attached = at_terminal(project, "attach", "last")
    assert attached.code == 0 and "COMPLETED" in attached.plain


@pytest.mark.full
def test_a_detached_run_is_waited_for_and_cancelled_by_name(project: Path) -> None:
    slurm("run", "tasks.py::nap", "600", "--detach", cwd=project)
    assert slurm("wait", "last", "--timeout", "1s", cwd=project).code == 1
    assert "1 job cancelled" in slurm("cancel", "nap", cwd=project).text
    waited = slurm("wait", "last", "--json", cwd=project)
    assert waited.code == 1 and json.loads(waited.text)["state"] == "CANCELLED"
    assert "nothing to cancel" in slurm("cancel", "nap", cwd=project).text


def test_a_rerun_takes_the_same_arguments_and_other_options(project: Path) -> None:
    slurm("run", "tasks.py::bad", "5", cwd=project)
    again = as_json(project, "rerun", "last", "--failed", "--mem", "300M", "--set", "nice=3")
    assert again["options"] == {"mem": "300M", "nice": 3} and again["jobs"] == 1
    shown = slurm("wait", "last", cwd=project)
    assert shown.code == 1
    found = as_json(project, "show", "last")
    assert found["options"]["mem"] == "300M" and "no 5" in found["failed"][0]["error"]  # type: ignore[index]


@pytest.mark.full
def test_a_script_brings_its_own_cluster_and_arguments(project: Path) -> None:
    shown = slurm("run", "script.py", "--", "--flag", cwd=project)
    assert shown == Shown("sum 10 --flag\n", 0)
    planned = slurm("run", "script.py", "--dry-run", cwd=project)
    assert planned.code == 0 and "one array of 2" in planned.text


@pytest.mark.full
def test_a_dry_run_shows_the_script_and_submits_nothing(project: Path) -> None:
    shown = slurm("run", "tasks.py::add", "1", "--dry-run", "--mem", "1G", cwd=project)
    assert shown.code == 0 and "#SBATCH --mem=1024M" in shown.text
    assert "no runs" in slurm("ls", cwd=project).text


@pytest.mark.full
def test_arguments_follow_the_functions_types(project: Path) -> None:
    words = ("run", "tasks.py::plain", "--names", "x", "--names", "y", "--loud", "--json")
    shown = slurm(*words, cwd=project)
    assert json.loads(shown.text)["value"] == "X+Y"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["run", "tasks.py::add", "three"], 2, "unable to convert"),
        (["run", "tasks.py::add"], 2, "it takes a: int, b: int = 2"),
        (["run", "tasks.py::add", "1", "--c", "3"], 2, "it takes a: int"),
        (["run", "tasks.py::sloww", "1"], 2, "did you mean tasks.py::slow?"),
        (["run", "nowhere.py::add"], 2, "is no file"),
        (["run", "tasks.py::add", "1", "--set", "mme=1G"], 2, "mem"),
        (["show", "nothing"], 2, "there are no runs"),
        (["wait"], 2, "no run was named"),
        (["ls", "--cluster", "labb"], 2, "has no profile 'labb'"),
        (["gc"], 0, "nothing is old enough"),
    ],
)
def test_bad_input_is_told_with_the_fix(
    project: Path, words: list[str], code: int, text: str
) -> None:
    shown = slurm(*words, cwd=project)
    assert shown.code == code and text in shown.text
    assert "Traceback" not in shown.text


@pytest.mark.full
def test_slurm_that_is_only_half_there_is_refused_with_the_fix(
    project: Path, tmp_path: Path
) -> None:
    env = {"SLURM_CONF": str(tmp_path / "slurm.conf"), "PATH": str(tmp_path)}
    shown = slurm("queue", "--cluster", "local", cwd=project, env=env)
    assert shown.code == 2 and "sbatch is not on PATH" in shown.text


def test_the_log_of_one_rank_is_told_apart(project: Path) -> None:
    assert slurm("run", "tasks.py::ranks", "--json", cwd=project).code == 0
    assert slurm("logs", "last", "--rank", "1", cwd=project).text == "rank 1 speaks\n"
    both = slurm("logs", "last", cwd=project).text.splitlines()
    assert sorted(both) == ["0: rank 0 speaks", "1: rank 1 speaks"]
    assert "no log of rank" in _of_add(project)


def _of_add(project: Path) -> str:
    slurm("run", "tasks.py::add", "1", cwd=project)
    return slurm("logs", "last", "--rank", "0", cwd=project).text


@pytest.mark.full
def test_old_runs_go_when_a_person_says_yes(project: Path) -> None:
    for number in range(3):
        slurm("run", "tasks.py::add", str(number), cwd=project)
    dry = as_json(project, "gc", "--older-than", "0", "--dry-run")
    assert dry["dry_run"] and len(dry["things"]) == 2  # type: ignore[arg-type]
    assert slurm("gc", "--older-than", "0", cwd=project).code == 2
    terminal = Terminal("gc", "--older-than", "0", cwd=project)
    terminal.wait_for("remove 2 runs")
    terminal.type("y")
    assert "2 removed" in terminal.finish().plain
    assert as_json(project, "ls")["total"] == 1
    assert slurm("result", "last", cwd=project).text == "4\n"


def test_init_asks_three_questions_and_writes_a_slurmfile(project: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    terminal = Terminal("init", cwd=fresh)
    terminal.wait_for("login node")
    terminal.type("embedded")
    terminal.wait_for("directory of all runs")
    terminal.type(str(tmp_path / "runs"))
    terminal.wait_for("partition (")
    terminal.type("")
    shown = terminal.finish()
    assert shown.code == 0 and "slurm doctor" in shown.plain
    text = (fresh / "Slurmfile.toml").read_text()
    assert f'job_base_dir = "{tmp_path / "runs"}"' in text and 'time = "1h"' in text
    assert slurm("init", cwd=fresh).code == 2
    assert "no runs" in slurm("ls", cwd=fresh).text


@pytest.mark.full
def test_the_doctor_finds_everything_in_order(project: Path) -> None:
    found = as_json(project, "doctor")
    results = {check["name"]: check["result"] for check in found["checks"]}  # type: ignore[attr-defined]
    assert results["job"] == results["connection"] == results["directory"] == "ok"
    assert "bad" not in results.values()


@pytest.mark.full
def test_a_waiting_job_of_the_embedded_scheduler_is_explained(project: Path) -> None:
    slurm("run", "tasks.py::slow", "60", "--detach", "--set", "cpus_per_task=8", cwd=project)
    slurm("run", "tasks.py::add", "1", "--detach", cwd=project)
    why = slurm("why", "add", cwd=project)
    assert why.code == 0 and "PENDING (Resources)" in why.text and "Free are 0 CPUs" in why.text
    slurm("cancel", "slow", "add", cwd=project)


def printed(project: Path, code: str) -> str:
    """What a program of its own printed."""
    (project / "program.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=project, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_whose_log_cannot_be_opened_is_not_said_to_run(project: Path) -> None:
    code = (
        "from slurm import Cluster\nfrom tasks import add\n"
        "nowhere = dict(output='/proc/none/%j', error='/proc/none/%j')\n"
        "with Cluster.from_env(**nowhere):\n"
        "    print(add(1).exception(90) is not None)\n"
    )
    assert printed(project, code) == "True\n"
    told = at_terminal(project, "why", "last")
    assert "FAILED" in told.text and "It runs" not in told.text
    assert "/proc/none/%j could not be opened" in " ".join(told.text.split())
    shown = at_terminal(project, "show", "last").text
    assert "FAILED" in shown and "runs for" not in shown
    assert "/proc/none/%j could not be opened" in " ".join(shown.split())


def test_a_job_whose_script_was_killed_is_not_put_down_to_its_directory(project: Path) -> None:
    """Nothing is written by what SIGKILL ends; `result()` named it, `why` blamed the node."""
    code = (
        "import os\nfrom pathlib import Path\nfrom slurm import Cluster, task\n"
        "@task\n"
        "def killed():\n"
        "    at = os.getpid()\n"
        "    while 'slurm_script' not in Path(f'/proc/{at}/cmdline').read_text():\n"
        "        at = int(Path(f'/proc/{at}/stat').read_text().rpartition(')')[2].split()[1])\n"
        "    os.kill(at, 9)\n"
        "    os.kill(os.getpid(), 9)\n"
        "with Cluster.from_env():\n"
        "    print(killed().exception(90))\n"
    )
    assert "was killed by SIGKILL" in printed(project, code)
    for verb in ("why", "show"):
        told = " ".join(at_terminal(project, verb, "last", columns=300).text.split())
        assert "was killed by SIGKILL" in told and "directory has nothing" not in told


MIXED = """
import os
from slurm import Cluster, task

@task
def item(number):
    if number == 1:
        os._exit(3)
    if number % 2:
        return number
    raise (ValueError if number < 6 else KeyError)(f"no {number}")

with Cluster.from_env():
    item.map(range(8)).wait(90)
"""


def test_why_tells_every_kind_of_failure_of_a_map_with_its_count(project: Path) -> None:
    (project / "mixed.py").write_text(MIXED)
    subprocess.run([sys.executable, "mixed.py"], cwd=project, check=True, timeout=120)
    told = json.loads(slurm("why", "last", "--json", cwd=project).text)
    kinds = {(one["kind"], one["what"]): one["count"] for one in told["failures"]}
    assert kinds[("raised", "ValueError")] == 3 and kinds[("raised", "KeyError")] == 1
    assert [count for (kind, _), count in kinds.items() if kind == "died"] == [1]
    text = slurm("why", "last", cwd=project).text
    assert "3 x raised ValueError, first in slurm why" in text

    array = told["job_id"].partition("_")[0]
    for of_none in ("_99", ".0", "+1"):
        refused = slurm("cancel", array + of_none, cwd=project)
        assert refused.code == 2 and f"has no job {array}{of_none}" in refused.text, refused.text
    element = array + "_2"
    slurm("gc", "--older-than", "0", "--keep", "0", "--yes", cwd=project)
    gone = slurm("why", element, cwd=project)
    assert gone.code == 2 and f"job {element} is FAILED" in gone.text, gone.text
    assert "its run was removed" in gone.text
    whole = slurm("why", element.partition("_")[0], cwd=project).text
    assert "is COMPLETED, FAILED" in whole
