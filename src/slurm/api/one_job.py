"""One job of a run: submitted, its id written down, and found again where the id got lost.

Called by the agent where the scheduler is, so it keeps to Python 3.6.
"""

import contextlib
import os
from typing import Any, Dict

from slurm import rundir
from slurm.api import door, elsewhere, origin, run_files
from slurm.api.agent_error import AgentError
from slurm.api.slurm_environ import submission_env


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
