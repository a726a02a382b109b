"""What is looked up about one job while its page is open: shared by viewers, and limited."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from slurm import rundir
from slurm.api.reasons import facts
from slurm.api.slurm_commands import job_records
from slurm.api.slurm_rows import Question, sacct
from slurm.api.slurm_site import used
from slurm.efficiency import CallUse, RunUse, run_use
from slurm.errors import CommandRefused, RunNotFound, SlurmError
from slurm.model.states import parse_state
from slurm.monitor.queue import JobRow
from slurm.monitor.source import rest_of
from slurm.web.logfiles import Piece
from slurm.web.sessions import Session, run_as
from slurm.web.site import Scene, Site
from slurm.why import Why, explain_pending

if TYPE_CHECKING:
    from slurm.job import Job

T = TypeVar("T")

#: Seconds that an answer about a job is fresh; that of one that is over hardly changes.
FRESH, FINAL = 10.0, 120.0
#: Slurm's own settings for answers that programs read.
_PLAIN = ("env", "LC_ALL=C", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0")
#: A job id that may stand in a command.
JOB_ID = re.compile(r"[0-9]{1,12}(?:[_+][0-9]{1,9})?\Z")
#: Names of variables whose values nobody should see over somebody's shoulder.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_JWT|(?:^|_)KEY(?:$|_)|API_?KEY", re.I)
_NOTHING = ("", "(null)", "None", "N/A", "Unknown")


@dataclass(frozen=True)
class Detail:
    """One job: the queue's row, Slurm's record, and its run where it is one of this SDK."""

    job_id: str
    row: JobRow | None
    record: Mapping[str, str]
    #: Relative to the base directory; "" where the job is not one of ours.
    run: str

    def told(self, name: str) -> str:
        """A field of Slurm's record; "" where it says nothing."""
        value = self.record.get(name, "")
        return "" if value in _NOTHING else value

    @property
    def known(self) -> bool:
        """Whether anybody knows the job."""
        return bool(self.row or self.record or self.run)

    @property
    def state(self) -> str:
        """Slurm's long name of its state."""
        if self.row is not None:
            return self.row.state
        return str(parse_state(self.told("JobState").partition(" ")[0] or "UNKNOWN").value)

    @property
    def user(self) -> str:
        """The owner's name."""
        return self.row.user if self.row is not None else self.told("UserId").partition("(")[0]

    @property
    def uid(self) -> int | None:
        """The owner's number, where queue, record and this machine agree on who that is."""
        found = re.match(r"(.+)\(([0-9]+)\)\Z", self.told("UserId"))
        if found is None or found[1] != self.user:
            return None
        import pwd

        try:
            return int(found[2]) if pwd.getpwnam(found[1]).pw_uid == int(found[2]) else None
        except KeyError:
            return None

    def time(self, name: str, of_row: int | None) -> int | None:
        """A time, epoch seconds, of the row or of the record."""
        value = self.told(name)
        return of_row if self.row is not None else int(value) if value.isdigit() else None


def detail(site: Site, scene: Scene, job_id: str) -> Detail:
    """All that is known about a job, or about an array as a whole."""
    row = _row(scene, job_id)
    fresh = FINAL if row is not None and row.phase == "finished" else FRESH
    key = ("job", job_id, row, scene.session.user)
    record: Mapping[str, str] = {}
    run = ""
    if site.cluster.backend.kind != "embedded":
        asked = _one_of(row, job_id)
        record = site.answers.get(key, fresh, lambda: _record(site, scene.session, asked))
    if not site.rules.per_user:
        run = site.answers.get(("run of", job_id), FINAL, lambda: _run_of(site, job_id))
    if run and row is None and not record:
        record = site.answers.get((*key, "told"), FRESH, lambda: _told_by_run(site, job_id))
    if site.hides("jobs", scene.session) and row is None and not _mine(record, scene.session):
        record = {}
    return Detail(job_id, row, record, run)


def _row(scene: Scene, job_id: str) -> JobRow | None:
    group = scene.groups.get(re.split("[_+]", job_id)[0])
    if group is None:
        return None
    exact = next((row for row in group.rows if row.job_id == job_id), None)
    if exact is not None or job_id == group.base:
        return exact or group.row
    # A task that waits is part of the row of its array's rest.
    return next((row for row in group.rows if "[" in row.job_id), None)


def _one_of(row: JobRow | None, job_id: str) -> str:
    """The job to ask about: of an array one task, for all of them would be a long answer."""
    if row is None or row.base != job_id:
        return job_id
    first = re.match(r"[0-9]+_\[?([0-9]+)", row.job_id)
    return f"{job_id}_{first[1]}" if first else job_id


def _mine(record: Mapping[str, str], session: Session) -> bool:
    return record.get("UserId", "").partition("(")[0] == session.user


def _record(site: Site, session: Session, job_id: str) -> Mapping[str, str]:
    rest = rest_of(site.cluster.backend)
    if rest is not None:
        return dict(rest("record", job_id))
    records = _asked(site, session, job_records(job_id)) or _accounted(site, session, job_id)
    return records[-1] if records else {}


#: Accounting's columns -> what Slurm's record calls the same.
_ACCOUNTED = {
    "User": "UserId", "UID": "", "State": "JobState", "Partition": "Partition",
    "Account": "Account", "QOS": "QOS", "Submit": "SubmitTime", "Eligible": "EligibleTime",
    "Start": "StartTime", "End": "EndTime", "ExitCode": "ExitCode", "NodeList": "NodeList",
    "NNodes": "NumNodes", "NCPUS": "NumCPUs", "AllocTRES": "TRES", "Comment": "Comment",
    "WorkDir": "WorkDir", "JobName": "JobName",
}  # fmt: skip


def _accounted(site: Site, session: Session, job_id: str) -> list[dict[str, str]]:
    """What accounting keeps of a job that the controller has forgotten, the newest last."""
    options = ["-X", "--starttime", "1970-01-02", "-j", job_id]

    def read(rows: list[list[str]]) -> list[dict[str, str]]:
        records = [dict(zip(_ACCOUNTED, row, strict=True)) for row in rows]
        return [
            {_ACCOUNTED[name]: value for name, value in told.items() if _ACCOUNTED[name]}
            | {"JobId": job_id, "UserId": f"{told['User']}({told['UID']})"}
            for told in records
        ]

    return _asked(site, session, sacct(tuple(_ACCOUNTED), options, read))


def _asked(site: Site, session: Session, question: Question[list[T]]) -> list[T]:
    code, out, _ = command(site, session, question.command)
    return question.read(out) if code == 0 else []


def command(site: Site, session: Session, words: list[str]) -> tuple[int, str, str]:
    """Run one of Slurm's commands that only look, with the rights of the viewer."""
    if session.jwt:
        return run_as(session.jwt, words)
    if rest_of(site.cluster.backend) is not None:
        return 1, "", "over slurmrestd there are none"  # this machine's ask another cluster
    code, out, said = site.cluster.backend.look([words], 30)[0]
    return code, out, said


def _told_by_run(site: Site, job_id: str) -> Mapping[str, str]:
    """What its run says of a job that no scheduler has any more, in the words of Slurm's record."""
    try:
        job = _attach(site, job_id)
        if not job.settled:
            job.done()  # reads what its directory says by now
    except SlurmError:
        return {}
    times = job.timings
    return {
        "JobId": job.bare,
        "JobName": job.name,
        "JobState": str(job.known_state.value),
        "WorkDir": job.path,
        "NodeList": job.node or "",
        "ExitCode": "" if job.exit_code is None else f"{job.exit_code}:0",
        **{
            name: str(int(moment))
            for name, moment in (
                ("SubmitTime", times.submitted),
                ("StartTime", times.started),
                ("EndTime", times.ended),
            )
            if moment is not None
        },
    }


def _run_of(site: Site, job_id: str) -> str:
    try:
        return site.cluster.backend.find_run(job_id)
    except RunNotFound:
        return ""


# ---- why, how well, and with what ---------------------------------------------------------------


def attached(site: Site, found: Detail) -> Job[Any]:
    """The job of a run of this SDK, with what it and the scheduler say."""
    key = ("attached", found.job_id, found.state)
    return site.answers.get(key, FINAL, lambda: _attach(site, found.job_id))


def _attach(site: Site, job_id: str) -> Job[Any]:
    from slurm.array import ArrayJob

    found = site.cluster.attach(job_id)
    return found[0] if isinstance(found, ArrayJob) else found


def why(site: Site, scene: Scene, found: Detail) -> Why | None:
    """Why a job waits or failed; None where there is nothing to explain."""
    state = parse_state(found.state)
    failed = state.phase == "finished" and not state.succeeded
    if not failed and state.phase != "pending":
        return None
    key = ("why", found.job_id, found.row, scene.session.user)
    try:
        if found.run and (failed or site.cluster.backend.kind == "embedded"):
            return site.answers.get(key, FINAL if failed else 30.0, lambda: _own(site, found))
        if failed:
            return Why(found.state, _ended_words(found), False)
        return site.answers.get(key, 30.0, lambda: _pending(site, scene, found))
    except SlurmError as error:
        return Why("", f"It could not be found out: {error.message}.", False)


def _ended_words(found: Detail) -> str:
    """How a job ended badly that is not one of ours."""
    code, _, signal = found.told("ExitCode").partition(":")
    words = [str(parse_state(found.state).meaning)]
    if found.state == "FAILED" and code not in ("", "0"):
        words = [f"Its script ended with exit code {code}."]
    if signal not in ("", "0", "125"):  # 125 is Slurm's mark for out of memory
        words.append(f"Signal {signal} ended it.")
    return " ".join(words)


def _own(site: Site, found: Detail) -> Why:
    """The word of `slurm why` on a job of a run."""
    from slurm.cli.opened import Opened
    from slurm.cli.why import explained

    job = attached(site, found)
    if not job.settled:
        site.cluster._watcher.poll_now()
    return explained(Opened(site.cluster, None, [job])).answer


def _pending(site: Site, scene: Scene, found: Detail) -> Why:
    base = found.job_id.partition("_")[0]
    rest = rest_of(site.cluster.backend)

    def ask(words: list[str]) -> str:
        code, out, _ = command(site, scene.session, words)
        return out if code == 0 else ""

    known = facts(ask, found.job_id) if rest is None else rest("explain", found.job_id)
    group = scene.groups.get(base)
    known["running"] = group.counts["active"] if group is not None else 0
    reason = str(known["job"].get("Reason") or (found.row.reason if found.row else "") or "None")
    names = {
        "job": found.job_id,
        "array": found.job_id.partition("_")[0],
        "run": found.run or found.job_id,
    }
    return explain_pending(reason, known, names, scene.now)


def efficiency(site: Site, scene: Scene, found: Detail) -> RunUse | None:
    """How well a job that is over used what it had; None where nobody measured."""
    if parse_state(found.state).phase != "finished":
        return None
    key = ("used", found.job_id, scene.session.user)
    try:
        return site.answers.get(key, FINAL, lambda: _used(site, scene, found))
    except SlurmError:
        return None


def _used(site: Site, scene: Scene, found: Detail) -> RunUse | None:
    if found.run:
        from slurm.cli.eff import measured
        from slurm.cli.opened import Opened

        return measured(Opened(site.cluster, None, [attached(site, found)]))
    submit = found.time("SubmitTime", found.row.submit if found.row else None) or 0
    rows = _asked(site, scene.session, used([found.job_id], submit - 86400))
    calls = [
        CallUse(
            index=0,
            wall=row["elapsed"],
            cpu=row["cpu"],
            cpus=row["cpus"],
            memory=row["peak"] or None,
            memory_asked=(row["asked"] * (row["cpus"] if row["per_cpu"] else 1)) or None,
        )
        for row in rows
    ]
    return run_use(calls, {}) if calls else None


def script(site: Site, session: Session, found: Detail) -> str:
    """The batch script; "" where it cannot be had. Slurm shows it to its owner alone."""

    def read() -> str:
        if found.run:
            name = rundir.SCRIPT
            return site.cluster.backend.read(found.run, name).decode("utf-8", "replace")
        words = ["scontrol", "write", "batch_script", found.job_id, "-"]
        code, out, _ = command(site, session, words)
        if code != 0 and found.told("UserId"):
            words = ["sacct", "--starttime", "1970-01-02", "-j", found.job_id, "--batch-script"]
            code, out, _ = command(site, session, words)
            out = out.partition("\n---")[2].partition("\n")[2]
        return out if code == 0 else ""

    try:
        return site.answers.get(("script", found.job_id, session.user), FINAL, read)
    except SlurmError:
        return ""


def environment(site: Site, session: Session, found: Detail) -> Mapping[str, str]:
    """The variables that the job was submitted with, or what its run says of its environment."""

    def read() -> Mapping[str, str]:
        if found.run:
            data = site.cluster.backend.read(found.run, rundir.ENVIRONMENT)
            told = json.loads(data or b"{}")
            return {key: _flat(value) for key, value in told.items()}
        words = ["sacct", "--starttime", "1970-01-02", "-j", found.job_id, "--env-vars"]
        code, out, _ = command(site, session, words)
        pairs = re.findall(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$", out, re.M) if code == 0 else []
        return {k: "(hidden)" if _SECRET.search(k) else v for k, v in sorted(pairs)}

    try:
        return site.answers.get(("environment", found.job_id, session.user), FINAL, read)
    except (SlurmError, ValueError):
        return {}


def _flat(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- logs ---------------------------------------------------------------------------------------


def read_log(
    site: Site, scene: Scene, found: Detail, stream: str, offset: int, limit: int
) -> Piece:
    """A part of a job's log, with the rights of the job's owner; refused with the reason."""
    path = found.told("StdErr" if stream == "err" else "StdOut")
    if site.rules.per_user and found.user != scene.session.user:
        raise CommandRefused(f"this log is {found.user}'s, and you are {scene.session.user}")
    kind = site.cluster.backend.kind
    if path and kind == "local":
        if found.uid is None:
            raise CommandRefused("Slurm does not say clearly whose job this is")
        return site.opener.read(path, found.uid, offset, limit)
    if found.run:
        job = attached(site, found)
        name = job.log_name(stream)
        if kind in ("embedded", "local"):
            return site.opener.read(os.path.join(job.path, name), os.geteuid(), offset, limit)
        return _remote(site, found.run, name, offset, limit)
    if path:
        raise CommandRefused(
            "this dashboard reaches the cluster from outside, where only logs of runs of this SDK "
            "are read",
            hint="start it on the cluster",
        )
    raise CommandRefused("Slurm does not know (any more) where its log lies")


def _remote(site: Site, run: str, name: str, offset: int, limit: int) -> Piece:
    """A part of a log that only the agent reaches, which does not tell how long the log is."""
    read = site.cluster.backend.read
    if offset >= 0:
        return Piece(read(run, name, offset, limit), offset)
    start, data = 0, read(run, name, 0, limit)
    while more := read(run, name, start + len(data), limit):
        start, data = start + len(data), more
    return Piece(data, start)
