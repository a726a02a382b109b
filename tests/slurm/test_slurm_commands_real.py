"""Builders and parsers of the Slurm commands, against the Slurm that runs here."""

import os
import subprocess
import time

import pytest

from slurm.api import slurm_commands as commands
from slurm.api import slurm_environ as environ
from slurm.api import slurm_refusals as refusals
from slurm.api import slurm_site as site

# Far above what anything here takes: a guard against hangs only.
LIMIT = 120
SLEEP = "sleep 600"


def ask(command, cwd=None):
    """What the command answers: exit status, stdout, stderr."""
    env = environ.command_env(os.environ)
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, timeout=LIMIT)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def answer(question):
    """What is read of the answer to a question."""
    return question.read(ask(question.command)[1])


def status(job_id):
    """The row of squeue about the job, or None."""
    rows = commands.expand_rows(answer(commands.my_jobs()))
    return next((row for row in rows if row.job_id == job_id), None)


def until(probe):
    """What the probe returns once it is true."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found = probe()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("it did not become so: {}".format(ask(["squeue", "-t", "all"])))


def until_state(job_id, *states):
    def probe():
        row = status(job_id)
        return row if row and row.state in states else None

    return until(probe)


def accounted(job_id, since):
    """The finished record of the job in accounting; its directory comes seconds after its end."""

    def probe():
        rows = answer(commands.past_jobs([job_id], since))
        return rows[-1] if rows and rows[-1].end is not None and rows[-1].work_dir else None

    return until(probe)


def sbatch(folder, text, *lines, cwd=None):
    """Submit a script's text; returns the job id."""
    script = folder / "script.sh"
    header = "".join(f"#SBATCH {line}\n" for line in ("--mem=50M", *lines))
    script.write_text(f"#!/bin/sh\n{header}{text}\n")
    env = environ.submission_env(os.environ, ())
    command = commands.sbatch_command(str(script))
    done = subprocess.run(
        command, cwd=cwd or folder, env=env, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return commands.parse_sbatch(done.stdout)


@pytest.fixture
def submit(tmp_path):
    """Submits a script's text; what it submitted is gone after the test."""
    submitted = []

    def _submit(text, *lines):
        submitted.append(sbatch(tmp_path, text, *lines))
        return submitted[-1]

    yield _submit
    if submitted:
        ask(commands.scancel_command(submitted))


ODD_NAMES = {
    "spaces": "a b  c",
    "quotes": 'it\'s "so" `here`',
    "bars_and_percents": "x|y%j%%n",
    "equals": "k=v WorkDir=/z StdErr=/q",
    "unicode": "größe-データ-é",
    "shell": "$(id);&<>*?",
    "separators": "a\x1fb\x1ec\x0bd",
    "backslashes": "a\\b\\n",
    "three_hundred": os.path.join("l" * 150, "m" * 150),
}


@pytest.fixture(scope="module")
def odd_jobs(slurm_cluster, tmp_path_factory):
    """One job in each odd directory, all at once: accounting takes seconds to hear of them."""
    top = tmp_path_factory.mktemp("odd")
    jobs = {}
    for kind, name in ODD_NAMES.items():
        (top / name).mkdir(parents=True)
        jobs[kind] = sbatch(top, "exit 0", "--output=/dev/null", cwd=top / name), str(top / name)
    return jobs


def shown(job_id):
    (record,) = answer(commands.job_records(job_id))
    return record


@pytest.mark.parametrize("kind", ODD_NAMES)
def test_the_working_directory_comes_whole(odd_jobs, kind):
    job_id, place = odd_jobs[kind]
    assert until_state(job_id, "COMPLETED").work_dir == place
    assert shown(job_id)["WorkDir"] == place
    assert accounted(job_id, 0).work_dir == commands.accounted_path(place)


def test_an_exit_code_and_times_are_the_same_in_all_three(submit):
    since = time.time() - 60
    job_id = submit("exit 3")
    listed = until_state(job_id, "FAILED")
    assert (listed.exit_code, listed.signal) == (3, None)
    assert abs(listed.submit - time.time()) < LIMIT
    assert shown(job_id)["ExitCode"] == "3:0"
    record = accounted(job_id, since)
    assert (record.state, record.exit_code, record.end) == ("FAILED", 3, listed.end)


def test_a_job_is_cancelled_and_accounting_says_by_whom_without_changing_the_state(submit):
    since = time.time() - 60
    job_id = submit(SLEEP)
    running = until_state(job_id, "RUNNING")
    assert running.nodes and running.end is None and running.exit_code is None
    assert ask(commands.scancel_command([job_id]))[0] == 0
    assert until_state(job_id, "CANCELLED").end is not None
    assert accounted(job_id, since).state == "CANCELLED"


def test_a_signal_reaches_the_batch_shell(submit):
    job_id = submit("trap 'exit 9' USR1; echo ready; while :; do sleep 0.1; done")
    until_state(job_id, "RUNNING")

    def signalled():
        ask(commands.scancel_command([job_id], signal="USR1", batch=True))
        row = status(job_id)
        return row if row.state == "FAILED" else None

    # Sent until it acts: the shell may not have set its trap yet. Then it would end by the signal.
    row = until(signalled)
    assert (row.exit_code, row.signal) in ((9, None), (0, 10))


def test_a_job_is_held_and_released(submit):
    job_id = submit("true", "--hold")
    assert until_state(job_id, "PENDING").reason == "JobHeldUser"
    assert ask(commands.release_command([job_id]))[0] == 0
    until_state(job_id, "COMPLETED")
    other = submit("true", "--begin=now+1hour")
    assert ask(commands.hold_command([other]))[0] == 0
    assert until(lambda: "Held" in status(other).reason)


def test_a_requeued_job_counts_its_restart(submit):
    job_id = submit(SLEEP, "--requeue")
    until_state(job_id, "RUNNING")
    assert ask(commands.requeue_command([job_id]))[0] == 0
    assert until(lambda: status(job_id).restarts == 1)


def test_an_array_has_one_row_per_element_at_any_time(submit):
    job_id = submit('[ "$SLURM_ARRAY_TASK_ID" -lt 2 ] || sleep 600', "--array=0-9%2")
    until_state(job_id + "_1", "COMPLETED")
    until_state(job_id + "_3", "RUNNING")
    rows = [r for r in answer(commands.my_jobs()) if r.job_id.startswith(job_id + "_")]
    expanded = [row.job_id for row in commands.expand_rows(rows)]
    assert sorted(expanded) == [f"{job_id}_{i}" for i in range(10)]
    assert any("[" in row.job_id for row in rows)


def test_a_dependency_that_can_never_be_satisfied_says_so(submit):
    failed = submit("exit 1", "--hold")
    waiting = submit("true", "--dependency=afterok:" + failed)
    ask(commands.release_command([failed]))
    until_state(failed, "FAILED")
    assert until(lambda: status(waiting).reason == "DependencyNeverSatisfied")


def test_a_job_that_was_never_there_is_unknown():
    for command in (
        commands.job_records("999999").command,
        commands.requeue_command("999999"),
        commands.hold_command("999999"),
    ):
        stderr = ask(command)[2]
        assert refusals.is_unknown_job(stderr) and not refusals.is_unreachable(stderr), command
    assert answer(commands.past_jobs(["999999"], 0)) == []


def test_a_partition_that_does_not_exist_is_explained():
    code, _, stderr = ask(["sbatch", "--parsable", "-p", "nope", "--wrap", "true"])
    assert code != 0
    reason, hint = refusals.explain_sbatch_error(stderr)
    assert "partition" in reason and "sinfo" in hint


def test_a_controller_that_is_not_there_is_unreachable(slurm_cluster, tmp_path, monkeypatch):
    with open(os.environ["SLURM_CONF"]) as conf:
        lines = conf.read().splitlines()
    lines = [line for line in lines if not line.startswith(("SlurmctldPort", "MessageTimeout"))]
    copy = tmp_path / "slurm.conf"
    # Port 1 is nobody's here.
    copy.write_text("\n".join([*lines, "SlurmctldPort=1", "MessageTimeout=2", ""]))
    monkeypatch.setenv("SLURM_CONF", str(copy))
    for command in (
        commands.my_jobs().command,
        commands.job_records("1").command,
        commands.scancel_command("1"),
        commands.requeue_command("1"),
        site.show_nodes_command(),
        ["sbatch", "--wrap", "true"],
    ):
        code, _, stderr = ask(command)
        assert code != 0 and refusals.is_unreachable(stderr), (command, stderr)


def test_nodes_partitions_settings_and_version_are_read(slurm_cluster):
    nodes = site.parse_nodes(ask(site.show_nodes_command())[1])
    assert len(nodes) == 4 and all(node.cpus > 0 and node.memory > 0 for node in nodes)
    (partition,) = site.parse_partitions(ask(site.sinfo_command())[1])
    assert partition.default and partition.nodes == 4
    assert partition.cpus == sum(node.cpus for node in nodes)
    settings = site.parse_config(ask(site.show_config_command())[1])
    assert int(settings["MaxArraySize"]) > 0
    version = site.parse_version(ask(site.version_command())[1])
    assert settings["SLURM_VERSION"].startswith("{}.{:02}".format(*version[:2]))


# ---- what users write ---------------------------------------------------------------------------

FORGED = {
    "line": "x\n   UserId=root(0)\n   StdOut=/etc/shadow",
    "record": "x\n\nJobId=1 JobName=other\n   UserId=root(0)",
    "separators": "x\x1f\x1e\x1f/elsewhere\x1f\x1e\n1\x1fFAILED",
    "pipes": "x|y|z\t=\x1b[2J\u202e\u2028\x85",
}


def wrapped(tmp_path, text, *options):
    """Submit by options of the command line, which may hold line breaks."""
    env = environ.submission_env(os.environ, ())
    command = ["sbatch", "--parsable", *options, "--wrap", text]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT
    )
    return commands.parse_sbatch(done.stdout)


@pytest.mark.attack
@pytest.mark.parametrize("kind", FORGED)
def test_a_job_can_say_nothing_of_itself_but_what_slurm_knows(tmp_path, kind):
    text = FORGED[kind]
    since = time.time() - 60
    job_id = wrapped(tmp_path, "true", "--job-name=" + text, "--comment=" + text)
    row = until_state(job_id, "COMPLETED")
    assert (row.name, row.work_dir) == (text, shown(job_id)["WorkDir"])
    record = shown(job_id)
    assert record["UserId"] == f"root({os.getuid()})"
    assert (record["JobName"], record["Comment"]) == (text, text)
    assert record["StdOut"] == str(tmp_path / f"slurm-{job_id}.out")
    assert accounted(job_id, since).job_id == job_id
    assert [found.job_id for found in answer(commands.past_jobs([job_id], since))] == [job_id]
    queue = {found.job_id for found in answer(site.all_jobs())}
    assert queue <= {found.job_id for found in answer(commands.my_jobs())}


def test_a_log_with_a_pattern_is_found_where_slurm_wrote_it(tmp_path):
    pattern = f"--output={tmp_path}/%x-%5j-%u-%a-%n%t%s%%"
    job_id = wrapped(tmp_path, "echo here", "--job-name=my job", pattern)
    until_state(job_id, "COMPLETED")
    with open(shown(job_id)["StdOut"]) as log:
        assert log.read() == "here\n"


def test_a_log_of_an_array_is_found_where_slurm_wrote_it(tmp_path):
    pattern = f"--output={tmp_path}/%A-%a-%4a"
    job_id = wrapped(tmp_path, "echo $SLURM_ARRAY_TASK_ID", "--array=11-12", pattern)
    until_state(job_id + "_12", "COMPLETED")
    with open(shown(job_id + "_12")["StdOut"]) as log:
        assert log.read() == "12\n"
