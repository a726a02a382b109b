"""The packed map on the client: very many items behind one light handle."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

from slurm import errors
from slurm.array import ArrayJob, Progress
from slurm.donecalls import done_calls
from slurm.job import Job
from slurm.model.states import JobState
from slurm.packed_run import FAILED, OPEN, VALUE, PackedRun, PackJob
from slurm.waiters import checked_timeout

T = TypeVar("T")

#: An item and where it lies: the run it belongs to, and its index there.
Place = tuple[PackedRun, int]


class _Items(Sequence[Job[T]]):
    """The items of a handle as jobs, each made when it is asked for."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Job[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job[T]]: ...
    def __getitem__(self, index: int | slice) -> Job[T] | list[Job[T]]:
        if isinstance(index, slice):
            return [packed.item(number) for packed, number in self.places[index]]
        packed, number = self.places[index]
        return packed.item(number)


class PackedArray(ArrayJob[T]):
    """The items of a packed map, in their order: an `ArrayJob` that is light with 100,000 items.

    A `Job` is made for an item when it is asked for; `results()` and `progress` make none.
    """

    def __init__(self, packed: PackedRun, places: Sequence[Place]) -> None:
        super().__init__(packed.cluster, packed.run, packed.name, ())
        self._jobs = _Items(places)  # type: ignore[assignment]
        self._places = places
        self._packed = packed
        #: The runs these items belong to; several after `retry_failed`.
        self.runs = list({id(one): one for one, _ in places}.values())

    def _part(self, places: Sequence[Place]) -> PackedArray[T]:
        return PackedArray(self._packed, places)

    @overload
    def __getitem__(self, index: int) -> Job[T]: ...
    @overload
    def __getitem__(self, index: slice) -> PackedArray[T]: ...
    def __getitem__(self, index: int | slice) -> Job[T] | PackedArray[T]:
        if isinstance(index, slice):
            return self._part(self._places[index])
        return self._jobs[index]

    def __slurm_reference__(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """How this array stands in another call's arguments: as the list of its values."""
        return ("array", tuple(packed.place(index) for packed, index in self._places))

    @property
    def members(self) -> Sequence[Job[Any]]:
        """The jobs that work on these items, as the scheduler knows them."""
        found = {
            (packed.run, i // packed.pack.size): packed
            for packed, i in self._places
            if packed.packs
        }
        return [packed.packs[number] for (_, number), packed in found.items()]

    @property
    def awaited(self) -> Sequence[Job[Any]]:
        """The jobs that work on these items alone; of jobs with other items, too, the items."""
        found: list[Job[Any]] = []
        for packed in self.runs:
            if not packed.packs:
                continue  # their values are there
            size = packed.pack.size
            meant: dict[int, set[int]] = {}
            for one, i in self._places:
                if one is packed:
                    meant.setdefault(i // size, set()).add(i)
            for number, items in meant.items():
                whole = len(items) == len(packed.pack.items_of(number))
                found += [packed.packs[number]] if whole else map(packed.item, sorted(items))
        return found

    @property
    def rates(self) -> list[float]:
        """Calls per second of each job that is over, from when its workers were started."""
        reports = [report for packed in self.runs for report in packed.reports.values()]
        return [r["items"] / r["seconds"] for r in reports if r.get("seconds")]

    # ---- results --------------------------------------------------------------------------------

    def results(
        self,
        timeout: float | None = None,
        *,
        return_exceptions: bool = False,
        order: Literal["items", "completed"] = "items",
    ) -> list[T]:
        """All values; raises the first exception, or puts it in its place."""
        if order not in ("items", "completed"):
            return super().results(timeout, return_exceptions=return_exceptions, order=order)
        self._await_all(timeout)
        places = self._places if order == "items" else self._ended({}, set(self._places))
        values: list[Any] = []
        for packed, index in places:
            try:
                good = packed.states[index] == VALUE
                values.append(packed.value(index) if good else packed.item(index).result())
            except Exception as error:  # any, asked for as a value
                if not return_exceptions:
                    raise
                values.append(error)
        return values

    def as_completed(self, timeout: float | None = None) -> Iterator[Job[T]]:
        """The jobs of the items as they end."""
        seconds = checked_timeout(timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        self.watch()
        with self.cluster._waiting(), _Bell(self.runs) as bell:
            looked: dict[int, int] = {}
            wanted, seen = set(self._places), 0
            while seen < len(self):
                for packed, index in self._ended(looked, wanted):
                    seen += 1
                    yield packed.item(index)
                if seen < len(self) and not bell.wait(deadline):
                    self._late(timeout, seen)

    def _ended(self, looked: dict[int, int], wanted: set[Place]) -> list[Place]:
        """The places that ended since the last look at each run; `looked` remembers it."""
        news: list[Place] = []
        for packed in self.runs:
            start, end = looked.get(id(packed), 0), len(packed.order)
            news += [(packed, i) for i in packed.order[start:end] if (packed, i) in wanted]
            looked[id(packed)] = end
        return news

    def partial_results(self) -> dict[int, T]:
        """The values that are there now, by position; nothing is waited for."""
        self._refresh()
        return {
            position: packed.value(index)
            for position, (packed, index) in enumerate(self._places)
            if packed.states[index] == VALUE
        }

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all are over; True if all succeeded."""
        with contextlib.suppress(TimeoutError):
            self._await_all(timeout)
        return all(packed.states[index] == VALUE for packed, index in self._places)

    def _await_all(self, timeout: float | None) -> None:
        seconds = checked_timeout(timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        if not self._open():
            return
        self.watch()
        with self.cluster._waiting(), _Bell(self.runs) as bell:
            while left := self._open():
                if not bell.wait(deadline):
                    break
            # The files may tell more than was read of them so far.
            if left:
                with contextlib.suppress(errors.SlurmError, OSError):
                    self._refresh()
        if left := self._open():
            self._late(timeout, len(self) - left)

    def _late(self, timeout: float | None, done: int) -> None:
        raise TimeoutError(
            f"{done} of {len(self)} items of {self.name} are over after {timeout} s; the others "
            "go on, and can be waited for again"
        )

    def _open(self) -> int:
        if len(self._places) == self._packed.pack.items and len(self.runs) == 1:
            return len(self._places) - len(self._packed.order)
        return sum(packed.states[index] == OPEN for packed, index in self._places)

    def __await__(self) -> Generator[Any, None, list[T]]:
        """Await all values. A cancelled waiter never cancels the jobs."""
        import asyncio

        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not over.done() and not self._open():
                over.set_result(None)

        def changed() -> None:
            # A closed loop has nobody left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

        self.watch()
        with self.cluster._waiting(), _listening(self.runs, done_calls.ours(changed)):
            tell()
            yield from over.__await__()
        return self.results()

    # ---- what became of them --------------------------------------------------------------------

    def _refresh(self) -> None:
        self.watch()
        for packed in self.runs:
            self.cluster._watcher.refresh_run(packed.run)

    def done(self) -> bool:
        """Whether all are over."""
        self._refresh()
        return not self._open()

    @property
    def failed(self) -> PackedArray[T]:
        """Those that are over and have no value."""
        return self._part([(p, i) for p, i in self._places if p.states[i] == FAILED])

    @property
    def states(self) -> Counter[JobState]:
        """How many are in each state; open items are in that of the job that works on them."""
        self._refresh()
        return self.known_states()

    def known_states(self) -> Counter[JobState]:
        """The same as far as this process knows, without looking."""
        found: Counter[JobState] = Counter()
        packs: dict[int, JobState] = {}
        for packed, index in self._places:
            state = packed.states[index]
            if state == VALUE:
                found[JobState.COMPLETED] += 1
            elif state == FAILED:
                found[packed.item(index).state] += 1
            else:
                pack = packed.pack_of(index)
                if id(pack) not in packs:
                    packs[id(pack)] = pack.known_state
                found[packs[id(pack)]] += 1
        return found

    @property
    def progress(self) -> Progress:
        """How far it is."""
        self._refresh()
        counts = Counter(packed.states[index] for packed, index in self._places)
        done = counts[VALUE] + counts[FAILED]
        return Progress(len(self), done, counts[VALUE], counts[FAILED])

    # ---- requests -------------------------------------------------------------------------------

    def watch(self) -> None:
        """See to it that all are watched; after a fork by a new watcher."""
        for packed in self.runs:
            for job in packed.packs:
                job.watch()

    def cancel(self) -> int:
        """End the jobs whose open items all belong to this array or slice; how many items that is.

        An item shares its job with others: where some of them are not meant, the job goes on.
        """
        meant: dict[int, set[int]] = {}
        jobs: dict[int, PackJob] = {}
        for packed, index in self._places:
            if packed.states[index] == OPEN:
                job = packed.pack_of(index)
                jobs[id(job)] = job
                meant.setdefault(id(job), set()).add(index)
        chosen = []
        for key, job in jobs.items():
            items = job.packed.pack.items_of(job.index)
            if all(i in meant[key] for i in items if job.packed.states[i] == OPEN):
                chosen.append(job)
        if not chosen:
            return 0
        self.cluster.cancel(chosen)
        return sum(len(meant[id(job)]) for job in chosen)

    def retry_failed(self, **options: Any) -> PackedArray[T]:
        """Run those that failed again, packed as before, with other options.

        The new array has the same length and holds the earlier successes in their places.
        """
        from slurm.resubmission import resubmit

        places = list(self._places)
        fresh: PackedArray[T] | None = None
        for packed in self.runs:
            again = [n for n, (p, i) in enumerate(places) if p is packed and p.states[i] == FAILED]
            if not again:
                continue
            indexes = [places[n][1] for n in again]
            found = resubmit(self.cluster, packed.run, indexes, options, packed.pack.size)
            assert isinstance(found, PackedArray)
            fresh = found
            for n, place in zip(again, found._places, strict=True):
                places[n] = place
        return self if fresh is None else PackedArray(fresh._packed, places)

    def __repr__(self) -> str:
        return f"<PackedArray {self.name} of {len(self)}: {self.run}>"


class _Bell:
    """Rings when one of several runs changes."""

    def __init__(self, runs: Sequence[PackedRun]) -> None:
        self._runs = runs
        self._event = threading.Event()

    def __enter__(self) -> _Bell:
        for packed in self._runs:
            packed.listen(self._event.set)
        self._event.set()  # what came before counts, too
        return self

    def __exit__(self, *_: object) -> None:
        for packed in self._runs:
            packed.unlisten(self._event.set)

    def wait(self, deadline: float | None) -> bool:
        """Wait for a ring; False when time is up."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        rang = self._event.wait(left)
        self._event.clear()
        return rang


@contextlib.contextmanager
def _listening(runs: Sequence[PackedRun], listener: Callable[[], None]) -> Iterator[None]:
    for packed in runs:
        packed.listen(listener)
    try:
        yield
    finally:
        for packed in runs:
            packed.unlisten(listener)
