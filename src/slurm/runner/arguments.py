"""Loads a call's arguments; a Job among them is replaced by its value, read on the cluster."""

import io
import os
import pickle
from typing import Any, Dict, List, Tuple

from slurm import rundir


class UpstreamResult(Exception):
    """The result of an upstream job cannot be read here."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, base: str) -> None:
        super().__init__(io.BytesIO(data))
        self._base = base

    def persistent_load(self, pid: Any) -> Any:
        kind, run, index = pid
        if kind != "job":
            raise pickle.UnpicklingError(f"unknown reference {kind!r} in the arguments")
        return read_value(os.path.join(self._base, run), index)


def load_arguments(blob: bytes, base: str) -> Tuple[List[Any], Dict[str, Any]]:
    """Positional and keyword arguments of one call."""
    args, kwargs = _Unpickler(blob, base).load()
    return args, kwargs


def read_value(run: str, index: int) -> Any:
    """The value that a finished run recorded for call `index`."""
    for found in rundir.all_records(run):
        if found.index == index and found.rank == 0 and found.kind == rundir.VALUE:
            return pickle.loads(rundir.load_payload(run, found))
    raise UpstreamResult(f"{run} has no value for call {index}")
