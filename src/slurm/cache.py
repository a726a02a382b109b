"""Caching: a call that was made before, with the same code and arguments, is not made again."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from slurm import errors, rundir
from slurm.callbacks.following import tell_completed
from slurm.content import Digest, Slices, Unseen
from slurm.content.began import is_newer_than_process
from slurm.content.captured import captured_code
from slurm.content.origins import OWN, Origins
from slurm.content.premises import Premises
from slurm.content.slices import Roots
from slurm.job import Job
from slurm.metadata import read_metadata
from slurm.model.parts import Part
from slurm.outcome import Verdict
from slurm.packaging import pickling
from slurm.packaging.arguments import Call, binder
from slurm.packaging.function import context_parameter
from slurm.packaging.none import python_version

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.packaging import Prepared
    from slurm.plan import Plan
    from slurm.rendering import Environment
    from slurm.rundir.stamps import Stamp
    from slurm.submission import Submitter

log = logging.getLogger("slurm")


#: What keys are made like; values under keys of another format are never found.
FORMAT = "slurm-sdk cache 3"
#: Options that change what a function finds around it; those before the mark, how many values come.
_RANKS = ("all_ranks", "launch", "nodes", "ntasks", "ntasks_per_node")
_AROUND = ("conda", "env", "export", "modules", "python", "setup", "venv", "workdir")

_said: set[str] = set()


#: Keys of calls, and what they speak of that may be another thing once the job runs.
Keyed = tuple[Sequence["str | None"], Premises]


class Draft(NamedTuple):
    """The key of a call, but for the keys of the jobs among its arguments."""

    text: str
    jobs: tuple[Any, ...]

    @property
    def key(self) -> str:
        """The key itself, once those jobs are submitted."""
        return _joined(self.text, *map(_refer, self.jobs))[: rundir.KEY_LENGTH]


def _refer(jobs: Any) -> str:
    each = jobs if isinstance(jobs, Iterable) else (jobs,)
    names = [job.cache_key or f"{job.run}:{job.index}" for job in each]
    return _joined(type(jobs).__name__, *names)


class Keys:
    """Makes the keys of calls of one task, from the code and the values as they are now."""

    def __init__(
        self, submitter: Submitter[..., Any], prepared: Prepared, here: bool = False
    ) -> None:
        self._submitter = submitter
        self._prepared = prepared
        self._environment = environment = prepared.environment
        self._function = submitter.task.unwrapped
        self._cache = submitter.options.get("cache")
        self._target = target_of(self._function)
        self._origins = Origins()
        try:
            place = environment.captured
            self._origins = Origins(captured_code(place) if place else None)
        except Unseen as unseen:
            self._origins = Origins()
            self._unseen: Unseen | None = unseen
        else:
            self._unseen = None
        shipped = environment.kind == "wheel"
        self._slices = Slices(self._origins, self._of_value, here, shipped)

    def drafts(self, calls: Sequence[Call], common: Mapping[str, Any]) -> list[Draft | None]:
        """The keys of calls; None for those of which something cannot be seen."""
        function = self._function
        try:
            with pickling(self._submitter.cluster, self._prepared):
                code, roots, jobs = self._of_code()
        except Unseen as unseen:
            self.say(unseen)
            return [None] * len(calls)
        bind = binder(function, context_parameter(function), common)
        found: list[Draft | None] = []
        for call in calls:
            if callable(self._cache):
                given = self._cache(*call.args, **{**common, **call.kwargs})
                found.append(Draft(_joined(code, _own_text(given, function)), ()))
                continue
            try:
                with pickling(self._submitter.cluster, self._prepared):
                    found.append(self._of_call(code, roots, jobs, bind, call))
            except Unseen as unseen:
                self.say(unseen)
                found.append(None)
        return found

    def _of_code(self) -> tuple[str, Roots, list[Any]]:
        """What the keys of all calls have in common; where the code enters imported modules."""
        options = self._submitter.options
        ranks = [f"{name}={options[name]!r}" for name in _RANKS if options.get(name)]
        home = home_of(self._function, self._environment)
        if callable(self._cache) or isinstance(self._cache, str):
            text = self._cache if isinstance(self._cache, str) else ""
            return _joined(FORMAT, self._target, home, text, *ranks), Roots(), []
        if self._unseen is not None:
            raise self._unseen
        _check_image(self._environment)
        digest = Digest(self._origins)
        environment = self._environment
        found = digest.of(self._function)
        documented = digest.with_docs()
        if documented is not None:
            digest, found = documented, documented.of(self._function)
        code = _joined(
            FORMAT,
            self._target,
            home,
            found,
            _python(environment.python),
            # What a way of packaging says of the code that it ships: a wheel, a snapshot, an image.
            environment.digest,
            *ranks,
            *(f"{name}={options[name]!r}" for name in _AROUND if options.get(name)),
        )
        return code, digest.roots, digest.jobs

    def _of_call(
        self, code: str, roots: Roots, jobs: list[Any], bind: Callable[[Call], Any], call: Call
    ) -> Draft:
        digest = Digest(self._origins)
        try:
            bound = bind(call)
        except TypeError:  # it does not fit, which is said where it is sent
            return Draft(code, ())
        arguments = _joined(*(f"{name} {digest.of_part(name, v)}" for name, v in _named(bound)))
        reached = ""
        if self._cache is True:
            reached = self._slices.of(roots.joined(digest.roots))
        return Draft(_joined(code, arguments, reached), (*jobs, *digest.jobs))

    def _of_value(self, value: Any, home: str) -> tuple[str, Roots, bool]:
        digest = Digest(self._origins, home=home)
        found = digest.of(value)
        if digest.jobs:
            raise Unseen("a job, whose value may be another one there")
        return found, digest.roots, digest.moves

    def say(self, unseen: Unseen) -> None:
        """Say once that calls are not cached, and why."""
        text = (
            f"calls of {self._target} are not cached, for a part of what they use cannot be seen: "
            f"{unseen}"
        )
        if text not in _said:
            _said.add(text)
            log.warning('%s; to cache them all the same, name the code: cache="v1"', text)

    @property
    def premises(self) -> Premises:
        """What the keys speak of and the job finds for itself: files, and what modules hold."""
        return Premises(self._live(), self._slices.values)

    def _live(self) -> dict[str, Stamp]:
        """The files that the keys speak of and that the job reads where they lie."""
        if self._submitter.cluster.backend.kind == "ssh":
            return {}
        shipped = self._origins.sources if self._environment.kind == "wheel" else set[str]()
        snapshot = self._environment.details.get("snapshot", {}).get("root")
        kept = f"{snapshot}{os.sep}" if snapshot else None
        return {
            path: stamp
            for path, stamp in self._origins.live.items()
            if path not in shipped and (kept is None or not os.path.realpath(path).startswith(kept))
        }

    @property
    def sources(self) -> set[str]:
        """The source files that the keys speak of."""
        return self._origins.sources


def _named(bound: Any) -> Iterable[tuple[str, Any]]:
    return bound.items() if isinstance(bound, Mapping) else [("arguments", bound)]


def _check_image(environment: Environment) -> None:
    """An image counts by what is in it, which its name alone does not say."""
    image = environment.details.get("image")
    if image is not None and "@sha256:" not in str(image):
        raise Unseen(
            f"the image {image} is known by its name only; write NAME@sha256:... to have it cached"
        )


def home_of(function: Callable[..., Any], environment: Environment) -> str:
    """Where a function was written: two projects may have modules and tasks of the same name."""
    module = sys.modules.get(str(getattr(function, "__module__", None)))
    if module is None or module.__name__ in ("__main__", "__mp_main__"):
        return _script(function)  # it travels by value, perhaps into this job
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or Origins().find(module.__name__).kind != OWN:
        return ""
    if environment.kind == "wheel":
        return str(environment.details.get("label", "")).rpartition(" ")[0]
    real = os.path.realpath(path)
    snapshot = environment.details.get("snapshot", {})
    for root in (snapshot.get("root"), *environment.needs):
        for whole in (str(root), os.path.join(os.environ.get("SLURM_SDK_BASE", "/"), str(root))):
            if root and real.startswith(whole + os.sep):
                return os.path.join(str(snapshot.get("root")), os.path.relpath(real, whole))
    return real


def keys_of_calls(
    submitter: Submitter[..., Any],
    calls: Sequence[Call],
    common: Mapping[str, Any],
    prepared: Prepared,
) -> Keyed:
    """The keys of calls that are submitted now, and what they speak of that may change."""
    if not submitter.options.get("cache"):
        return [None] * len(calls), Premises()
    keys = Keys(submitter, prepared)
    drafts = keys.drafts(calls, common)
    return [draft and draft.key for draft in drafts], keys.premises


def draft_of(
    submitter: Submitter[..., Any], call: Call, prepared: Prepared
) -> tuple[Draft | None, Premises]:
    """The key of a call that goes out later, and what it speaks of that may change."""
    if not submitter.options.get("cache"):
        return None, Premises()
    keys = Keys(submitter, prepared)
    return keys.drafts([call], {})[0], keys.premises


def keys_here(
    submitter: Submitter[..., Any], calls: Sequence[Call], common: Mapping[str, Any]
) -> list[str | None]:
    """The keys of calls that run in this process; none where its modules may be older than files.

    A program imports a module once: what was written to its file since does not run here.
    """
    if not submitter.options.get("cache"):
        return [None] * len(calls)
    keys = Keys(submitter, submitter.prepare(), here=True)
    drafts = keys.drafts(calls, common)
    newer = sorted(filter(is_newer_than_process, keys.sources))
    if newer and submitter.options.get("cache") is True:
        keys.say(Unseen(f"{newer[0]} was changed after this program began"))
        return [None] * len(calls)
    return [draft and draft.key for draft in drafts]


def submit_cached(
    submitter: Submitter[..., Any],
    keys: Sequence[str | None],
    premises: Premises,
    submit: Callable[[Sequence[int]], Plan],
    names: Sequence[str] = (),
    watch: bool = True,
) -> list[Job[Any]]:
    """The jobs of calls, in order: finished ones for known calls, new ones for the others.

    `submit` makes the plan of those that have to be made; `names` are theirs in a workflow.
    """
    hits = look_up(submitter.cluster, keys)
    missing = [position for position in range(len(keys)) if position not in hits]
    if missing or not keys:
        plan = replace(submit(missing), keys=tuple(keys[p] for p in missing), premises=premises)
        own = [names[position] for position in missing] if names else []
        for position, job in zip(missing, submitter.send(plan, watch, own), strict=True):
            job.cache_key = keys[position]
            hits[position] = job
    return [hits[position] for position in range(len(keys))]


class Found(NamedTuple):
    """A value that was computed before: its key, the run and the record it lies in."""

    key: str
    run: str
    record: rundir.Record
    metadata: dict[str, Any]


def find(cluster: Cluster, keys: Sequence[str | None]) -> dict[int, Found]:
    """Those of the values that are stored, by position; one round trip."""
    wanted = sorted({key for key in keys if key is not None})
    if not wanted:
        return {}
    found, metadata = cluster.backend.cache_lookup(wanted)
    known = {run: read_metadata(data) for run, data in metadata.items()}
    values = {}
    for position, key in enumerate(keys):
        if key is not None and key in found:
            run, data = found[key]
            record = rundir.decode_records(data)[0][0]
            values[position] = Found(key, run, record, known[run])
    return values


def look_up(cluster: Cluster, keys: Sequence[str | None]) -> dict[int, Job[Any]]:
    """The finished jobs of those calls whose values are stored, by position."""
    found = find(cluster, keys)
    return {position: finished(cluster, one) for position, one in found.items()}


def keys_file(keys: Sequence[str | None]) -> bytes:
    """The keys of a run's calls, for its runner: one line of the same length each."""
    return "".join(f"{key or '-' * rundir.KEY_LENGTH}\n" for key in keys).encode()


def finished(cluster: Cluster, found: Found) -> Job[Any]:
    """The job of a call whose value was there before."""
    key, run, record, metadata = found
    parts = [Part(*part) for part in metadata.get("parts") or ()]
    pack = metadata.get("pack")
    element = record.index // int(pack[0]) if pack else record.index
    holds = (p for p in parts if p.offset <= element < p.offset + p.size)
    job: Job[Any] = Job(
        cluster,
        run=run,
        job_id=None,
        name=str(metadata.get("task", run)),
        options=dict(metadata.get("options", {})),
        submitted=float(metadata.get("submitted", 0.0)),
        ranks=int(metadata.get("ranks", 1)),
        index=element,
        part=next(holds, None),
    )
    job.assign(record.job)  # the job that worked on it; in a packed map together with others
    job.index = record.index
    job.cached, job.cache_key = True, key
    job.evidence.records.append(record)
    job.settle(Verdict.VALUE)
    tell_completed(job)
    return job


def target_of(function: Callable[..., Any]) -> str:
    """The module and name of a function, as runs call it."""
    module = getattr(function, "__module__", None)
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def _script(function: Callable[..., Any]) -> str:
    """Whose `__main__` a function is of: every script has one."""
    code: Any = getattr(function, "__code__", None)
    if code is None:
        return ""
    if os.path.isfile(code.co_filename):
        return os.path.realpath(str(code.co_filename))
    # A cell of a notebook, whose name is another one in each process and for each text; `exec`.
    script: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(script or os.environ.get("JPY_SESSION_NAME") or os.getcwd())


def _python(python: str) -> str:
    here = sys.version_info[:2]
    found = here if python == sys.executable or "/" not in python else python_version(python)
    return python if found is None else "{}.{}".format(*found)


def _own_text(given: object, function: Callable[..., Any]) -> str:
    if isinstance(given, str) and given:
        return given
    raise errors.OptionError(
        f"cache= of {target_of(function)} returned {given!r}; a key is text that is not empty",
        hint="return text made of what the result depends on: lambda path: path",
    )


def _joined(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[: rundir.KEY_LENGTH]
