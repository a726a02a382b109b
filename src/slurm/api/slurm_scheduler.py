"""Runs Slurm's own commands where they are installed: the scheduler behind `local` and `ssh`."""

import getpass
import os
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, TypeVar

from slurm.api import door, origin, reasons, unshared
from slurm.api import slurm_commands as commands
from slurm.api import slurm_environ as environ
from slurm.api import slurm_refusals as refusals
from slurm.api import slurm_site as site
from slurm.api.agent_error import AgentError
from slurm.api.slurm_commands import JobStatus
from slurm.api.slurm_rows import Question
from slurm.api.upkeep import count_call
from slurm.model.ids import collapse_array_spec

#: Slurm's commands retry by themselves for about a minute when the controller is away.
#: Where the queue is full sbatch itself tries for two minutes, and only then says so.
SUBMIT_TIMEOUT = 180
QUERY_TIMEOUT = 60


_NO_CONF = (
    "set SLURM_CONF to your cluster's slurm.conf, or run without Slurm: "
    'Cluster(backend_type="embedded")'
)


class ExecResult(NamedTuple):
    """What a command answered."""

    code: int
    stdout: str
    stderr: str


T = TypeVar("T")


class SlurmScheduler:
    """Slurm, by its command line. Every call is counted: `calls` is what a test can watch."""

    kind = "slurm"

    def __init__(self, conf: str = "") -> None:
        self.calls = 0
        #: Leads Slurm's commands to one of several clusters of this machine.
        self.own_env = {"SLURM_CONF": conf} if conf else {}
        self._origin = None  # type: Optional[origin.Origin]

    def identify(self) -> origin.Origin:
        """Which cluster this is: by its slurm.conf, else the controller is asked, once."""
        if self._origin is None:
            found = origin.of_conf(self.own_env.get("SLURM_CONF", ""))
            if found is None:
                answer = self._query(site.show_config_command()).stdout
                found = origin.of_settings(site.parse_config(answer))
            self._origin = found
        return self._origin

    def submit(self, script: str, env: Dict[str, str], cwd: str) -> str:
        """Submit a script; returns the job id."""
        self._refuse_unshared(script, env)
        done = self._run(commands.sbatch_command(script), SUBMIT_TIMEOUT, env=env, cwd=cwd)
        if done.code == 0:
            return commands.parse_sbatch(done.stdout)
        words = [line for line in done.stderr.splitlines() if line.strip()]
        if "configuration source" in done.stderr:
            raise AgentError("missing", "Slurm is installed here, but not set up", words, _NO_CONF)
        if refusals.is_unreachable(done.stderr):
            raise AgentError("unreachable", "the controller did not take the job", words)
        reason, hint = refusals.explain_sbatch_error(done.stderr)
        kind = "limit" if refusals.is_submit_limit(done.stderr) else "refused"
        raise AgentError(kind, reason, words, hint)

    def _refuse_unshared(self, script: str, env: Dict[str, str]) -> None:
        """No run is sent to where its files are not."""
        found = unshared.known(env)
        if found is None:
            return

        def expand(names: str) -> List[str]:
            return self._query(["scontrol", "show", "hostnames", names]).stdout.split()

        with open(script) as f:
            why = unshared.why_not(found, f.read(), env, expand)
        if why:
            hint = "leave it out, or name a partition whose hosts have that directory"
            raise AgentError("unshared", why, [], hint)

    def status(self, job_ids: Sequence[str]) -> List[JobStatus]:
        """All jobs of this user that the controller remembers, in one call."""
        return self._asked(commands.my_jobs())

    def accounting(self, job_ids: Sequence[str], since: float) -> List[JobStatus]:
        """What accounting knows of these jobs; nothing where there is no accounting."""
        question = commands.past_jobs(job_ids, since)
        done = self._run(question.command, QUERY_TIMEOUT)
        if done.code == 0:
            return question.read(done.stdout)
        if "storage is disabled" in done.stderr:
            return []
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise AgentError("unreachable", "accounting (slurmdbd) does not answer", words)

    def queue(self) -> List[JobStatus]:
        """The jobs of this user that have not ended."""
        rows = commands.expand_rows(self.status([]))
        return [row for row in rows if row.end is None]

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs."""
        self._request(commands.scancel_command(collapse(job_ids)))

    def signal(self, job_ids: Sequence[str], signal: int) -> None:
        """Send a signal to the batch shells of jobs; our script passes it on."""
        self._request(commands.scancel_command(collapse(job_ids), signal=str(signal), batch=True))

    def requeue(self, job_ids: Sequence[str]) -> None:
        """Put jobs back into the queue."""
        self._request(commands.requeue_command(job_ids))

    def hold(self, job_ids: Sequence[str]) -> None:
        """Keep pending jobs from starting."""
        self._request(commands.hold_command(job_ids))

    def release(self, job_ids: Sequence[str]) -> None:
        """Let held jobs start."""
        self._request(commands.release_command(job_ids))

    def nodes(self) -> List[Dict[str, Any]]:
        """The nodes, as dictionaries."""
        rows = site.parse_nodes(self._query(site.show_nodes_command()).stdout)
        return [dict(row._asdict()) for row in rows]

    def partitions(self) -> List[Dict[str, Any]]:
        """The partitions, as dictionaries."""
        rows = site.parse_partitions(self._query(site.sinfo_command()).stdout)
        return [dict(row._asdict()) for row in rows]

    def limits(self) -> Dict[str, Any]:
        """The settings of the controller that limit jobs."""
        found = dict(site.parse_config(self._query(site.show_config_command()).stdout))
        if site.limits_enforced(found):
            limit = self._submit_limit()
            if limit is not None:
                found["MaxSubmitJobs"] = str(limit)
        return found

    def _submit_limit(self) -> Optional[int]:
        """How many jobs this user may have queued, as far as accounting says so."""
        texts = []
        for command in site.submit_limits_commands(getpass.getuser()):
            done = self._run(command, QUERY_TIMEOUT)
            texts.append(done.stdout if done.code == 0 else "")
        return site.parse_submit_limit("\n".join(texts))

    def explain(self, job_id: str) -> Dict[str, Any]:
        """All that Slurm can say about why a job waits."""
        return reasons.facts(self._told, job_id)

    def budget(self, account: str) -> List[Dict[str, Any]]:
        """The limits of an account of this user's, "" for the default one, with their use."""
        return reasons.budget(self._told, getpass.getuser(), account)

    def used(self, job_ids: Sequence[str], since: float) -> List[Dict[str, Any]]:
        """What accounting says that jobs used, a row per job; nothing where there is none."""
        question = site.used(job_ids, since)
        return question.read(self._told(question.command))

    def _told(self, command: List[str]) -> str:
        """What a command printed; "" where it failed: an answer with a gap is better than none."""
        done = self._run(command, QUERY_TIMEOUT)
        if done.code != 0 and refusals.is_unreachable(done.stderr):
            raise AgentError("unreachable", f"{command[0]} did not answer", done.stderr.split("\n"))
        return done.stdout if done.code == 0 else ""

    def all_jobs(self) -> List[Dict[str, Any]]:
        """Every user's jobs that have not ended, as dictionaries."""
        return [dict(row._asdict()) for row in self._asked(site.all_jobs())]

    def look(self, asked: Sequence[Sequence[str]], timeout: float) -> List[List[Any]]:
        """Run commands that only look, in turn: of each its code and what it printed.

        Where nobody answers one of them it is the last: each would wait as long.
        """
        told = []  # type: List[List[Any]]
        # Times are asked for as seconds. Without a zone each of them costs a look at the file of
        # this machine's: with 40,000 jobs half of the work.
        env = dict(environ.command_env(os.environ), TZ="UTC0")
        for command in asked:
            if not site.only_looks(command):
                raise AgentError("request", f"{' '.join(command[:3])} does more than look")
            done = self._run(list(command), timeout, env)
            told.append(list(done))
            if done.code != 0 and refusals.is_unreachable(done.stderr):
                break
        return told

    def version(self) -> str:
        """The version of the commands, such as 22.05.8."""
        done = self._query(site.version_command())
        return "{}.{:02d}.{}".format(*site.parse_version(done.stdout))

    def _query(self, command: List[str]) -> ExecResult:
        done = self._run(command, QUERY_TIMEOUT)
        if done.code != 0:
            words = [line for line in done.stderr.splitlines() if line.strip()]
            hint = refusals.hint_without_configuration(done.stderr)
            raise AgentError("unreachable", f"{command[0]} did not answer", words, hint)
        return done

    def _asked(self, question: Question[T]) -> T:
        return question.read(self._query(question.command).stdout)

    def _request(self, command: List[str]) -> None:
        done = self._run(command, QUERY_TIMEOUT)
        if done.code != 0 and not refusals.is_unknown_job(done.stderr):
            words = [line for line in done.stderr.splitlines() if line.strip()]
            kind = "unreachable" if refusals.is_unreachable(done.stderr) else "request"
            raise AgentError(kind, f"{command[0]} was not carried out", words)

    def _run(
        self, command: List[str], timeout: float, env: Any = None, cwd: Any = None
    ) -> ExecResult:
        self.calls += 1
        count_call()
        env = dict(environ.command_env(os.environ) if env is None else env, **self.own_env)
        try:
            done = door.run(command, timeout, env, cwd)
        except subprocess.TimeoutExpired:
            text = f"{command[0]} did not answer within {timeout:.0f} s"
            raise AgentError("timeout", text) from None
        except OSError as error:
            raise AgentError("missing", f"{command[0]} cannot be started: {error}") from error
        return ExecResult(
            done.code,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "replace"),
        )


def collapse(ids: Sequence[str]) -> List[str]:
    """`["7_0", "7_1", "7_5", "9"]` as `["7_[0-1,5]", "9"]`: few words for many elements."""
    plain = [job for job in ids if "_" not in job]
    arrays = {}  # type: Dict[str, List[int]]
    for job in ids:
        if "_" in job:
            array, _, index = job.partition("_")
            arrays.setdefault(array, []).append(int(index))
    for array, indexes in arrays.items():
        spec = collapse_array_spec(indexes)
        plain.append(f"{array}_{spec}" if len(indexes) == 1 else f"{array}_[{spec}]")
    return plain
