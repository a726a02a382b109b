"""The agent: every verb about runs and jobs, carried out where the scheduler and the files are.

On this machine it is called in process; over SSH the same file runs in the login node's Python.
So it takes and gives plain values only, needs the standard library, and keeps to Python 3.6.
"""

import contextlib
import copy
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from slurm import rundir
from slurm.api import (
    elsewhere,
    family,
    listing,
    one_job,
    origin,
    parts,
    retries,
    run_files,
    runtimes,
    shared_base,
    starting,
    upkeep,
    whole,
)
from slurm.api import slurm_commands as commands
from slurm.api.agent_error import AgentError
from slurm.api.run_files import part_ids
from slurm.runner import cache, inbox

#: One answer never carries more than this of a file.
READ_LIMIT = 8 << 20


class Agent:
    """The verbs, over one scheduler and one base directory."""

    def __init__(
        self,
        scheduler: Any,
        base: str,
        others: Optional[Callable[[origin.Origin], Sequence[Any]]] = None,
        trust_group: bool = False,
    ) -> None:
        self.scheduler = scheduler
        #: Below it lie the runs that may be read: the base, or a directory of a group.
        self.top = self.base = os.path.abspath(os.path.expanduser(base))
        #: The group whose members are trusted with theirs.
        self.group = None  # type: Optional[int]
        if trust_group:
            self.group = shared_base.group_of(self.top)
            self.base = shared_base.own_folder(self.top)
        #: Gives the schedulers that answer here, and may be the one that made a run.
        self.others = others

    def identify(self) -> Optional[origin.Origin]:
        """Which scheduler this is; None where it cannot say so."""
        return origin.of(self.scheduler)

    def hello(self) -> Dict[str, Any]:
        """What a client has to know before it can submit."""
        return {
            "base": self.base,
            "group": self.group,
            "scheduler": self.scheduler.kind,
            "host": os.uname().nodename,
            "user": rundir.user_name(os.getuid()).partition(" ")[0],
        }

    def path(self, run: str) -> str:
        """Where a run lies; only what is below the base."""
        path = os.path.normpath(os.path.join(self.base, run))
        if not path.startswith(self.base + os.sep):
            hint = f"if it is a run: Cluster(job_base_dir={os.path.dirname(path)!r}) has it"
            raise AgentError("not-found", f"{path!r} is not a run of {self.base}", hint=hint)
        return path

    def readable(self, run: str) -> str:
        """Where a run lies that is only read: with a trusted group also a colleague's."""
        path = os.path.normpath(os.path.join(self.base, run))
        if self.group is not None and path.startswith(self.top + os.sep):
            return path
        return self.path(run)

    def trusted(self, path: str) -> Optional[int]:
        """The group whose members may have written a run: nobody else writes in the own base."""
        return None if path.startswith(self.base + os.sep) else self.group

    def over(self, scheduler: Any) -> "Agent":
        """The same over another scheduler of this machine."""
        other = copy.copy(self)
        other.scheduler, other.others = scheduler, None
        return other

    # ---- submission -----------------------------------------------------------------------------

    def has_sdk(self, name: str) -> bool:
        """Whether this copy of the SDK lies here already."""
        path = os.path.join(self.base, rundir.BASE_SDK, name)
        with contextlib.suppress(OSError):
            os.utime(path)  # `slurm gc` sees that it is in use
        return whole.is_whole(path)

    def put_sdk(self, name: str, files: Dict[str, bytes]) -> None:
        """Put a copy of the SDK here, whole or not at all; two clients may do it at once.

        One that has lost files gets them back in place: jobs may be using the rest.
        """
        self.prepare_base()
        home = os.path.join(self.base, rundir.BASE_SDK)
        final = os.path.join(home, name)
        temporary = os.path.join(home, f".{name}.{os.getpid()}.{time.time()}")
        try:
            _put_files(final if os.path.isdir(final) else temporary, files)
            if os.path.isdir(temporary):
                os.rename(temporary, final)
        except OSError as error:
            parts.remove(temporary)
            if not self.has_sdk(name):
                raise AgentError("rundir", f"{home} cannot be written: {error.strerror}") from error

    def container_runtimes(self) -> Dict[str, str]:
        """What can run containers here."""
        return runtimes.find(self.scheduler.kind)

    def prepare_base(self) -> None:
        """Make the base directory and its own folders, and see to it that they are ours alone."""
        try:
            if self.group is not None:
                shared_base.make_own(self.base, self.group)
            rundir.make_private_folder(self.base)
            run_files.check_base(self.base)
            for name in (rundir.BASE_IDS, rundir.BASE_EVENTS, rundir.BASE_SDK):
                rundir.make_private_folder(os.path.join(self.base, name))
        except OSError as error:
            raise AgentError("rundir", f"{self.base} cannot be made: {error.strerror}") from error

    def submit(self, *submission: Any) -> List[str]:
        """Make a run directory and submit its parts; the ids of those that went out."""
        return parts.submit(self, *submission)

    def advance(self, run: str, turn: Optional[int] = None) -> Optional[str]:
        """Submit the next part of a long map; `turn`: by the small job that waited for it."""
        return parts.advance(self, run, turn)

    def order_step(
        self, allocation: str, job: str, run: str, files: Dict[str, bytes], order: Dict[str, Any]
    ) -> str:
        """Make a run directory and order it as a step of an allocation; returns the step's id."""
        path = self.path(run)
        parts.make_run(self, path, files)
        bare, _, cluster = job.partition(";")
        folder = inbox.inbox_folder(self.path(allocation), bare)
        step = "{}.{}".format(bare, inbox.put_order(folder, dict(order, run=run)))
        step += ";" + cluster if cluster else ""
        one_job.remember(self, path, 0, step)
        return step

    def append_calls(self, run: str, data: bytes, files: Dict[str, Any]) -> None:
        """Append calls to the inbox of a block of workers; large arguments lie there as files."""
        folder = inbox.inbox_folder(self.path(run), rundir.CALLS)
        try:
            rundir.make_private_folder(folder)
            for name, content in files.items():
                place = os.path.join(folder, os.path.basename(name))
                rundir.write_atomically(place, content, sync=False)
            rundir.append(os.path.join(folder, rundir.CALLS + ".seg"), data, sync=False)
        except OSError as error:
            raise AgentError("rundir", f"{folder} cannot be written: {error.strerror}") from error

    def tell_pilot(self, allocation: str, job: str, words: Sequence[str], text: str = "") -> None:
        """Leave words for the pilot of an allocation."""
        folder = inbox.inbox_folder(self.path(allocation), job.partition(";")[0])
        inbox.tell(folder, list(words), text)

    def stop_parts(self, run: str, spec: str) -> List[Tuple[int, str]]:
        """Cancel calls whose parts are not submitted yet; the ids of the parts that were meanwhile.

        Whoever submits a part looks for such calls once it has: one of both sees the other.
        """
        run_files.cancel_unsent(self.path(run), spec)
        return list(part_ids(self.path(run)).items())

    def resume(self, *submission: Any) -> List[Tuple[int, str]]:
        """Like `submit`, for a run that an earlier attempt may have submitted already."""
        return family.resume(self, *submission)

    def recall(self, run: str) -> Optional[List[Tuple[int, str]]]:
        """Go on with what an earlier attempt of a workflow began to submit; None: it did not."""
        return family.recall(self, run)

    def find_job(self, run: str, part: int = 0, keep: bool = True) -> Optional[str]:
        """The job of a run whose answer got lost: by its id, its claim, or its directory.

        With `keep` what was found is written down.
        """
        return parts.find_job(self, run, part, keep)

    # ---- status and requests --------------------------------------------------------------------

    def status(self, jobs: Sequence[Tuple[str, str, float]]) -> List[List[Any]]:
        """What the scheduler says about jobs, each given as (id, run, time of submission).

        Only rows whose work directory is the run are believed: after a crash of the controller
        the same id may name somebody else's job. Jobs that are not in the answer are unknown.
        """
        jobs = [one for one in jobs if "." not in one[0]]  # steps are not the scheduler's
        paths = {run: self.readable(run) for run in {run for _, run, _ in jobs}}
        wanted = {(job, paths[run]): since for job, run, since in jobs}
        found = self._in_queue(wanted) if wanted else {}
        missing = [key for key in wanted if key not in found]
        if missing:
            # Each scheduler answers for its own runs only.
            theirs, missing = elsewhere.apart(self, missing)
            for other, keys in theirs:
                asked = [(job, os.path.relpath(path, self.base), wanted[job, path])
                         for job, path in keys]  # fmt: skip
                found.update(elsewhere.status(other, asked, keys))
        if missing and hasattr(self.scheduler, "accounting"):
            since = min(wanted[key] for key in missing) - 86400
            try:
                found.update(self._accounted(missing, since))
            except AgentError as error:
                for key in missing:
                    found[key] = commands.unanswered(key[0], key[1], error.message)
        return [list(row) for row in found.values()]

    def _in_queue(self, wanted: Dict[Tuple[str, str], float]) -> Dict[Tuple[str, str], Any]:
        """What the queue says of jobs, each given as (id, path); unknown ones are left out."""
        rows = commands.expand_rows(self.scheduler.status([job for job, _ in wanted]))
        found = {}  # type: Dict[Tuple[str, str], Any]
        whole = {}  # type: Dict[Tuple[str, str], Any]
        for row in rows:
            if (row.job_id, row.work_dir) in wanted:
                found[(row.job_id, row.work_dir)] = row
            whole[(row.job_id, row.work_dir)] = row
        for job, path in wanted:
            # The rest of an array that was cancelled before it began is listed under its bare id.
            rest = whole.get((job.partition("_")[0], path))
            if (job, path) not in found and rest is not None:
                found[(job, path)] = rest._replace(job_id=job)
        return found

    def _accounted(self, jobs: Sequence[Tuple[str, str]], since: float) -> Dict[Any, Any]:
        """What accounting knows of jobs that the controller has forgotten."""
        by_name = {(job, commands.accounted_path(path)): (job, path) for job, path in jobs}
        found = {}  # type: Dict[Any, Any]
        ids = sorted({job.partition("_")[0] for job, _ in jobs})
        for row in commands.expand_rows(self.scheduler.accounting(ids, since)):
            key = by_name.get((row.job_id, row.work_dir))
            # A row that never ended is what the database kept of a job nobody has any more.
            if key is not None and row.end is not None:
                found[key] = row
        return found

    def request(self, verb: str, jobs: Sequence[Tuple[str, str]], *args: Any) -> List[str]:
        """Cancel, signal, requeue, hold or release those jobs that are ours; returns their ids."""
        if verb not in ("cancel", "signal", "requeue", "hold", "release"):
            raise AgentError("request", f"unknown request {verb!r}")
        wanted = {(job, self.path(run)): 0.0 for job, run in jobs}
        rows = commands.expand_rows(self.scheduler.status([job for job, _ in jobs]))
        ours = [row for row in rows if (row.job_id, row.work_dir) in wanted]
        known = {(row.job_id, row.work_dir) for row in ours}
        if verb != "requeue":
            ours = [row for row in ours if row.end is None]
        ids = [row.job_id for row in ours]
        if ids:
            getattr(self.scheduler, verb)(ids, *args)
        theirs, _ = elsewhere.apart(self, [key for key in wanted if key not in known])
        for other, keys in theirs:
            ids += elsewhere.request(self, other, verb, keys, *args)
        return ids

    def stop_workflow(self, run: str, index: int) -> None:
        """Let a workflow submit nothing more."""
        family.stop(self, run, index)

    def cancel_below(self, run: str, index: int) -> int:
        """Cancel every job below a workflow's run."""
        return family.cancel_below(self, run, index)

    def family(self, runs: Sequence[str]) -> List[Dict[str, Any]]:
        """These runs and all below them, as they lie in their directories."""
        return family.describe(self, runs)

    def list(self, what: str) -> Any:
        """The queue, nodes, partitions or limits of the cluster."""
        if what not in ("queue", "recent", "nodes", "partitions", "limits", "all_jobs"):
            raise AgentError("request", f"there is no list of {what!r}")
        if what == "recent":
            return [list(row) for row in commands.expand_rows(self.scheduler.status([]))]
        if what == "all_jobs" and not hasattr(self.scheduler, what):
            return listing.own_queue(self)
        found = getattr(self.scheduler, what)()
        return [list(row) for row in found] if what == "queue" else found

    def explain(self, job: str, run: str) -> Dict[str, Any]:
        """What the scheduler can say about why a job of a run waits."""
        other = elsewhere.agent_of(self, self.readable(run))
        if other is not self:
            return dict(other.explain(job, run))
        if not hasattr(self.scheduler, "explain"):
            return {"job": {}, "nodes": self.scheduler.nodes(), "queue": listing.waiting(self)}
        found = self.scheduler.explain(job.partition(";")[0])  # type: Dict[str, Any]
        if found["job"].get("WorkDir") != self.readable(run):
            return {"job": {}}  # the id names somebody else's job by now
        return found

    def accounting(self, jobs: Sequence[str], since: float) -> List[List[Any]]:
        """What accounting keeps of jobs, one row per attempt; nothing where there is none."""
        if not hasattr(self.scheduler, "accounting"):
            return []
        rows = commands.expand_rows(self.scheduler.accounting(jobs, since))
        return [list(row) for row in rows]

    def run(self, command: Sequence[str], timeout: float) -> List[Any]:
        """Run a program here, without a shell: its exit code and what it printed."""
        import subprocess

        try:
            done = starting.run(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=timeout,
                env=dict(os.environ, **getattr(self.scheduler, "own_env", {})),
            )
        except subprocess.TimeoutExpired:
            raise AgentError("request", f"{command[0]} did not end within {timeout} s") from None
        except OSError as error:
            raise AgentError("request", f"{command[0]} cannot be started: {error}") from error
        texts = (
            data[:READ_LIMIT].decode("utf-8", "replace") for data in (done.stdout, done.stderr)
        )
        return [done.returncode, *texts]

    def look(self, asked: Sequence[Sequence[str]], timeout: float) -> List[List[Any]]:
        """Run several of Slurm's commands that only look: code, output and errors of each."""
        found = getattr(self.scheduler, "look", None)
        if found is None:
            raise AgentError("missing", "this scheduler has none of Slurm's commands")
        return list(found(asked, timeout))

    # ---- files ----------------------------------------------------------------------------------

    def find_run(self, text: str) -> str:
        """The run of `last`, a name or its begin, a path or a job id, relative to the base."""
        return listing.find_run(self, text)

    def runs(self, after: str, sizes: Dict[str, int], limit: int) -> Dict[str, Any]:
        """The runs that are here, with what is new about them."""
        return listing.runs(self, after, sizes, limit)

    def run_states(self, jobs: Sequence[Tuple[str, str, float]]) -> Dict[str, Dict[str, Any]]:
        """What the scheduler says about whole runs."""
        return listing.states(self, jobs)

    def budget(self, account: str) -> List[Dict[str, Any]]:
        """The limits of an account with their use; nothing where there is no accounting."""
        found = getattr(self.scheduler, "budget", None)
        return found(account) if found is not None else []

    def usage(self, run: str, jobs: Sequence[str], since: float) -> Dict[str, Any]:
        """What a run's processes said they used, and what accounting says."""
        return upkeep.usage(self, run, jobs, since)

    def run_sizes(self, runs: Sequence[str]) -> Dict[str, int]:
        """The bytes that runs take on the disk."""
        return upkeep.sizes(self, runs)

    def remove_runs(self, runs: Sequence[str]) -> List[Tuple[str, str]]:
        """Remove runs that nothing needs any more; those that stay, each with the reason."""
        return upkeep.remove(self, runs)

    def check(self) -> Dict[str, Any]:
        """What a doctor wants to know about this machine."""
        return upkeep.check(self)

    def changes(self, seen: Optional[Dict[str, int]]) -> Tuple[Dict[str, int], List[str]]:
        """Which runs had an end since the sizes in `seen`, and the new sizes; None starts now."""
        folder = os.path.join(self.base, rundir.BASE_EVENTS)
        sizes = dict(seen or {})
        runs = []  # type: List[str]
        for name, data in rundir.grown(folder, sizes):
            events, used = rundir.decode_events(data)
            sizes[name] = sizes.get(name, 0) + used
            if seen is not None:
                runs += [event.fields.get("run", "") for event in events]
        return sizes, runs

    def read_run(
        self,
        run: str,
        seen: Dict[str, int],
        parts: bool = False,
        limit: int = -1,
        beats: bool = True,
    ) -> Dict[str, Any]:
        """What is new in a run: events as text, result segments as bytes, the beats, the ids.

        Of a segment at most `limit` bytes are read; `more` says that there are others. Each node
        has a beat, so they are left out (None) where nobody asks for them.
        """
        path = self.readable(run)
        answer = {"events": [], "segments": [], "untrusted": None}  # type: Dict[str, Any]
        sizes = dict(seen)
        for name, data in rundir.grown(os.path.join(path, rundir.EVENTS), seen, ".txt"):
            used = data.rfind(b"\n") + 1
            sizes[name] = seen.get(name, 0) + used
            answer["events"].append(data[:used])
        try:
            for name, data in rundir.new_records(path, seen, limit, self.trusted(path)):
                answer["more"] = answer.get("more") or len(data) == limit
                used = rundir.decode_records(data)[1]
                sizes[name] = seen.get(name, 0) + used
                answer["segments"].append(data[:used])
        except rundir.Untrusted as error:
            answer["untrusted"] = f"{error}; {error.fix}"
        except OSError as error:
            answer["missing"] = str(error)
        answer["beats"] = self._beats(path) if beats else None
        answer["parts"] = list(part_ids(path).items()) if parts else []
        answer["cancelled"] = run_files.cancelled(path) if parts else []
        answer["again"] = retries.progress(path) if parts else None
        answer["seen"] = sizes
        return answer

    def _beats(self, path: str) -> List[Tuple[str, str]]:
        found = rundir.grown(os.path.join(path, rundir.BEATS), {})
        return [(name, data.decode("utf-8", "replace")) for name, data in found]

    def retry(self, run: str, token: str) -> bool:
        """Judge a part of a run and submit what is due again; False while it is not over.

        A colleague's run is theirs to judge.
        """
        if self.trusted(self.readable(run)) is not None:
            return False
        return retries.judge(self, run, token) is not None

    def stop_retry(self, calls: Sequence[Tuple[str, int]]) -> None:
        """Retry these calls no more."""
        for run, index in calls:
            path = os.path.join(self.path(run), rundir.no_retry_name(index))
            # Where the run is gone, so is the policy by which it would be retried.
            with contextlib.suppress(FileNotFoundError):
                rundir.write_atomically(path, b"", sync=False)

    def cache_lookup(self, keys: Sequence[str]) -> Tuple[Dict[str, Any], Dict[str, bytes]]:
        """Where the values of calls lie that were made before, by cache key."""
        return cache.look_up(self.base, list(keys))

    def cache_clear(self, target: Optional[str]) -> int:
        """Forget all cached values, or those of one function."""
        return cache.clear(self.base, target)

    def read_value(self, run: str, name: str, offset: int = 0, limit: int = -1) -> bytes:
        """The bytes of a large value, or a piece of them; the client verifies their checksum."""
        path = self.readable(run)
        try:
            place = os.path.join(path, rundir.VALUES, name)
            with rundir.open_trusted(place, self.trusted(path)) as f:
                f.seek(offset)
                return f.read(limit)  # type: ignore[no-any-return]
        except rundir.Untrusted as error:
            raise AgentError("untrusted", str(error), [], error.fix) from error
        except OSError as error:
            text = f"the value {name} of {run} cannot be read: {error.strerror}"
            raise AgentError("unreadable", text) from error

    def read_own(self, run: str, name: str, offset: int = 0, limit: int = READ_LIMIT) -> bytes:
        """Bytes of a file of a run that is ours alone: what is run, imported or unpickled."""
        path = self.readable(run)
        group = self.trusted(path)
        return run_files.read_own(path, name, offset, min(limit, READ_LIMIT), group)

    def read(
        self, run: str, name: str, offset: int = 0, limit: int = READ_LIMIT, inside: bool = False
    ) -> bytes:
        """Bytes of a file of a run; a negative offset counts from the end.

        Logs may lie elsewhere, where the run's owner wanted them. `inside`: those are not read.
        """
        folder = self.readable(run)
        path = os.path.join(folder, name)
        try:
            with run_files.open_file(folder, name, inside) as f:
                if offset < 0:
                    f.seek(0, os.SEEK_END)
                    f.seek(max(0, f.tell() + offset))
                else:
                    f.seek(offset)
                return bytes(f.read(min(limit, READ_LIMIT)))
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise AgentError("not-found", f"{path} cannot be read: {error.strerror}") from error


def _put_files(folder: str, files: Dict[str, bytes]) -> None:
    """Write files into a folder, those that are not there or have another size, then their list."""
    for path, content in files.items():
        target = os.path.join(folder, path)
        if not os.path.isfile(target) or os.path.getsize(target) != len(content):
            rundir.make_private_folder(os.path.dirname(target))
            rundir.write_atomically(target, content, sync=False)
    whole.write_list(folder, [(path, len(content)) for path, content in files.items()])
