"""Loads a call's arguments; a Job among them is replaced by its value, read on the cluster."""

from __future__ import annotations

import _pickle
import io
import os

from slurm import rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple


class UpstreamResult(Exception):
    """The result of an upstream job cannot be read here."""

    run = ""
    index = 0
    #: Calls that a workflow returned and that have no value yet.
    returned = ()  # type: Tuple[Tuple[str, int], ...]


class _Values:
    """The values of upstream runs; each run's segments are read once, however many are wanted."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._runs = {}  # type: Dict[str, Dict[int, rundir.Record]]

    def get(self, run: str, index: int) -> Any:
        path = os.path.join(self._base, run)
        found = self.ready(run, index)
        return _Unpickler(rundir.load_payload(path, found), path, self).load()

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
            raise lacking
        return found

    def find(self, run: str, index: int) -> rundir.Record:
        path = os.path.join(self._base, run)
        if run not in self._runs:
            from slurm.runner.batches import item_records

            values = [
                record
                for record in item_records(path)
                if record.kind == rundir.VALUE and record.rank == 0 and not record.header.get("oom")
            ]
            # The first value of a call is final.
            self._runs[run] = {record.index: record for record in reversed(values)}
        found = self._runs[run].get(index)
        if found is None:
            error = UpstreamResult(f"{run} has no value for call {index}: it did not succeed")
            error.run, error.index = run, index
            raise error
        return found


class _Unpickler(_pickle.Unpickler):
    def __init__(self, data: bytes, run: str, values: _Values) -> None:
        super().__init__(io.BytesIO(data))
        self._run = run
        self._values = values

    def persistent_load(self, pid: Any) -> Any:
        kind = pid[0]
        if kind == "check":
            for index in range(pid[2], pid[3]):
                self._values.ready(pid[1], index)
            return None
        if kind == "job":
            return self._values.get(pid[1], pid[2])
        if kind == "array":
            return [self._values.get(run, index) for run, index in pid[1]]
        if kind == "shared":
            return _shared(self._run, pid[1], self._values)
        raise _pickle.UnpicklingError(f"unknown reference {kind!r} in the arguments")


_cache = {}  # type: Dict[Tuple[str, int], Any]


def _shared(run: str, number: int, values: _Values) -> Any:
    """An object that many calls of a map share; unpickled once per process."""
    key = (run, number)
    if key not in _cache:
        blob = rundir.read_arguments(run, number, rundir.SHARED)
        _cache[key] = _Unpickler(blob, run, values).load()[0]
    return _cache[key]


def load_arguments(blob: bytes, run: str, base: str) -> Tuple[List[Any], Dict[str, Any]]:
    """Positional and keyword arguments of one call."""
    loaded = _Unpickler(blob, run, _Values(base)).load()
    return loaded[0], loaded[1]


def argument_loader(run: str, base: str) -> Callable[[bytes], Tuple[List[Any], Dict[str, Any]]]:
    """What loads the arguments of many calls; each upstream run is read once for all of them."""
    values = _Values(base)

    def load(blob: bytes) -> Tuple[List[Any], Dict[str, Any]]:
        loaded = _Unpickler(blob, run, values).load()
        return loaded[0], loaded[1]

    return load


def load_common(run: str, base: str) -> Dict[str, Any]:
    """The keyword arguments that all calls of a map have in common."""
    if not os.path.exists(os.path.join(run, rundir.SHARED)):
        return {}
    return dict(_shared(run, 0, _Values(base)))
