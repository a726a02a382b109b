"""The outcomes of a packed run on the client: kept as they were written, one place for all."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from slurm import errors, locks, rundir
from slurm.api.backend import Backend
from slurm.job import Job
from slurm.model.packs import Pack
from slurm.model.states import JobState
from slurm.outcome import Verdict
from slurm.rundir import Record
from slurm.runner import batches
from slurm.runner.values import loads

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.packed import PackedArray

T = TypeVar("T")

#: The state of an item.
OPEN, VALUE, FAILED = 0, 1, 2
_NOWHERE = -1


class PackJob(Job[Any]):
    """One job of a packed map: an element of its array, which works on many items."""

    packed: PackedRun

    def jobs_of_it(self) -> set[str]:
        """The ids of all jobs that worked on its items: it may have been retried."""
        before = [one.job_id for one in self.again.attempts] if self.again is not None else []
        return {job_id.partition("_")[0] for job_id in (self.bare, *before)}

    def settle(self, verdict: Verdict) -> None:
        """End the future, and with it every item that has no outcome of its own."""
        super().settle(verdict)
        self.packed.end(self, verdict)


class ItemJob(Job[T]):
    """One item of a packed map as a job; made when it is asked for.

    Id, node, times and logs are those of the job that works on it, together with others.
    """

    def __init__(self, packed: PackedRun, index: int) -> None:
        self._pack = pack = packed.pack_of(index)
        super().__init__(
            packed.cluster,
            run=packed.run,
            job_id=None,
            name=pack.name,
            options=pack.options,
            submitted=pack.submitted,
            index=index,
            part=pack.part,
            dependency=pack.dependent,
        )
        self.key = pack.key

    @property
    def carrier(self) -> Job[Any]:
        """The job that works on this item."""
        return self._pack

    @property
    def id(self) -> str:
        """The id of the job that works on this item."""
        return self._pack.id

    @property
    def bare(self) -> str:
        """The same without the name of a cluster."""
        return self._pack.bare

    def watch(self) -> None:
        """See to it that the job that works on this item is watched."""
        self._pack.watch()
        self.key = self._pack.key

    @property
    def attended(self) -> bool:
        """Whether the job that works on this item is watched in this process."""
        return self._pack.attended

    def _look(self) -> None:
        if not self.settled:
            self._pack._look()
            self._hear_out()

    def cancel(self, *, children: bool = True) -> bool:
        """Cancel the job that works on this item, if no other item of it is open."""
        if self.settled:
            return self.cancelled()
        from slurm.packed import PackedArray

        packed = self._pack.packed
        return bool(PackedArray(packed, [(packed, self.index)]).cancel())

    @property
    def state(self) -> JobState:
        """The item's own outcome, else the state of the job that works on it."""
        return super().state if self._verdict is not None else self._pack.state

    @property
    def reason(self) -> str:
        """Why the job that works on it waits or ended."""
        return self._pack.reason

    @property
    def node(self) -> str | None:
        """The node of the job that works on it."""
        return self._pack.node

    def requeue(self) -> None:
        """Put the job that works on it back into the queue; items with an outcome keep it."""
        self._pack.requeue()


class PackedRun:
    """All outcomes of one packed run, kept as they were written and unpickled when asked for."""

    def __init__(self, cluster: Cluster, run: str, name: str, pack: Pack) -> None:
        self.cluster = cluster
        self.run = run
        self.name = name
        self.pack = pack
        self.packs: list[PackJob] = []
        #: What each pack that is over said of itself: items, seconds, workers.
        self.reports: dict[int, dict[str, Any]] = {}
        self.changed = locks.condition("packed")
        self.states = bytearray(pack.items)
        self.order = array("Q")  # the items in the order in which they ended
        self.good = 0
        # The bytes of all items that came in batches, one after the other; of each where it
        # begins, its word, and in whose record it came: a million items are a few numbers each.
        self._bytes = bytearray()
        self._where = array("q", [_NOWHERE]) * pack.items
        self._words = array("I", [0]) * pack.items
        self._writer = array("I", [0]) * pack.items
        self._writers: dict[tuple[str, int, str], int] = {}
        self._written: list[Record] = []
        self._alone: dict[int, Record] = {}
        self._fates: dict[int, tuple[Verdict, Record | None]] = {}
        self._items: dict[int, ItemJob[Any]] = {}
        #: Under which keys the values are cached.
        self.keys: Sequence[str | None] = ()
        self._listeners: list[Callable[[], None]] = []
        # Items that ended and were not told yet, and whether those that listen have to hear it.
        self._untold: list[ItemJob[Any]] = []
        self._news = False

    # ---- what comes in --------------------------------------------------------------------------

    def whole(self, records: Iterable[Record]) -> list[Record]:
        """The same records, those of batches with their payload where it lies in a file."""
        found = []
        for record in records:
            name = record.header.get("file") if record.kind == batches.BATCH else None
            if name is not None:
                try:
                    data = self.cluster.backend.read_value(self.run, str(name))
                    record = record._replace(payload=rundir.checked_payload(record, data))
                except (errors.SlurmError, ValueError, KeyError):
                    continue
            found.append(record)
        return found

    def take(self, record: Record) -> Record | None:
        """Take in a record of this run; gives back what is about a pack itself."""
        if record.kind == batches.PACK:
            if record.job == self.packs[record.index].bare.partition("_")[0]:
                self.reports[record.index] = record.header
            return record._replace(kind=str(record.header.get("outcome")))
        if not 0 <= record.index < self.pack.items:
            return None
        if record.job not in self.pack_of(record.index).jobs_of_it():
            return None
        if record.kind == batches.BATCH:
            with contextlib.suppress(errors.SlurmError, ValueError, KeyError):
                self._add(record)
            return None
        # A value that is too large for a batch.
        self._alone.setdefault(record.index, record)
        self._note([(record.index, VALUE if record.kind == rundir.VALUE else FAILED)])
        return None

    def _add(self, record: Record) -> None:
        batch = batches.decode_batch(record)
        writer = (record.job, record.attempt, str(record.header.get("python", "?")))
        number = self._writers.setdefault(writer, len(self._writers))
        if number == len(self._written):
            self._written.append(record._replace(payload=b""))
        news = []
        start = len(self._bytes)
        self._bytes += batch.data
        for index, word in enumerate(batch.words, batch.first):
            # The first outcome is final; what lies elsewhere has a record of its own.
            if not word & batches.ELSEWHERE and self.states[index] == OPEN:
                self._where[index] = start
                self._words[index] = word
                self._writer[index] = number
                news.append((index, FAILED if word & batches.TROUBLE else VALUE))
            start += word & batches.LENGTH
        self._note(news)

    def end(self, job: PackJob, verdict: Verdict) -> None:
        """A pack is over: its items without an outcome share its fate."""
        report = self.reports.get(job.index, {})
        fate: tuple[Verdict, Record | None] = (verdict, None)
        if verdict is Verdict.RAISED and report.get("rest"):
            fate = (verdict, job.evidence.trouble())
        elif verdict in (Verdict.VALUE, Verdict.RAISED):
            fate = (Verdict.RESULT_LOST, None)
        self._fates[job.index] = fate
        items = self.pack.items_of(job.index)
        self._note([(index, FAILED) for index in items if self.states[index] == OPEN])
        self.tell()

    def _note(self, news: Iterable[tuple[int, int]]) -> None:
        with self.changed:
            for index, state in news:
                if self.states[index] == OPEN:
                    self.states[index] = state
                    self.good += state == VALUE
                    self.order.append(index)
                    self._news = True
                    item = self._items.get(index)
                    if item is not None:
                        item.ending = True
                        self._untold.append(item)
            self.changed.notify_all()

    def tell(self) -> None:
        """End the futures of items that were noted, and let others know; holds no lock."""
        with self.changed:
            made, self._untold = self._untold, []
            listeners = list(self._listeners) if self._news else []
            self._news = False
        for item in made:
            self._settle(item)
        for listener in listeners:
            listener()

    # ---- what goes out --------------------------------------------------------------------------

    def pack_of(self, index: int) -> PackJob:
        """The job that works on an item."""
        return self.packs[index // self.pack.size]

    def item(self, index: int) -> ItemJob[Any]:
        """The job of an item; the same object each time."""
        with self.changed:
            item = self._items.get(index)
            if item is not None:
                return item
            item = self._items[index] = ItemJob(self, index)
            item.cache_key = self.keys[index] if self.keys else None
            over = item.ending = self.states[index] != OPEN
        if over:
            self._settle(item)
        return item

    def _settle(self, item: ItemJob[Any]) -> None:
        """End an item's future with what is known of it."""
        pack, index = self.pack_of(item.index), item.index
        record = self.outcome(index)
        if record is not None:
            item.evidence.records.append(record)
            # Of this attempt alone: a later one, after a requeue, leaves the outcome as it is.
            begins = pack.evidence.begins.items()
            item.evidence.begins.update((n, begin) for n, begin in begins if n == record.attempt)
            verdicts = {rundir.VALUE: Verdict.VALUE, rundir.EXIT: Verdict.EXITED}
            item.settle(verdicts.get(record.kind, Verdict.RAISED))
            return
        verdict, record = self._fates[pack.index]
        item.evidence = replace(pack.evidence, records=[] if record is None else [record])
        item.notes.untrusted = pack.notes.untrusted
        item.settle(verdict)

    def outcome(self, index: int) -> Record | None:
        """What was written about an item; None where its pack ended without a word about it."""
        if self._where[index] == _NOWHERE:
            return self._alone.get(index)
        batch, word = self._written[self._writer[index]], self._words[index]
        return batches.item_outcome(batch, index, word, self._data(index))

    def _data(self, index: int) -> bytes:
        where = self._where[index]
        return bytes(self._bytes[where : where + (self._words[index] & batches.LENGTH)])

    def place(self, index: int) -> tuple[str, int]:
        """The run and the index of an item, for those who read its value on the cluster."""
        return self.run, index

    def value(self, index: int) -> Any:
        """The value of an item that has one; quick for those in batches."""
        if self._where[index] == _NOWHERE or not isinstance(self.cluster.backend, Backend):
            return self.item(index).result()
        try:
            return loads(self._data(index))
        except Exception:  # noqa: BLE001 - the slow way says what is wrong, with name and job
            return self.item(index).result()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this after each change; it must neither wait nor ask."""
        with self.changed:
            self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        with self.changed:
            self._listeners.remove(listener)

    def array(self) -> PackedArray[Any]:
        """All items behind one handle."""
        from slurm.packed import PackedArray

        return PackedArray(self, _AllItems(self))


class _AllItems(Sequence[tuple[PackedRun, int]]):
    """Where all items of a run lie; made as it is asked for, since there may be a million."""

    def __init__(self, packed: PackedRun) -> None:
        self._packed = packed
        self._numbers = range(packed.pack.items)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> tuple[PackedRun, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[PackedRun, int]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [(self._packed, number) for number in self._numbers[index]]
        return self._packed, self._numbers[index]


def make_packs(
    cluster: Cluster, run: str, metadata: dict[str, Any], jobs: Sequence[Job[Any]]
) -> list[Job[Any]]:
    """The jobs of a packed run, with the place where the outcomes of their items come together.

    A run that this process watches already keeps its place and its jobs.
    """
    packed = cluster._watcher.packed_run(run)
    if packed is None:
        packed = PackedRun(cluster, run, str(metadata.get("task", run)), Pack(*metadata["pack"]))
        for job in jobs:
            assert isinstance(job, PackJob)
            job.packed = packed
            packed.packs.append(job)
    return list(packed.packs)
