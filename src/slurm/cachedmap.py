"""A map of a cached task: only those of its calls go out whose values are not there yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm.array import ArrayJob
from slurm.cache import Found, find, finished, keys_of_calls
from slurm.job import Job
from slurm.model.packs import Pack
from slurm.packed import PackedArray, Place
from slurm.packed_run import VALUE, PackedRun
from slurm.recall import call_content, name_call, recall_each, recall_places, target_name
from slurm.runner.values import loads

if TYPE_CHECKING:
    from slurm.packaging.arguments import Call
    from slurm.submission import Code, Submitter


def cached_map(
    submitter: Submitter[..., Any],
    calls: Sequence[Call],
    throttle: object,
    common: Mapping[str, Any],
    pack: int | str | None,
) -> ArrayJob[Any]:
    """The handle of all calls, in their order: of those that were made before and of new ones."""
    code = submitter.ship_function()
    names = _names(submitter, calls, common, "" if pack is None else "packed ", code)
    if pack is not None and calls:
        return _packed(submitter, calls, throttle, common, pack, names, code)
    cluster = submitter.cluster
    jobs: dict[int, Job[Any]] = recall_each(cluster, names)
    left = [n for n in range(len(calls)) if n not in jobs]
    if left or not calls:
        chosen, own = [calls[n] for n in left], [names[n] for n in left] if names else []
        sent = submitter.send_cached(chosen, throttle, common, array=True, names=own, code=code)
        jobs.update(zip(left, sent, strict=True))
    ordered = [jobs[n] for n in range(len(calls))]
    new = next((job for job in ordered if not job.cached), ordered[0])
    return ArrayJob(cluster, new.run, submitter.task.name, ordered)


def _names(
    submitter: Submitter[..., Any],
    calls: Sequence[Call],
    common: Mapping[str, Any],
    how: str,
    code: Code,
) -> list[str]:
    """The names of the calls in the workflow around them: which of them go out may change."""
    cluster = submitter.cluster
    if cluster._journal is None or not calls:
        return []
    code, arguments = submitter.ship(calls, common, array=True, code=code)
    target = how + target_name(submitter.task.unwrapped, code.function.target)
    content = [
        call_content([call], common, (blob, *arguments.shared))
        for call, blob in zip(calls, arguments.blobs, strict=True)
    ]
    named = [name_call(cluster, target, one) for one in content]
    return [name for name in named if name is not None]


def _packed(
    submitter: Submitter[..., Any],
    calls: Sequence[Call],
    throttle: object,
    common: Mapping[str, Any],
    pack: int | str,
    names: Sequence[str],
    code: Code,
) -> PackedArray[Any]:
    cluster = submitter.cluster
    places: dict[int, Place] = recall_places(cluster, names)
    open_ = [n for n in range(len(calls)) if n not in places]
    asked = [calls[n] for n in open_]
    made, premises = keys_of_calls(submitter, asked, common, code.prepared)
    keys = dict(zip(open_, made, strict=True))
    values = find(cluster, list(keys.values()))
    found = FoundItems(cluster, submitter.task.name, list(values.values()))
    places.update({open_[at]: (found, n) for n, at in enumerate(values)})
    left = [n for n in open_ if n not in places]
    if left:
        shipped = submitter.ship([calls[n] for n in left], common, array=True, code=code)
        plan = submitter.plan_shipped(shipped, throttle, array=True, pack=pack)
        plan = replace(plan, keys=tuple(keys[n] for n in left), premises=premises)
        packed = submitter.send(plan, names=[names[n] for n in left] if names else ())[0].packed
        packed.keys = plan.keys
        places.update({n: (packed, at) for at, n in enumerate(left)})
    main = places[left[0]][0] if left else places[0][0]
    return PackedArray(main, [places[n] for n in range(len(calls))])


class FoundItems(PackedRun):
    """The items of a packed map whose values were there before; no job works on them."""

    def __init__(self, cluster: Any, name: str, found: Sequence[Found]) -> None:
        size = len(found)
        super().__init__(cluster, found[0].run if found else "", name, Pack(size, size, 1, 1, ""))
        self._found = found
        self._jobs: dict[int, Job[Any]] = {}
        self.states = bytearray([VALUE]) * size
        self.order.extend(range(size))
        self.good = size

    def item(self, index: int) -> Any:
        """The finished job of an item; the same object each time."""
        if index not in self._jobs:
            self._jobs[index] = finished(self.cluster, self._found[index])
        return self._jobs[index]

    def value(self, index: int) -> Any:
        """The value of an item."""
        record = self._found[index].record
        if record.header.get("file") is not None:
            return self.item(index).result()
        return loads(record.payload)

    def place(self, index: int) -> tuple[str, int]:
        """Where the value lies: another run than that of the items that are new."""
        found = self._found[index]
        return found.run, found.record.index
