"""Loads a call's arguments; a Job among them is replaced by its value, read on the cluster."""

from __future__ import annotations

import os

from slurm import rundir
from slurm.runner.values import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple


class UpstreamResult(Exception):
    """The result of an upstream job cannot be read here."""

    run = ""
    index = 0
    #: The call whose value was asked for; `run` and `index` may be one that it returned.
    asked = ("", 0)
    #: The jobs to wait for, where they are known.
    jobs = ()  # type: Tuple[str, ...]
    #: Calls that a workflow returned and that have no value yet.
    returned = ()  # type: Tuple[Tuple[str, int], ...]


class Values:
    """The values of upstream runs; each run's segments are read once, however many are wanted."""

    def __init__(self, base: str) -> None:
        self._base = base
        group = os.environ.get("SLURM_SDK_GROUP", "")
        self._group = int(group) if group.isdigit() else None
        self._runs = {}  # type: Dict[str, Dict[int, rundir.Record]]

    def get(self, run: str, index: int) -> Any:
        """The value of a call."""
        path = os.path.join(self._base, run)
        found = self.ready(run, index)
        payload = rundir.load_payload(path, found, self._trusted(path))
        return _load(payload, path, self, update=False)

    def _trusted(self, path: str) -> Optional[int]:
        """The group whose members may have written a run: of those in this user's own base none."""
        own = os.path.normpath(path).startswith(os.path.normpath(self._base) + os.sep)
        return None if own else self._group

    def ready(self, run: str, index: int) -> rundir.Record:
        """The record of a value; all that a workflow returned must have theirs, too."""
        found = self.find(run, index)
        missing = []  # type: List[Tuple[str, int]]
        for below, spec in (found.header.get("waits") or {}).items():
            from slurm.model.ids import expand_array_spec

            for number in expand_array_spec(spec):
                try:
                    self.ready(below, number)
                except UpstreamResult as error:
                    missing += error.returned or [(error.run, error.index)]
        if missing:
            lacking = UpstreamResult("{} has no value for call {}".format(*missing[0]))
            (lacking.run, lacking.index), lacking.returned = missing[0], tuple(missing)
            lacking.asked = (run, index)
            raise lacking
        return found

    def failed(self, calls: Sequence[Tuple[str, str]]) -> None:
        """See to it that at least one of these calls has failed when all are over."""
        from slurm.model.ids import expand_array_spec
        from slurm.runner.behind import bringers
        from slurm.runner.run import LACKING, Refused

        while True:
            lacking = []  # type: List[UpstreamResult]
            for run, spec in calls:
                for index in expand_array_spec(spec):
                    try:
                        self.ready(run, index)
                    except UpstreamResult as error:
                        lacking.append(error)
            if not lacking:
                text = "what this waits for has succeeded: {}".format(calls[0][0])
                raise Refused("UpstreamFailed", text, LACKING)
            found = bringers(lacking)
            if None not in found:
                break
            self._runs.clear()  # a value has appeared meanwhile
        open_ = sorted({job for jobs in found for job in jobs or ()})
        if open_:
            waits = UpstreamResult("{} is not over".format(calls[0][0]))
            waits.jobs = tuple(open_)
            raise waits

    def find(self, run: str, index: int) -> rundir.Record:
        """The record of a value, whatever else belongs into it."""
        path = os.path.join(self._base, run)
        if run not in self._runs:
            from slurm.runner.batches import item_records

            values = [
                record
                for record in item_records(path, group=self._trusted(path))
                if record.kind == rundir.VALUE and record.rank == 0 and not record.header.get("oom")
            ]
            # The first value of a call is final.
            self._runs[run] = {record.index: record for record in reversed(values)}
        found = self._runs[run].get(index)
        if found is None:
            error = UpstreamResult(f"{run} has no value for call {index}: it did not succeed")
            (error.run, error.index) = error.asked = (run, index)
            raise error
        return found


#: What a run has apart from its calls, as it lies there, and those that nobody can change.
_parts = {}  # type: Dict[Tuple[str, int], Any]
_fixed = {}  # type: Dict[Tuple[str, int], Any]

_ATOMS = (int, float, complex, bool, str, bytes, type(None), type, range, type(os.path.join))


def _load(blob: Any, run: str, values: Values, update: bool = True) -> Any:
    made = {}  # type: Dict[int, Any]

    def find(pid: Any) -> Any:
        kind = pid[0]
        if kind == "check":
            for index in range(pid[2], pid[3]):
                values.ready(pid[1], index)
            return None
        if kind == "failed":
            return values.failed(pid[1])
        if kind == "job":
            return values.get(pid[1], pid[2])
        if kind == "array":
            return [values.get(run, index) for run, index in pid[1]]
        if kind == "shared":
            if pid[1] not in made:
                made[pid[1]] = _shared(run, pid[1], values)
            return made[pid[1]]
        raise ValueError(f"unknown reference {kind!r} in the arguments")

    return loads(blob, update, find)


def _shared(run: str, number: int, values: Values) -> Any:
    """An object that many calls of a map share: each gets it as it was sent, as in a job alone."""
    key = (run, number)
    if key in _fixed:
        return _fixed[key]
    if key not in _parts:
        _parts[key] = rundir.read_arguments(run, number, rundir.SHARED)
    value = _load(_parts[key], run, values)[0]
    if _is_fixed(value):
        _fixed[key] = value
    return value


def _is_fixed(value: Any) -> bool:
    """Whether no call can change a value, so that the next may have it too."""
    if type(value) in (tuple, frozenset):
        return all(_is_fixed(part) for part in value)
    return type(value) in _ATOMS


def load_arguments(blob: Any, run: str, base: str) -> Tuple[List[Any], Dict[str, Any]]:
    """Positional and keyword arguments of one call."""
    loaded = _load(blob, run, Values(base))
    return loaded[0], loaded[1]


def argument_loader(run: str, base: str) -> Callable[[Any], Tuple[List[Any], Dict[str, Any]]]:
    """What loads the arguments of many calls; each upstream run is read once for all of them."""
    values = Values(base)

    def load(blob: Any) -> Tuple[List[Any], Dict[str, Any]]:
        loaded = _load(blob, run, values)
        return loaded[0], loaded[1]

    return load


def load_common(run: str, base: str) -> Dict[str, Any]:
    """The keyword arguments that all calls of a map have in common."""
    return common_loader(run, base)()


def common_loader(run: str, base: str) -> Callable[[], Dict[str, Any]]:
    """What gives each call of a map the keyword arguments that all have in common."""
    if not os.path.exists(os.path.join(run, rundir.SHARED)):
        return dict
    values = Values(base)
    common = _shared(run, 0, values)
    if all(map(_is_fixed, common.values())):
        return lambda: common
    return lambda: _shared(run, 0, values)
