"""The commands about jobs: the line of each, and how its answer is read.

Nothing is started here: a builder returns an argument list, a parser takes the text that came
back. The commands are run in the environments of `slurm_environ`, which is what makes times come
as epoch seconds and array lists come whole. This file is also sent to login nodes and runs on
Python 3.6.
"""

import re
from typing import (
    Dict,
    Iterable,
    Iterator,
    List,
    Match,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from slurm.api.slurm_rows import Question, UnreadableAnswer, sacct, squeue
from slurm.model.ids import expand_array_spec
from slurm.model.states import JobState, parse_state


class JobStatus(NamedTuple):
    """One job, or one array element, as the scheduler sees it."""

    #: "123" or "123_4"; the pending rest of an array is one row, "123_[5-10%2]": see `expand_rows`.
    job_id: str
    #: The long name, such as "RUNNING" or "CANCELLED".
    state: str
    #: Why it waits or why it ended, in Slurm's words; "" when there is nothing to say.
    reason: str
    #: The host list, such as "n[1-2]"; "" before it starts.
    nodes: str
    #: What the script exited with; None until it has ended.
    exit_code: Optional[int]
    #: The signal that ended it, None for none (125 is Slurm's mark for out of memory).
    signal: Optional[int]
    #: Epoch seconds. A requeue sets `submit` anew.
    submit: Optional[int]
    #: Epoch seconds, only when it has really started: never Slurm's forecast.
    start: Optional[int]
    #: Epoch seconds, only when it has really ended: never the time limit.
    end: Optional[int]
    #: How often it was requeued; of accounting: how many earlier records it has.
    restarts: int
    #: The whole path. In rows of sacct it is `accounted_path` of it, and "" in the first seconds of
    #: a job, until the controller has sent it: then it is not yet known, and not another job's.
    work_dir: str
    #: The job's name.
    name: str


#: Not a state of Slurm: the controller has forgotten the job, and accounting does not answer.
UNANSWERED = "UNANSWERED"


def unanswered(job_id: str, work_dir: str, reason: str) -> JobStatus:
    """The status of a job that nobody can be asked about at the moment."""
    return JobStatus(job_id, UNANSWERED, reason, "", None, None, None, None, None, 0, work_dir, "")


# ---- job ids ------------------------------------------------------------------------------------

_ID = re.compile(r"([0-9]+(?:\+[0-9]+|_[0-9]+|_\[[0-9,:%-]+\])?)(?:;([A-Za-z0-9._-]+))?\Z")


def split_cluster(job_id: str) -> Tuple[str, str]:
    """`"12_3;east"` as `("12_3", "east")`, the cluster "" when none is named; checked."""
    found = _ID.match(job_id)
    if found is None:
        raise ValueError(
            "job id {!r} is not one: expected digits, such as 123, 123_4 or 123;cluster".format(
                job_id
            )
        )
    return found.group(1), found.group(2) or ""


def _ids_and_cluster(ids: Union[str, Iterable[str]]) -> Tuple[List[str], List[str]]:
    """The checked bare ids, and `["-M", cluster]` or nothing."""
    pairs = [split_cluster(i) for i in ([ids] if isinstance(ids, str) else ids)]
    clusters = sorted({cluster for _, cluster in pairs})
    if not pairs:
        raise ValueError("no job id was given")
    if len(clusters) > 1:
        raise ValueError(
            "one command speaks to one cluster, but the job ids name {}".format(clusters)
        )
    return [bare for bare, _ in pairs], (["-M", clusters[0]] if clusters[0] else [])


# ---- sbatch -------------------------------------------------------------------------------------


def sbatch_command(script_path: str) -> List[str]:
    """Submit the script; the answer is for `parse_sbatch`."""
    return ["sbatch", "--parsable", script_path]


def parse_sbatch(stdout: str) -> str:
    """The job id that `sbatch --parsable` printed last, with `;cluster` where there is one."""
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    # A site's submit filter may print above the id, never below it.
    last = lines[-1] if lines else ""
    found = _ID.match(last)
    if found is None or not found.group(1).isdigit():
        raise UnreadableAnswer(
            "sbatch --parsable ended with {!r}, which is not a job id".format(last)
        )
    return last


# ---- squeue -------------------------------------------------------------------------------------

_SQUEUE_FIELDS = (
    "JobArrayID",
    "State",
    "Reason",
    "NodeList",
    "exit_code",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "RestartCnt",
    "WorkDir",
    "Name",
)


def my_jobs(cluster: str = "", mark: str = "") -> Question[List[JobStatus]]:
    """Ask once for all jobs of this user, in all states."""
    where = ["-M", cluster] if cluster else []
    return squeue(_SQUEUE_FIELDS, ["--me", "-t", "all", *where], _statuses, mark)


def _statuses(rows: List[List[str]]) -> List[JobStatus]:
    return [_status(*row) for row in rows]


# ---- one job, with all that its owner said of it ------------------------------------------------

# What squeue calls a field -> what `scontrol show job` calls it, which is what people know.
# scontrol itself is never asked about jobs: a line break in a name forges its lines.
_RECORD = (
    ("JobID", "JobId"),
    ("JobArrayID", "ArrayId"),
    ("State", "JobState"),
    ("Reason", "Reason"),
    ("UserName", "UserName"),
    ("UserID", "Uid"),
    ("Account", "Account"),
    ("Partition", "Partition"),
    ("QOS", "QOS"),
    ("TimeLimit", "TimeLimit"),
    ("SubmitTime", "SubmitTime"),
    ("EligibleTime", "EligibleTime"),
    ("StartTime", "StartTime"),
    ("EndTime", "EndTime"),
    ("exit_code", "ExitCode"),
    ("RestartCnt", "Restarts"),
    ("NumNodes", "NumNodes"),
    ("NumCPUs", "NumCPUs"),
    ("tres-alloc", "TRES"),
    ("ReqNodes", "ReqNodeList"),
    ("NodeList", "NodeList"),
    ("Licenses", "Licenses"),
    ("Reservation", "Reservation"),
    ("Dependency", "Dependency"),
    ("Command", "Command"),
    ("Comment", "Comment"),
    ("admin_comment", "AdminComment"),
    ("STDOUT", "StdOut"),
    ("STDERR", "StdErr"),
    ("WorkDir", "WorkDir"),
    ("Name", "JobName"),
)
_THROTTLE = re.compile(r"[0-9]+_\[[0-9,:-]+%([0-9]+)\]\Z")


def job_records(job_id: str, mark: str = "") -> Question[List[Dict[str, str]]]:
    """Ask about one job, or all elements of one array: a record each, the waiting rest in one."""
    ids, where = _ids_and_cluster(job_id)
    options = ["-a", "-t", "all", *where, "-j", ids[0]]
    return squeue([field for field, _ in _RECORD], options, _records, mark)


def _records(rows: List[List[str]]) -> List[Dict[str, str]]:
    names = [name for _, name in _RECORD]
    return [_record({names[i]: value for i, value in enumerate(row)}) for row in rows]


def _record(record: Dict[str, str]) -> Dict[str, str]:
    code, signal = _exit_parts(record["ExitCode"])
    record["ExitCode"] = "{}:{}".format(code or 0, signal or 0)
    record["UserId"] = "{UserName}({Uid})".format(**record)
    throttle = _THROTTLE.match(record["ArrayId"])
    if throttle:
        record["ArrayTaskThrottle"] = throttle.group(1)
    for name in ("StdOut", "StdErr"):
        record[name] = log_path(record[name], record)
    return record


# What Slurm writes for the index of a job that is no array.
_NO_INDEX = "4294967294"
_PATTERN = re.compile(r"%([0-9]*)([%AabJjNnstux])")


def log_path(pattern: str, record: Dict[str, str]) -> str:
    """Where a job's log lies: squeue tells the path as it was asked for, such as `%x-%j.out`."""
    if "\\" in pattern:
        return pattern.replace("\\", "")  # then Slurm replaces nothing
    master, _, index = record["ArrayId"].partition("_")
    # The first of "n[1-3,5],m2" is n1.
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", record["NodeList"])
    node = re.sub(r"\[([0-9]+)[^\]]*\]", r"\1", first.group() if first else "")
    values = {
        "%": "%", "A": master, "a": index or _NO_INDEX, "b": index[-1:],
        "J": record["JobId"], "j": record["JobId"], "N": node, "n": "0", "s": "batch", "t": "0",
        "u": record["UserName"], "x": record["JobName"],
    }  # fmt: skip

    def replaced(found: Match[str]) -> str:
        width, name = found.groups()
        return values[name].rjust(min(int(width or 0), 10), "0" if name != "x" else " ")

    return _PATTERN.sub(replaced, pattern)


# ---- sacct --------------------------------------------------------------------------------------

_SACCT_FIELDS = (
    *("JobID", "State", "Reason", "NodeList", "ExitCode", "Submit", "Start", "End"),
    *("WorkDir", "JobName"),
)


def past_jobs(ids: Iterable[str], since_epoch: float, mark: str = "") -> Question[List[JobStatus]]:
    """Ask accounting about jobs submitted after `since_epoch`: oldest first, the last counts.

    All records of an id come, since after a controller crash an id may name two jobs and after a
    requeue one job has a record for each attempt.
    """
    bare, where = _ids_and_cluster(ids)
    # "uts" is Slurm's own mark for epoch seconds: no time zone can come between. It refuses
    # fewer than a million.
    since = "uts{}".format(max(1000000, int(since_epoch)))
    options = ["-X", "-D", "--starttime", since, *where, "-j", ",".join(bare)]
    return sacct(_SACCT_FIELDS, options, _accounted, mark)


def _accounted(rows: List[List[str]]) -> List[JobStatus]:
    """The rows of `past_jobs`, each with the number of its attempt."""
    found = []
    for row in rows:
        *before, work_dir, name = row
        found.append(_status(*[*before, "0", accounted_path(work_dir), name]))
    return count_attempts(found)


def count_attempts(found: Iterable[JobStatus]) -> List[JobStatus]:
    """Rows of accounting, oldest first, each with the number of its attempt as `restarts`."""
    rows = sorted(found, key=lambda row: row.submit or 0)
    attempts = {}  # type: Dict[Tuple[str, str], int]
    for i, row in enumerate(rows):
        # Each attempt is a record of its own; another job that was given the id has another run.
        key = (row.job_id, row.work_dir)
        rows[i] = row._replace(restarts=attempts.get(key, 0))
        attempts[key] = rows[i].restarts + 1
    return rows


def accounted_path(path: str) -> str:
    """A path as far as accounting can tell it, which is what `past_jobs` gives: for comparing.

    Accounting turns double quotes into backquotes, and, depending on the character set of its
    database, each character that is not ASCII into a question mark.
    """
    return re.sub(r"[^\x00-\x7f]", "?", path.replace('"', "`"))


# ---- what both have in common -------------------------------------------------------------------

_NO_TEXT = ("None", "(null)", "N/A", "None assigned", "n/a")


def _status(
    job_id: str,
    state: str,
    reason: str,
    nodes: str,
    exit_status: str,
    submit: str,
    start: str,
    end: str,
    restarts: str,
    work_dir: str,
    name: str,
) -> JobStatus:
    """One status out of the texts that both commands print."""
    known = parse_state(state)
    exit_code, signal = _exit_parts(exit_status) if known.finished else (None, None)
    return JobStatus(
        job_id=job_id,
        state=state.strip() if known is JobState.UNKNOWN else known.value,
        reason="" if reason in _NO_TEXT else reason,
        nodes="" if nodes in _NO_TEXT else nodes,
        exit_code=exit_code,
        signal=signal,
        submit=_epoch(submit),
        start=None if known.pending else _epoch(start),
        end=_epoch(end) if known.finished else None,
        restarts=int(restarts) if restarts.isdigit() else 0,
        work_dir=work_dir,
        name=name,
    )


def _epoch(text: str) -> Optional[int]:
    """Epoch seconds, or None for "N/A", "Unknown" and "None"."""
    return int(text) if text.isdigit() else None


def _exit_parts(text: str) -> Tuple[Optional[int], Optional[int]]:
    """Exit code and signal out of "3:0" or of the wait status that squeue prints as one number."""
    code, colon, signal = text.strip().partition(":")
    if not code.isdigit() or (colon and not signal.isdigit()):
        return None, None
    if colon:
        return int(code), int(signal) or None
    status = int(code)
    return status >> 8, (status & 0x7F) or None


# ---- arrays -------------------------------------------------------------------------------------

_REST = re.compile(r"([0-9]+)_\[([0-9,:%-]+)\]\Z")


def expand_rows(rows: Iterable[JobStatus]) -> Iterator[JobStatus]:
    """The same rows, with the pending rest of an array as one row per element, one at a time."""
    for row in rows:
        found = _REST.match(row.job_id)
        if found is None:
            yield row
            continue
        for index in expand_array_spec(found.group(2)):
            yield row._replace(job_id="{}_{}".format(found.group(1), index))


# ---- requests about jobs ------------------------------------------------------------------------


def scancel_command(
    ids: Union[str, Iterable[str]],
    signal: Optional[str] = None,
    batch: bool = False,
    full: bool = False,
) -> List[str]:
    """End the jobs, or send them a signal: to the batch shell alone, or with `full` to all."""
    bare, where = _ids_and_cluster(ids)
    if signal is not None and not re.match(r"[A-Za-z0-9+-]+\Z", signal):
        raise ValueError("signal {!r} is not one: expected a name such as USR1".format(signal))
    options = ["--signal=" + signal] if signal is not None else []
    options += ["--batch"] if batch else []
    options += ["--full"] if full else []
    return ["scancel", *where, *options, *bare]


def _scontrol_request(verb: str, ids: Union[str, Iterable[str]]) -> List[str]:
    bare, where = _ids_and_cluster(ids)
    return ["scontrol", *where, verb, ",".join(bare)]


def requeue_command(ids: Union[str, Iterable[str]]) -> List[str]:
    """Put running or ended jobs back into the queue."""
    return _scontrol_request("requeue", ids)


def hold_command(ids: Union[str, Iterable[str]]) -> List[str]:
    """Keep pending jobs from starting."""
    return _scontrol_request("hold", ids)


def release_command(ids: Union[str, Iterable[str]]) -> List[str]:
    """Let held jobs start."""
    return _scontrol_request("release", ids)
