"""What keys speak of and the job finds for itself: live files, and what its imports have made."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm.content.origins import Origins
from slurm.content.places import Place, content_at, home_folder
from slurm.content.unseen import Unseen
from slurm.content.values import Digest
from slurm.rundir.stamps import Stamp


@dataclass(frozen=True)
class Premises:
    """The files that the job reads where they lie, and the content of places in its modules."""

    files: Mapping[str, Stamp] = field(default_factory=dict)
    values: Mapping[Place, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return repr((sorted(self.files.items()), sorted(map(str, self.values.items()))))

    def joined(self, other: Premises) -> Premises:
        """Both."""
        return Premises({**self.files, **other.files}, {**self.values, **other.values})


def encode_values(values: Mapping[Place, str]) -> bytes:
    """Places and what the client found there, as a file of a run."""
    return json.dumps([[*place, digest] for place, digest in values.items()]).encode()


class Comparison:
    """Compares what this process has imported with what the client had when it made the keys."""

    def __init__(self, data: bytes) -> None:
        self._waiting: dict[str, list[tuple[Place, str]]] = {}
        self._looked: list[tuple[Place, str, Any]] = []
        for module, name, how, fields, digest in json.loads(data):
            place = Place(module, name, how, None if fields is None else tuple(fields))
            self._waiting.setdefault(module, []).append((place, digest))
        #: The first place that is another one here, and why.
        self.differs = ""

    def look(self, again: bool = False) -> str:
        """Look at what was imported since the last time; `again`: at what has been replaced, too.

        The place that differs from what the client saw; "" if none does.
        """
        for module in list(self._waiting.keys() & sys.modules.keys()):
            for place, digest in self._waiting.pop(module):
                self._compare(place, digest)
                self._looked.append((place, digest, _held(place)))
        for place, digest, held in self._looked if again else ():
            if _held(place) is not held:
                self._compare(place, digest)
        return self.differs

    def _compare(self, place: Place, expected: str) -> None:
        loaded = sys.modules[place.module]
        digest = Digest(Origins(), home=home_folder(loaded))
        try:
            found = digest.of(content_at(loaded, place))
        except Unseen as unseen:
            self.differs = self.differs or f"{place} cannot be seen here ({unseen})"
        else:
            if found != expected or digest.jobs:
                self.differs = self.differs or f"{place} is another value here"


def _held(place: Place) -> Any:
    return vars(sys.modules[place.module]).get(place.name.partition(".")[0])


def all_of(premises: Iterable[Premises]) -> Premises:
    """Those of several calls as one."""
    found = Premises()
    for one in premises:
        found = found.joined(one)
    return found
