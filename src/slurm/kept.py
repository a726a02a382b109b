"""A call that is kept for later: whatever happens to its arguments meanwhile, it stays the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.job import Job
from slurm.packaging.arguments import Call, ship_arguments
from slurm.packaging.function import context_parameter
from slurm.recall import call_content
from slurm.returned import elements
from slurm.runner.values import loads

if TYPE_CHECKING:
    from slurm.submission import Code, Submitter

#: What cannot change between a call and its submission.
_FIXED = (int, float, complex, bool, type(None), str, bytes, Job)


class KeptCall:
    """The function and the arguments of a call as they were when it was made.

    `name_of` gives the name of a Job among the arguments. It is the same in each attempt of a
    workflow, whether that Job is submitted yet or not, and so is `content`.
    """

    def __init__(
        self,
        submitter: Submitter[..., Any],
        call: Call,
        code: Code,
        name_of: Callable[[Job[Any]], str],
    ) -> None:
        function = submitter.task.unwrapped
        self._call = call
        self._name_of = name_of
        self._named: dict[str, Any] = {}
        self.code = code
        self._shipped = ship_arguments(
            function, [call], context_parameter(function), refer=self._refer
        )
        #: The jobs whose values it needs.
        self.upstream: tuple[Job[Any], ...] = tuple(elements(self._shipped.upstream))

    def _refer(self, obj: Any) -> tuple[str, str]:
        name = self._name_of(obj) if isinstance(obj, Job) else repr(obj.__slurm_reference__())
        self._named[name] = obj
        return ("kept", name)

    @property
    def content(self) -> Sequence[rundir.Content]:
        """The bytes of the arguments, for telling calls apart."""
        shipped = (*self._shipped.blobs, *self._shipped.shared)
        return call_content([self._call], {}, shipped, self._refer)

    def call(self, large: dict[str, Any]) -> Call:
        """The call to be sent; `large` holds what several calls share, by content."""
        values = (*self._call.args, *self._call.kwargs.values())
        if all(isinstance(value, _FIXED) for value in values):
            return self._call
        args, kwargs, _ = self._load(rundir.joined(self._shipped.blobs[0]), large)
        return Call(tuple(args), kwargs)

    def _load(self, blob: bytes, large: dict[str, Any]) -> Any:
        def find(pid: Any) -> Any:
            if pid[0] == "kept":
                return self._named[pid[1]]
            shared = rundir.joined(self._shipped.shared[pid[1]])
            key = hashlib.blake2b(shared, digest_size=16).hexdigest()
            if key not in large:
                large[key] = self._load(shared, large)[0]
            return large[key]

        return loads(blob, find=find)
