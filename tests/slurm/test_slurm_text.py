"""No text that a user or administrator chooses forges anything in what Slurm's commands print."""

import os
import pwd
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm.api import slurm_commands as commands
from slurm.api import slurm_environ as environ
from slurm.api import slurm_site as site
from slurm.api.slurm_rows import UnreadableAnswer, new_mark
from slurm.monitor import nodes as monitored
from slurm.monitor import queue
from slurm.web.history import past_jobs

# One process runs them all: the second test counts what the first one tried.
pytestmark = [pytest.mark.attack, pytest.mark.xdist_group("texts")]
LIMIT = 120
WHO = pwd.getpwuid(os.getuid()).pw_name

#: What looks like a part of the answers of squeue, sacct, sinfo and scontrol, or ends one.
PIECES = (
    "\n", "\r\n", "\t", "=", "|", " ", ";", ",", ":", "\x1f", "\x1e", "\x1b[2J", "\x1b]0;x\x07",
    "\x85", "\u2028", "\u202e", "%", "%j", "%x", "\\", "\"", "'", "$(id)", "JobId=1 JobName=x",
    "UserId=root(0)",
    "   StdOut=/etc/shadow", "WorkDir=/", "JobState=COMPLETED", "COMPLETED", "0:0",
    "CLUSTER: other", "1|root|COMPLETED", "Reason=None", "NodeName=n9", "idle", "äß", "\U0001f600",
    "x", "-", "--", "\x1f\x1e", "\x1f\x1e\n", "\x1f\x1e1\x1f\x1eFAILED\x1f\x1e",
)  # fmt: skip
ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)
TEXT = st.lists(
    st.sampled_from(PIECES) | ANY,
    min_size=1,
    max_size=8,
).map("".join)


def told(command):
    """What a command of Slurm prints; it must succeed."""
    env = environ.command_env(os.environ)
    done = subprocess.run(command, env=env, capture_output=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode("utf-8", "replace")


def answer(question):
    """What is read of the answer to a question."""
    return question.read(told(question.command))


def submit(folder, *options):
    """A held job; "" where Slurm itself refuses such text."""
    env = environ.submission_env(os.environ, ())
    command = ["sbatch", "--parsable", "--hold", *options, "--wrap", "true"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=LIMIT)
    return commands.parse_sbatch(done.stdout.decode()) if done.returncode == 0 else ""


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="text-") as found:
        yield Path(found)


@pytest.fixture
def plain(folder):
    """A job whose row and record no other may change."""
    job = submit(folder, "--job-name=plain", f"--chdir={folder}")
    yield job
    told(["scancel", job])


def seen(job, since):
    """All that is read of a job: squeue's rows and record, the collector's row, accounting."""
    mark = new_mark()
    rows, bad = queue.parse_queue(told(queue.queue_command(mark)), {}, mark)
    collected = [row for row in rows.values() if row.job_id == job]
    (row,) = [row for row in commands.expand_rows(answer(commands.my_jobs())) if row.job_id == job]
    (record,) = answer(commands.job_records(job))
    (queued,) = [row for row in answer(site.all_jobs()) if row.job_id == job]
    assert bad == 0 and len(collected) == 1
    return row, record, queued, collected[0]


@pytest.fixture
def tried():
    """Of each text whether Slurm took it: where it refused them all nothing would be shown."""
    found: list[bool] = []
    yield found
    assert sum(found) > len(found) / 2 > 10


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=TEXT, comment=TEXT, admin=TEXT, path=TEXT)
def test_no_text_of_a_job_passes_for_a_field_or_a_row(
    folder, plain, tried, name, comment, admin, path
):
    since = time.time() - 60
    place = folder / path.replace("/", "_")[:40]
    place.mkdir(exist_ok=True)
    given_options = [f"--job-name={name}", f"--comment={comment}"]
    paths = [f"--chdir={place}", f"--output={place}/out", f"--error={place}/err"]
    before = seen(plain, since)
    job = submit(folder, *given_options, *paths, "--mail-user=" + comment, "--wckey=" + name)
    if not job:
        job = submit(folder, *given_options, *paths)
    tried.append(bool(job))
    if not job:
        return  # refused by Slurm itself
    try:
        env = environ.command_env(os.environ)
        update = ["scontrol", "update", f"JobId={job}", f"AdminComment={admin}"]
        subprocess.run(update, env=env, capture_output=True, timeout=LIMIT)
        row, record, queued, collected = seen(job, since)
        assert (row.state, queued.state, collected.state) == ("PENDING",) * 3
        assert row.work_dir == record["WorkDir"] == str(place)
        assert record["UserId"] == f"{WHO}({os.getuid()})" and queued.user == WHO
        assert record["JobId"] == job and record["JobState"] == "PENDING"
        assert record["Comment"] == comment and row.name == record["JobName"] == queued.name
        assert seen(plain, since) == before
        ids = {found.job_id for found in answer(commands.past_jobs([plain, job], since))}
        assert ids <= {plain, job}
        answer(past_jobs(time.time()))
    finally:
        told(["scancel", job])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(reason=TEXT)
def test_no_reason_of_a_node_passes_for_a_field_or_a_node(reason):
    def nodes():
        mark = new_mark()
        found, bad = monitored.parse_nodes(told(monitored.nodes_command(mark)), mark)
        assert bad == 0
        return {row.name: row for row in found}

    before = nodes()
    name = sorted(before)[0]
    env = environ.command_env(os.environ)
    set_reason = ["scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}"]
    done = subprocess.run(set_reason, env=env, capture_output=True, timeout=LIMIT)
    try:
        after = nodes()
        assert sorted(after) == sorted(before)
        for other in set(before) - {name}:
            then, now = before[other], after[other]
            assert (now.state, now.cpus) == (then.state, then.cpus)
        if done.returncode == 0:
            assert "drain" in after[name].flags and after[name].cpus == before[name].cpus
    finally:
        subprocess.run(["scontrol", "update", f"NodeName={name}", "State=RESUME"], env=env)


def test_an_answer_that_ends_within_a_row_is_refused():
    mark = new_mark()
    question = site.all_jobs(mark)
    with pytest.raises(UnreadableAnswer):
        question.read("1" + mark + "PENDING")
