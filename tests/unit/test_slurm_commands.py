"""Builders and parsers of the Slurm commands, against recorded answers of every version."""

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.api import places, slurm_scheduler
from slurm.api import slurm_commands as commands
from slurm.api import slurm_environ as environ
from slurm.api import slurm_refusals as refusals
from slurm.api import slurm_site as site
from slurm.api.slurm_rows import UnreadableAnswer

#: Ends each field of a recorded answer; in production it is random.
MARK = "\x1f\x1e"
RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("22.05", "24.11", "26.05")
SOURCES = Path(commands.__file__).parent


class Recorded:
    """The recorded answers of one version."""

    def __init__(self, version):
        self.version = version
        self.folder = RECORDED / version
        facts = json.loads(self.read("jobs"))
        self.ids, self.odd, self.long = facts["ids"], facts["odd"], facts["long"]
        self.odd_name = facts["odd_name"]

    def read(self, name):
        return (self.folder / (name + ".txt")).read_bytes().decode()

    def squeue(self, name):
        rows = [r for r in my_jobs(self.read("squeue")) if r.job_id == self.ids[name]]
        assert len(rows) == 1, rows
        return rows[0]

    def sacct(self, name):
        """The newest record of the job."""
        rows = past_jobs(self.read("sacct"))
        return [row for row in rows if row.job_id == self.ids[name]][-1]


def my_jobs(text):
    return commands.my_jobs(mark=MARK).read(text)


def past_jobs(text):
    return commands.past_jobs(["1"], 0, MARK).read(text)


def row_of(*values):
    """A row as squeue and sacct print it."""
    return "".join(value + MARK for value in values) + "\n"


@pytest.fixture(params=VERSIONS)
def recorded(request):
    return Recorded(request.param)


# ---- states -------------------------------------------------------------------------------------

# name: state, exit code, signal.
OUTCOMES = {
    "running": ("RUNNING", None, None),
    "completed": ("COMPLETED", 0, None),
    "failed": ("FAILED", 3, None),
    "signalled": ("FAILED", 0, 9),
    "timeout": ("TIMEOUT", 0, 15),
    "cancelled": ("CANCELLED", 0, 15),
    "cancelled_by_root": ("CANCELLED", 0, 15),
    "cancelled_pending": ("CANCELLED", 0, None),
    "oom": ("OUT_OF_MEMORY", 0, 125),
    "node_fail_requeue": ("PENDING", None, None),
    "requeued": ("RUNNING", None, None),
    "held": ("PENDING", None, None),
    "begin_time": ("PENDING", None, None),
    "resources": ("PENDING", None, None),
    "dependency": ("PENDING", None, None),
    "never": ("PENDING", None, None),
    "odd": ("RUNNING", None, None),
    "odd_failed": ("FAILED", 4, None),
    "long": ("FAILED", 5, None),
}
REASONS = {
    "held": "JobHeldUser",
    "begin_time": "BeginTime",
    "resources": "Resources",
    "dependency": "Dependency",
    "never": "DependencyNeverSatisfied",
    "failed": "NonZeroExitCode",
    "timeout": "TimeLimit",
    "running": "",
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_squeue_tells_how_each_job_stands(recorded, name):
    row = recorded.squeue(name)
    assert (row.state, row.exit_code, row.signal) == OUTCOMES[name]


@pytest.mark.parametrize("name", OUTCOMES)
def test_sacct_tells_the_same_state_and_exit_code(recorded, name):
    row = recorded.sacct(name)
    assert (row.state, row.exit_code) == OUTCOMES[name][:2]


def test_a_lost_node_is_told_by_both(recorded):
    # The exit code says nothing then: 0:0, 0:1 or 1:0, depending on version and command.
    for source in (recorded.squeue, recorded.sacct):
        row = source("node_fail")
        assert row.state == "NODE_FAIL" and row.end is not None and row.nodes == "r2"


@pytest.mark.parametrize("name", REASONS)
def test_squeue_tells_why_a_job_waits_or_failed(recorded, name):
    assert recorded.squeue(name).reason == REASONS[name]


def test_a_reason_of_many_words_comes_whole(recorded):
    reason = recorded.squeue("node_fail_requeue").reason
    assert ("DRAINED" in reason and reason.count(" ") > 3) or reason.startswith("ReqNodeNotAvail")


def test_who_cancelled_a_job_is_not_part_of_its_state_in_sacct(recorded):
    text = recorded.read("sacct")
    assert "CANCELLED by 0" in text and "CANCELLED by 1000" in text
    assert recorded.sacct("cancelled_by_root").state == "CANCELLED"


def test_times_are_epoch_seconds_in_order(recorded):
    for source in (recorded.squeue, recorded.sacct):
        row = source("timeout")
        assert 1_700_000_000 < row.submit <= row.start < row.end
        assert 55 < row.end - row.start < 150


def test_a_forecast_is_not_a_start_and_a_limit_is_not_an_end(recorded):
    for source in (recorded.squeue, recorded.sacct):
        assert source("begin_time").start is None
        assert source("running").start is not None
        assert source("running").end is None


def test_nodes_are_named_once_a_job_has_some(recorded):
    for source in (recorded.squeue, recorded.sacct):
        assert source("running").nodes == "r1"
        assert source("held").nodes == ""


def test_a_requeue_is_counted_by_both(recorded):
    for source in (recorded.squeue, recorded.sacct):
        assert source("requeued").restarts == 1
        assert source("node_fail_requeue").restarts == 1
        assert source("running").restarts == 0


def test_sacct_gives_each_attempt_oldest_first(recorded):
    rows = past_jobs(recorded.read("sacct"))
    attempts = [row for row in rows if row.job_id == recorded.ids["node_fail_requeue"]]
    assert [row.state for row in attempts] == ["NODE_FAIL", "PENDING"]


def test_two_jobs_that_had_the_same_id_are_not_two_attempts_of_one(recorded):
    text = recorded.read("sacct")
    line = next(one for one in text.split("\n") if one.startswith(recorded.ids["failed"] + MARK))
    rows = past_jobs(text + line.replace("/runs", "/elsewhere") + "\n")
    same = [row for row in rows if row.job_id == recorded.ids["failed"]]
    assert [row.restarts for row in same] == [0, 0]
    assert {row.work_dir for row in same} == {"/runs", "/elsewhere"}


# ---- names and directories ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["odd", "odd_failed"])
def test_a_directory_with_odd_characters_comes_whole(recorded, name):
    assert recorded.squeue(name).work_dir == recorded.odd
    assert recorded.sacct(name).work_dir == commands.accounted_path(recorded.odd)


def test_accounting_may_lose_letters_and_still_names_the_same_directory():
    stored = {"utf8": "/runs/größe-データ", "latin1": "/runs/größe-???", "ascii": "/runs/gr??e-???"}
    for text in stored.values():
        line = row_of("7", "FAILED", "None", "n1", "1:0", "5", "6", "9", text, "n")
        (row,) = past_jobs(line)
        assert row.work_dir == commands.accounted_path(stored["utf8"])
    assert commands.accounted_path("/a") != commands.accounted_path("/b")


def test_a_directory_of_300_characters_comes_whole(recorded):
    assert len(recorded.long) > 300
    for source in (recorded.squeue, recorded.sacct):
        assert source("long").work_dir == recorded.long


def test_a_name_with_odd_characters_comes_whole(recorded):
    for source in (recorded.squeue, recorded.sacct):
        assert source("odd").name == recorded.odd_name


HOSTILE = st.text(
    st.sampled_from("a%/=| \n\r\t\x00\x1b\x1e\x1f\x85\u2028\u202e\"'`{}[]_0"), max_size=30
)


@given(name=HOSTILE, path=HOSTILE)
def test_no_value_passes_for_a_field_or_a_row(name, path):
    """The mark is made for one question, so a value may hold anything else."""
    mine = commands.my_jobs()
    mark = mine.command[-1].rpartition("Name:")[2]
    fields = ["7", "RUNNING", "None", "n1", "0", "5", "6", "9", "2", path, name]
    text = "".join(value + mark for value in fields) + "\n"
    statuses = mine.read(text + text)
    assert len(statuses) == 2
    for status in statuses:
        assert (status.job_id, status.name, status.work_dir) == ("7", name, path)
        assert (status.state, status.restarts) == ("RUNNING", 2)


def test_each_question_has_a_mark_of_its_own():
    assert commands.my_jobs().command != commands.my_jobs().command
    assert commands.past_jobs(["1"], 0).command != commands.past_jobs(["1"], 0).command


@given(name=HOSTILE, path=HOSTILE, comment=HOSTILE)
def test_a_record_holds_what_slurm_said_and_nothing_that_a_value_made_up(name, path, comment):
    asked = commands.job_records("7")
    mark = asked.command[-1].rpartition("Name:")[2]
    told = {"JobID": "7", "JobArrayID": "7", "UserName": "ada", "UserID": "1000", "Name": name,
            "STDOUT": path, "Comment": comment, "State": "PENDING", "exit_code": "0"}  # fmt: skip
    names = [one.partition(":")[0] for one in asked.command[-1].split(mark + ",")]
    (record,) = asked.read("".join(told.get(one, "") + mark for one in names) + "\n")
    assert (record["UserId"], record["JobState"]) == ("ada(1000)", "PENDING")
    assert (record["JobName"], record["Comment"]) == (name, comment)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/a/slurm-12.out", "/a/slurm-12.out"),
        ("/a/%x-%j.out", "/a/my job-12.out"),
        ("/a/%A_%a.out", "/a/10_3.out"),
        ("/a/%5j_%3a", "/a/00012_003"),
        ("/a/%u/%N/%n%t", "/a/ada/n07/00"),
        ("/a/100%%", "/a/100%"),
        ("/a/%q", "/a/%q"),
        ("/a/\\%j", "/a/%j"),
    ],
)
def test_a_log_lies_where_its_pattern_says(pattern, path):
    record = {"ArrayId": "10_3", "JobId": "12", "NodeList": "n[07-09],m1", "UserName": "ada"}
    assert commands.log_path(pattern, {**record, "JobName": "my job"}) == path


def test_squeue_of_another_cluster_has_a_line_above_its_rows(recorded):
    text = "CLUSTER: east\n" + recorded.read("squeue")
    assert my_jobs(text) == my_jobs(recorded.read("squeue"))


def test_an_empty_queue_has_no_rows():
    assert my_jobs("") == []
    assert my_jobs("\n") == []
    assert past_jobs("") == []


def test_a_job_that_accounting_does_not_know_has_no_rows(recorded):
    assert past_jobs(recorded.read("sacct-unknown")) == []


def test_a_cut_answer_is_refused_and_never_half_believed(recorded):
    text = recorded.read("squeue")
    with pytest.raises(UnreadableAnswer, match="ends within a row"):
        my_jobs(text[:-10])
    with pytest.raises(UnreadableAnswer, match="do not know"):
        my_jobs("slurm is down for maintenance" + MARK)
    with pytest.raises(UnreadableAnswer, match="ends within a row"):
        past_jobs("a message of the day\n")


def test_a_state_that_nobody_knows_is_passed_on():
    row = row_of("7", "DREAMING", "None", "n1", "0", "5", "6", "9", "0", "/x", "a")
    (status,) = my_jobs(row)
    assert (status.state, status.exit_code, status.end) == ("DREAMING", None, None)


# ---- arrays -------------------------------------------------------------------------------------

ARRAY = {0: "COMPLETED", 2: "COMPLETED", 4: "COMPLETED", 6: "RUNNING", 8: "RUNNING", 10: "RUNNING"}
ARRAY.update(dict.fromkeys((12, 14, 16, 18), "PENDING"))


def elements(recorded, rows):
    array = recorded.ids["array"] + "_"
    found = [row for row in commands.expand_rows(rows) if row.job_id.startswith(array)]
    assert len(found) == len({row.job_id for row in found})
    return {int(row.job_id[len(array) :]): row.state for row in found}


def test_squeue_gives_one_row_per_element_of_an_array(recorded):
    assert elements(recorded, my_jobs(recorded.read("squeue"))) == ARRAY


def test_sacct_gives_one_row_per_element_of_an_array(recorded):
    assert elements(recorded, past_jobs(recorded.read("sacct"))) == ARRAY


def test_a_long_pending_rest_is_expanded_one_at_a_time():
    row = commands.JobStatus(
        "9_[5-7,10-20:5%2]", "PENDING", "", "", None, None, None, None, None, 0, "/w", "n"
    )
    ids = [each.job_id for each in commands.expand_rows([row])]
    assert ids == ["9_5", "9_6", "9_7", "9_10", "9_15", "9_20"]


# ---- the cluster itself -------------------------------------------------------------------------


def test_nodes_tell_what_they_have_and_why_they_are_down(recorded):
    nodes = {node.name: node for node in site.parse_nodes(recorded.read("nodes"))}
    assert sorted(nodes) == ["r1", "r2", "r3"]
    assert nodes["r2"].state.startswith("DOWN")
    assert nodes["r2"].reason == "power = off, r2 [rack 4]"
    first = nodes["r1"]
    assert first.state.startswith("MIXED")
    assert (first.cpus, first.memory, first.gres) == (8, 2000, "tmpfs:4")
    assert 0 < first.allocated_cpus < 8 and first.allocated_memory == 100 * first.allocated_cpus
    assert first.features == ("fast", "ib")
    assert first.partitions == ("main",) and nodes["r3"].partitions == ("main", "long")
    assert first.reason == ""


def test_partitions_tell_limits_and_use(recorded):
    rows = site.parse_partitions(recorded.read("partitions"))
    partitions = {row.name: row for row in rows}
    main = partitions["main"]
    assert (main.default, main.available, main.time_limit) == (True, "up", "1-00:00:00")
    assert main.default_time == "10:00"
    assert (main.nodes, main.cpus, main.other_nodes, main.other_cpus) == (3, 24, 1, 8)
    # The one for root's group is not shown to others.
    assert sorted(partitions) == ["long", "main"]
    assert (partitions["long"].default, partitions["long"].time_limit) == (False, "infinite")
    assert partitions["long"].default_time == ""
    assert main.allocated_cpus + main.idle_cpus + main.other_cpus == main.cpus


def test_settings_are_read_by_name(recorded):
    settings = site.parse_config(recorded.read("config"))
    assert settings["ClusterName"] == "rec"
    assert settings["SLURM_VERSION"].startswith(recorded.version)
    assert settings["PreemptMode"] == "OFF"
    assert (settings["MaxArraySize"], settings["MinJobAge"]) == ("1001", "300 sec")


def test_the_version_is_three_numbers(recorded):
    version = site.parse_version(recorded.read("version"))
    assert "{}.{:02}".format(*version[:2]) == recorded.version
    assert site.parse_version("slurm 22.05.8\n") == (22, 5, 8)
    with pytest.raises(UnreadableAnswer, match="no version"):
        site.parse_version("bash: sbatch: not found")


def test_a_job_id_is_the_last_line_of_sbatch(recorded):
    assert re.fullmatch("[0-9]+", commands.parse_sbatch(recorded.read("sbatch")))
    assert commands.parse_sbatch("welcome\n12;east\n") == "12;east"


@pytest.mark.parametrize("text", ["", "Submitted batch job 3", "12; rm -rf x", "12\nbye", "1_2"])
def test_what_is_not_a_job_id_is_refused(text):
    with pytest.raises(UnreadableAnswer, match="not a job id"):
        commands.parse_sbatch(text)


# ---- errors -------------------------------------------------------------------------------------

# What each refusal is about, by a word of our reason and the argument that our hint names.
REFUSALS = {
    "bad-partition": ("partition", "partition="),
    "closed-partition": ("closed to your group", "partition"),
    "bad-account": ("account", "account="),
    "foreign-account": ("account", "account="),
    "bad-qos": ("QOS", "qos="),
    "too-many-cpus": ("nodes", "fewer CPUs"),
    "too-many-nodes": ("nodes", "fewer CPUs"),
    "too-long": ("time", "time="),
    "bad-time": ("time", "time="),
    "too-much-memory": ("memory", "mem="),
    "bad-memory": ("memory", "mem="),
    "bad-dependency": ("dependency", "dependency="),
    "bad-array": ("array", "MaxArraySize"),
    "bad-gres": ("generic resource", "gres="),
    "bad-feature": ("feature", "constraint="),
    "bad-reservation": ("reservation", "reservation="),
    "bad-license": ("licence", "licenses="),
    "bad-node": ("node", "sinfo -N"),
    "bad-option": ("option", "sbatch --help"),
    "submit-limit": ("number of your jobs", "sacctmgr"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_explained_with_its_fix(recorded, name):
    stderr = recorded.read("errors/sbatch-" + name)
    reason, hint = refusals.explain_sbatch_error(stderr)
    assert REFUSALS[name][0] in reason and REFUSALS[name][1] in hint
    assert not refusals.is_unreachable(stderr)


def test_a_full_queue_is_a_limit_that_passes_and_sbatch_has_the_time_to_say_so():
    """What it says after fifteen pauses, of 1, 2, ... seconds: it was given up before that."""
    words = (
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n"
    )
    assert refusals.is_submit_limit(words) and not refusals.is_unreachable(words)
    assert "MaxJobCount" in refusals.explain_sbatch_error(words)[0]
    assert sum(range(16)) + 30 < slurm_scheduler.SUBMIT_TIMEOUT < places._LOCK_WAIT


def test_words_that_nobody_knows_are_passed_on_without_their_prefix():
    reason, hint = refusals.explain_sbatch_error("sbatch: error: site filter: Tuesday\n")
    assert reason == "site filter: Tuesday"
    assert "sbatch" in hint
    assert "no reason" in refusals.explain_sbatch_error("")[0]


@pytest.mark.parametrize(
    "name", ["cancel", "sbatch", "squeue", "nodes", "partitions", "config", "sacct"]
)
def test_a_controller_that_is_down_is_told_apart(recorded, name):
    stderr = recorded.read(f"errors/{name}-down")
    assert refusals.is_unreachable(stderr)
    assert not refusals.is_unknown_job(stderr)
    assert refusals.explain_sbatch_error(stderr)[0] == "the controller did not answer"


@pytest.mark.parametrize("name", ["requeue", "hold", "release"])
def test_requests_to_a_controller_that_is_down_are_told_apart(recorded, name):
    assert refusals.is_unreachable(recorded.read(f"errors/{name}-down"))


@pytest.mark.parametrize("name", ["requeue", "hold", "release", "signal"])
def test_a_job_that_the_controller_does_not_know_is_told_apart(recorded, name):
    stderr = recorded.read(f"errors/{name}-unknown")
    assert refusals.is_unknown_job(stderr)
    assert not refusals.is_unreachable(stderr)


# ---- builders -----------------------------------------------------------------------------------


def test_requests_name_jobs_and_their_cluster():
    assert commands.sbatch_command("/a b/s.sh") == ["sbatch", "--parsable", "/a b/s.sh"]
    assert commands.scancel_command(["1", "2_3"]) == ["scancel", "1", "2_3"]
    assert commands.scancel_command("7;east") == ["scancel", "-M", "east", "7"]
    signal = commands.scancel_command(["7"], signal="USR1", batch=True)
    assert signal == ["scancel", "--signal=USR1", "--batch", "7"]
    assert commands.scancel_command(["7"], "TERM", full=True)[1:3] == ["--signal=TERM", "--full"]
    assert commands.requeue_command(["1", "2"]) == ["scontrol", "requeue", "1,2"]
    assert commands.hold_command("1;e") == ["scontrol", "-M", "e", "hold", "1"]
    assert commands.release_command("1_[2-5]") == ["scontrol", "release", "1_[2-5]"]
    assert commands.job_records("4_2").command[-4:-2] == ["-j", "4_2"]


def test_one_squeue_asks_for_all_jobs_of_the_user():
    command = commands.my_jobs().command
    assert command[:5] == ["squeue", "-h", "--me", "-t", "all"]
    assert commands.my_jobs("east").command[5:7] == ["-M", "east"]


def test_sacct_always_has_a_start_time():
    command = commands.past_jobs(["1", "2_3"], 1700000000.9).command
    assert command[command.index("--starttime") + 1] == "uts1700000000"
    assert command[command.index("-j") + 1] == "1,2_3"


@pytest.mark.parametrize("bad", ["", "x", "1 2", "-1", "1; touch x", "1\n", "--me", "1_", "1_[a]"])
def test_what_is_not_a_job_id_never_reaches_a_command_line(bad):
    builders = (
        commands.scancel_command,
        commands.requeue_command,
        commands.hold_command,
        commands.release_command,
    )
    for build in builders:
        with pytest.raises(ValueError, match="job id"):
            build([bad])
    with pytest.raises(ValueError, match="job id"):
        commands.job_records(bad)
    with pytest.raises(ValueError, match="job id"):
        commands.past_jobs([bad], 0)


def test_a_command_without_jobs_or_for_two_clusters_is_refused():
    with pytest.raises(ValueError, match="no job id"):
        commands.scancel_command([])
    with pytest.raises(ValueError, match="one cluster"):
        commands.scancel_command(["1;a", "2;b"])
    with pytest.raises(ValueError, match="signal 'a b'"):
        commands.scancel_command(["1"], signal="a b")


# ---- environments -------------------------------------------------------------------------------


def test_commands_run_without_the_users_format_settings():
    given = {
        "PATH": "/bin",
        "SQUEUE_FORMAT": "%i",
        "SACCT_FORMAT": "x",
        "SINFO_FORMAT": "y",
        "SCANCEL_INTERACTIVE": "1",
        "SLURM_CONF": "/c",
        "LC_ALL": "de_DE.UTF-8",
        "SLURM_TIME_FORMAT": "relative",
    }
    assert environ.command_env(given) == {
        "PATH": "/bin",
        "SLURM_CONF": "/c",
        "LC_ALL": "C",
        "SLURM_BITSTR_LEN": "0",
        "SLURM_TIME_FORMAT": "%s",
    }


def test_a_submission_from_inside_a_job_drops_what_belongs_to_that_job():
    given = {
        "SLURM_JOB_ID": "5",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURMD_NODENAME": "n1",
        "SLURM_CONF": "/c",
        "SLURM_CLUSTERS": "east",
        "SLURM_JWT": "token",
        "SLURM_SDK_RUN": "r",
        "LC_ALL": "de_DE.UTF-8",
    }
    kept = {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SDK_RUN", "LC_ALL"}
    assert set(environ.submission_env(given, ())) == kept
    assert environ.submission_env(given, ())["LC_ALL"] == "de_DE.UTF-8"


def test_a_submission_from_a_login_shell_keeps_the_users_settings():
    assert environ.submission_env({"SLURM_HINT": "nomultithread"}, ()) == {
        "SLURM_HINT": "nomultithread"
    }


@pytest.mark.parametrize(
    ("variable", "option"),
    [
        ("SBATCH_PARTITION", "partition"),
        ("SBATCH_TIMELIMIT", "time"),
        ("SBATCH_MEM_PER_NODE", "mem"),
        ("SBATCH_MEM_PER_CPU", "mem"),
        ("SBATCH_GPUS_PER_NODE", "gpus_per_node"),
        ("SBATCH_CPUS_PER_GPU", "cpus-per-gpu"),
        ("SBATCH_REQUEUE", "no_requeue"),
        ("SBATCH_JOB_NAME", "job_name"),
    ],
)
def test_a_variable_yields_to_an_option_that_is_set_and_else_counts(variable, option):
    given = {variable: "x"}
    assert environ.submission_env(given, [option]) == {}
    assert environ.submission_env(given, ["comment"]) == given
    assert environ.honoured_variables(dict(given, PATH="/"), ["comment"]) == given


def test_variables_that_would_break_a_submission_are_never_honoured():
    given = {"SBATCH_WAIT": "1", "SBATCH_ARRAY_INX": "1-9", "SBATCH_DEBUG": "2"}
    assert environ.submission_env(given, ()) == {}


# ---- floors and recordings ----------------------------------------------------------------------


def _python36():
    """A Python 3.6 of this machine, if there is one."""
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions", Path("/opt")]
    found = [p for root in roots for p in sorted(root.glob("*3.6*/bin/python3.6"))]
    return found[0] if found else None


@pytest.mark.skipif(_python36() is None, reason="there is no Python 3.6 on this machine")
def test_the_modules_run_on_python_3_6():
    program = """
        import sys, types
        for name in ("slurm", "slurm.api", "slurm.model"):
            module = types.ModuleType(name)
            module.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
            sys.modules[name] = module
        from slurm.api.slurm_site import parse_nodes
        from slurm.api.slurm_commands import expand_rows, my_jobs
        folder = sys.argv[2]
        read = lambda name: open(folder + name, encoding="utf-8", newline="").read()
        rows = my_jobs(mark=sys.argv[3]).read(read("/squeue.txt"))
        print(len(list(expand_rows(rows))))
        print(len(parse_nodes(read("/nodes.txt"))))
    """
    version = Recorded(VERSIONS[0])
    command = [str(_python36()), "-c", textwrap.dedent(program)]
    command += [str(SOURCES.parent.parent), str(version.folder), MARK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    rows = list(commands.expand_rows(my_jobs(version.read("squeue"))))
    assert done.stdout.split() == [str(len(rows)), "3"], done.stderr


def test_recordings_name_no_machine_but_the_recorded_cluster(recorded):
    paths = list(recorded.folder.rglob("*.txt"))
    assert len(paths) > 50
    for path in paths:
        for line in path.read_text().splitlines():
            assert not line.startswith("   OS=") or line == "   OS=Linux"
            assert not re.search(r"(HostName|AllocNode:Sid)=(?!login|localhost)", line), path
