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
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from slurm.model.ids import expand_array_spec
from slurm.model.states import JobState, parse_state

# Unit and record separators: no path or name that a person types holds them, and every Slurm since
# 20.02 prints a field whole when its format has a suffix instead of a width.
_UNIT = "\x1f"
_ROW_END = "\x1f\x1e"
# Between the two free texts of a row, so that the second may even hold a unit separator.
_TEXTS = "\x1f\x1e\x1f"


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
    #: How often it was requeued; of sacct: how many earlier records it has.
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


class UnreadableAnswer(ValueError):
    """A Slurm command answered with text that has not the form we know; nothing was guessed."""


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
)


def squeue_command(cluster: str = "") -> List[str]:
    """Ask once for all jobs of this user, in all states; the answer is for `parse_squeue`."""
    fields = [name + ":" + _UNIT for name in _SQUEUE_FIELDS]
    fields += ["Name:" + _TEXTS, "WorkDir:" + _ROW_END]
    where = ["-M", cluster] if cluster else []
    return ["squeue", "--me", "-t", "all", "-h", *where, "-O", ",".join(fields)]


def parse_squeue(text: str) -> List[JobStatus]:
    """The rows of `squeue_command`; names and directories may hold anything, even newlines."""
    rows = text.split(_ROW_END + "\n")
    if rows.pop().strip():
        raise UnreadableAnswer("squeue's answer ends within a row")
    return [_squeue_row(row) for row in rows]


def _squeue_row(row: str) -> JobStatus:
    """One row, without its end mark."""
    fields = row.split(_UNIT, len(_SQUEUE_FIELDS))
    name, mark, work_dir = fields[-1].partition(_TEXTS)
    if len(fields) != len(_SQUEUE_FIELDS) + 1 or not mark:
        raise UnreadableAnswer("squeue answered with a row we do not know: {!r}".format(row[:200]))
    job_id, state, reason, nodes, exit_status, submit, start, end, restarts = fields[:-1]
    # With -M a line "CLUSTER: name" stands above the rows of each cluster.
    job_id = job_id.rpartition("\n")[2]
    return _status(
        job_id, state, reason, nodes, exit_status, (submit, start, end), restarts, work_dir, name
    )


# ---- scontrol show job --------------------------------------------------------------------------


def scontrol_show_command(job_id: str) -> List[str]:
    """Ask about one job, or all elements of one array; the answer is for `scontrol_records`."""
    # One line per group of values, not `-o`: there a path with spaces and "=" has no clear end.
    # Only one id: a list of them is refused.
    ids, where = _ids_and_cluster(job_id)
    return ["scontrol", *where, "show", "job", ids[0]]


# Values that run to the end of their line, whatever they hold.
WHOLE_LINE = (
    *("JobName", "Command", "SubmitLine", "WorkDir", "StdErr", "StdIn", "StdOut"),
    *("Comment", "AdminComment", "SystemComment", "Extra"),
)
_KEY_VALUE = re.compile(r"([A-Za-z][A-Za-z/:]*)=(.*?)(?= +[A-Za-z][A-Za-z/:]*=|\s*\Z)")


def scontrol_records(text: str, first: str, whole: Sequence[str]) -> Iterator[Dict[str, str]]:
    """The records of a `scontrol show`: each begins with the key `first`, at the line's start.

    Values of the keys in `whole` run to the end of their line, whatever they hold. Such a key
    counts only where its line begins with it (a submit line may well say "WorkDir=..."), or in the
    first line of the record.
    """
    names = "|".join(whole)
    in_first_line = re.compile(r"(?:^|(?<= ))({})=(.*)\Z".format(names))
    in_others = re.compile(r"   ({})=(.*)\Z".format(names))
    record = {}  # type: Dict[str, str]
    # Not splitlines: a path may hold what it takes for the end of a line.
    for line in text.split("\n"):
        begins = line.startswith(first + "=")
        if begins and record:
            yield record
            record = {}
        tail = in_first_line.search(line) if begins else in_others.match(line)
        if tail:
            record.setdefault(tail.group(1), tail.group(2))
            line = line[: tail.start()]
        if begins or line.startswith("   "):
            for key, value in _KEY_VALUE.findall(line):
                if key not in whole:
                    record.setdefault(key, value)
    if record:
        yield record


# ---- sacct --------------------------------------------------------------------------------------

_SACCT_FIELDS = "JobID,State,Reason,NodeList,ExitCode,Submit,Start,End,JobName,WorkDir"


def sacct_command(ids: Iterable[str], since_epoch: float) -> List[str]:
    """Ask accounting about jobs submitted after `since_epoch`; the answer is for `parse_sacct`.

    All records of an id come, since after a controller crash an id may name two jobs and after a
    requeue one job has a record for each attempt.
    """
    bare, where = _ids_and_cluster(ids)
    # "uts" is Slurm's own mark for epoch seconds: no time zone can come between. It refuses
    # fewer than a million.
    since = "uts{}".format(max(1000000, int(since_epoch)))
    plain = ["sacct", "-X", "-n", "-P", "-D", "--starttime", since, *where]
    return [*plain, "--delimiter", _UNIT, "-o", _SACCT_FIELDS, "-j", ",".join(bare)]


def parse_sacct(text: str) -> List[JobStatus]:
    """The rows of `sacct_command`, oldest first: of two records of one id the last counts."""
    return count_attempts(_sacct_row(line) for line in text.split("\n") if line.strip())


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


def _sacct_row(line: str) -> JobStatus:
    """One line of sacct; the directory is last, for it may hold anything."""
    fields = line.split(_UNIT, 9)
    if len(fields) != 10:
        raise UnreadableAnswer("sacct answered with a row we do not know: {!r}".format(line[:200]))
    job_id, state, reason, nodes, exit_status, submit, start, end, name, work_dir = fields
    times = (submit, start, end)
    work_dir = accounted_path(work_dir)
    return _status(job_id, state, reason, nodes, exit_status, times, "0", work_dir, name)


def accounted_path(path: str) -> str:
    """A path as far as accounting can tell it, which is what `parse_sacct` gives: for comparing.

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
    times: Tuple[str, str, str],
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
        submit=_epoch(times[0]),
        start=None if known.pending else _epoch(times[1]),
        end=_epoch(times[2]) if known.finished else None,
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
