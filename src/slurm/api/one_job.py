"""One job of a run: submitted, its id written down, and found again where the id got lost.

Called by the agent where the scheduler is, so it keeps to Python 3.6.
"""

import contextlib
import os
import threading
import time
from typing import Any, Dict, Iterator

from slurm import rundir
from slurm.api import door, elsewhere, origin, run_files
from slurm.api.agent_error import AgentError
from slurm.api.slurm_environ import submission_env

#: How long one waits for another that submits the same part and says no more that it does.
PATIENCE = 20.0


@contextlib.contextmanager
def turn(agent: Any, path: str, part: str) -> Iterator[bool]:
    """Claim a part for this process to submit; False: another process has submitted it.

    While it is done the others are shown that somebody is at it: an answer may take minutes.
    """
    if not _is_ours(agent, path, part):
        yield False
        return
    intent, over = os.path.join(path, rundir.intent_name(part)), threading.Event()

    def tell() -> None:
        while not over.wait(PATIENCE / 4):
            with contextlib.suppress(OSError):
                rundir.write_atomically(intent, _mine(), sync=False)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    free = False
    try:
        yield True
    except AgentError as error:
        # Without an answer it may have been accepted: then the next one looks for it first.
        free = error.kind not in ("timeout", "unreachable")
        raise
    finally:
        over.set()
        teller.join()
        if free:
            with contextlib.suppress(OSError):
                os.unlink(intent)


def _mine() -> bytes:
    return f"{rundir.host_token()} {os.getpid()} {time.time()}".encode()


def _is_ours(agent: Any, path: str, part: str) -> bool:
    """Claim the submission of a part; False: it was made, perhaps by one who died after it."""
    intent = os.path.join(path, rundir.intent_name(part))
    done = [f"{path}/{rundir.SUBMIT}/{part}.{kind}" for kind in ("id", "refused")]
    seen, since = "", time.time()
    while True:
        if any(os.path.exists(one) for one in done):
            return False
        if run_files.write_first(intent, _mine()):
            return True
        if run_files.read_text(intent) != seen:
            seen, since = run_files.read_text(intent), time.time()
        elif time.time() - since > PATIENCE:
            lost = find_lost(agent, path, part)
            if lost:
                remember(agent, path, part, lost)
                return False
            with contextlib.suppress(OSError):  # another one who waits may be quicker
                os.rename(intent, f"{intent}.given-up")
        time.sleep(0.2)


def submit(agent: Any, path: str, script: str, plan: Dict[str, Any], env: Dict[str, str]) -> str:
    """Give a script of a run to the scheduler; the id of the job."""
    full = dict(submission_env(door.environment(), plan["options_set"]), **env)
    run_files.check_script(path, script)
    cwd = plan["cwd"] if os.path.isdir(plan["cwd"]) else path
    try:
        return str(agent.scheduler.submit(os.path.join(path, script), full, cwd))
    except AgentError:
        raise
    except Exception as error:  # told apart below; anything else is raised again
        # The embedded scheduler, always in our process, raises what the user will see.
        kind = getattr(error, "agent_kind", None)
        if kind is None:
            raise
        raise AgentError(kind, error.args[0], error.evidence, error.hint) from error  # type: ignore[attr-defined]


def submit_small(
    agent: Any,
    path: str,
    template: str,
    script: str,
    words: Dict[str, str],
    plan: Dict[str, Any],
    env: Dict[str, str],
) -> None:
    """Submit a small job of ours, whose script is a template with words filled in.

    Where it is refused an open client does its work; what is missing is said beside the script.
    """
    try:
        run_files.fill_in(os.path.join(path, template), words, os.path.join(path, script))
        submit(agent, path, script, plan, env)
    except Exception as error:  # noqa: BLE001 - the job that it belongs to is submitted
        note = os.path.join(path, script + ".error")
        with contextlib.suppress(OSError):
            rundir.write_atomically(note, str(error).encode(), sync=False)


def remember(agent: Any, path: str, part: object, job: str) -> None:
    """Write down the id of a part's job: in the run, and as a link from the id to the run."""
    # The disk may be full: the job is accepted, and is found by its claim or its directory.
    with contextlib.suppress(OSError):
        rundir.write_atomically(os.path.join(path, rundir.id_name(part)), job.encode(), sync=False)
    link = origin.name_for(agent.base, run_files.bare(job), path)
    target = os.path.relpath(path, os.path.dirname(link))
    with contextlib.suppress(OSError):  # the link is a convenience; the id is in the run directory
        try:
            os.symlink(target, link)
        except FileExistsError:
            # An id that Slurm gave out again names the newer run.
            temporary = f"{link}.{os.getpid()}"
            os.symlink(target, temporary)
            os.replace(temporary, link)


def find_lost(agent: Any, path: str, part: object) -> str:
    """The job of a part whose id was not written down, by its claim or its directory; "": none."""
    with contextlib.suppress(OSError):
        return os.readlink(os.path.join(path, rundir.claim_name(part)))
    # Parts share the directory: a job that is no other part's, and not a small one.
    known = {run_files.bare(job) for job in run_files.ids(path).values()}
    scheduler = elsewhere.agent_of(agent, path).scheduler
    rows = [row for row in scheduler.status([]) if row.work_dir == path]
    found = [r.job_id.partition("_")[0] for r in rows if not r.name.endswith(rundir.SMALL_JOBS)]
    return next((job for job in found if job not in known), "")
