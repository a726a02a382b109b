"""What a viewer may do to a job: cancel, hold, release, requeue, as far as Slurm allows it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slurm.api.backend import JobKey
from slurm.errors import CommandRefused
from slurm.model.states import parse_state
from slurm.monitor.source import rest_of
from slurm.web.details import JOB_ID, Detail
from slurm.web.sessions import Session, run_as
from slurm.web.site import Site


@dataclass(frozen=True)
class Act:
    """One thing that can be done; the words are for a button, a question and what was done."""

    name: str
    button: str
    question: str
    done: str
    #: The phases of a job that it makes sense in.
    phases: tuple[str, ...]
    command: tuple[str, ...]
    harm: bool = False


#: Slurm's own settings for answers that programs read.
_PLAIN = ("env", "LC_ALL=C")

ACTS = {
    act.name: act
    for act in (
        Act("cancel", "Cancel", "It ends at once and cannot be resumed.", "was cancelled",
            ("pending", "active"), ("scancel",), True),
        Act("hold", "Hold", "It does not start before it is released.", "is held",
            ("pending",), ("scontrol", "hold")),
        Act("release", "Release", "It starts when its turn comes.", "was released",
            ("pending",), ("scontrol", "release")),
        Act("requeue", "Requeue", "It ends now and runs again from the begin.", "was requeued",
            ("active", "finished"), ("scontrol", "requeue"), True),
    )
}  # fmt: skip


def offered(site: Site, found: Detail) -> list[Act]:
    """What can be done to a job now; nothing where the dashboard only shows."""
    if site.rules.read_only or found.row is None:
        return []
    phase = parse_state(found.state).phase
    held = found.row.reason.startswith(("JobHeld", "JobHold"))
    skipped = "hold" if held else "release"
    return [act for act in ACTS.values() if phase in act.phases and act.name != skipped]


def carry_out(site: Site, session: Session, found: Detail, act: Act, submit: str) -> None:
    """Do it, where the job is still the one that was shown: ids are used again."""
    row = found.row
    if site.rules.read_only:
        raise CommandRefused("this dashboard only shows", hint="start it without --read-only")
    if row is None or not JOB_ID.match(found.job_id) or submit != str(row.submit):
        raise CommandRefused(f"job {found.job_id} is not in the queue any more")
    if site.acting is None:
        raise CommandRefused("this dashboard only shows", hint="start it without --read-only")
    backend = site.acting().backend
    rest = rest_of(backend)
    if rest is not None and not found.run:
        rest(act.name, _elements(found, site))
        return
    if backend.kind in ("embedded", "rest"):
        key = JobKey(found.job_id, found.run, float(row.submit or 0))
        keys = [replace(key, job_id=job) for job in _elements(found, site)]
        if not found.run or not backend.request(act.name, keys):
            raise CommandRefused(f"job {found.job_id} cannot be reached any more")
        return
    words = [*act.command, found.job_id]
    if session.user and site.opener.helped:
        site.opener.act(act.name, found.job_id, uid_of(session.user))
        return
    if session.jwt:
        code, out, said = run_as(session.jwt, words)
    else:
        code, out, said = backend.run([*_PLAIN, *words], 30)
    if code != 0:
        lines = [line for line in (said or out).splitlines() if line.strip()]
        raise CommandRefused(lines[-1] if lines else f"{act.command[0]} ended with {code}")


def uid_of(user: str) -> int:
    """The number of a user; the token was checked, so Slurm knows the name."""
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise CommandRefused(f"user {user} is not known on this machine") from None


def _elements(found: Detail, site: Site) -> list[str]:
    """Of an array as a whole, which these schedulers know by its elements alone, all of them."""
    rows = site.collector.view().snapshot
    base = f"{found.job_id}_"
    own = [r.job_id for r in rows.rows.values() if r.job_id.startswith(base)] if rows else []
    return own or [found.job_id]
