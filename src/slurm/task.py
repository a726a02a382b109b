"""@task: a function that can run as a job."""

from __future__ import annotations

import functools
import os
import sys

TYPE_CHECKING = False
if not TYPE_CHECKING:
    # A job imports this file, and typing would take longer than all else that it does.
    P = T = Protocol = object

    def overload(function):
        """Overloads are for type checkers."""
        return function

    class _Typed:
        """What `Task[P, T]` needs when it runs."""

        __class_getitem__ = classmethod(type(list[int]))


if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

    from typing_extensions import Unpack

    from slurm.array import ArrayJob
    from slurm.context import JobContext
    from slurm.dependencies import Dependency
    from slurm.job import Job
    from slurm.model.options import TaskOptions
    from slurm.packaging.choose import Packaging, PackagingGiven

    P = ParamSpec("P")
    T = TypeVar("T")

    class _Typed(Generic[P, T]):
        """A class with the types of a function's parameters and of its value."""


class Task(_Typed[P, T]):
    """A function with options. Calling it inside `with Cluster(...)` submits it as a job."""

    __name__: str
    #: Whether the function submits other tasks from inside its job.
    is_workflow = False

    def __init__(
        self,
        function: Callable[P, T],
        options: dict[str, object] | None = None,
        packaging: PackagingGiven | None = None,
        conditions: tuple[Dependency, ...] = (),
    ) -> None:
        named = function
        if hasattr(type(function), "__getattr__"):
            from slurm.attributes import callable_of

            named = callable_of(function)  # it may answer to any name
        functools.update_wrapper(self, named)
        own = type(function).__name__
        self.__name__ = own if named is not function else str(getattr(function, "__name__", own))
        self._function = function
        self._given = options or {}
        self._checked: dict[str, object] | None = None
        self._packaging = packaging
        self.conditions = conditions
        if options and not _inside_a_job():
            self._check()

    @property
    def unwrapped(self) -> Callable[P, T]:
        """The function itself."""
        return self._function

    @property
    def options(self) -> dict[str, object]:
        """This task's own options, checked; a cluster's defaults come in at submission."""
        return dict(self._check())

    def _check(self) -> dict[str, object]:
        if self._checked is None:
            from slurm.model.options import normalize

            self._checked = normalize(self._given, where=f"@task of {self.__name__}")
        return self._checked

    @property
    def packaging(self) -> Packaging | None:
        """How this task's code gets to the node; None leaves it to the cluster."""
        if self._packaging is None:
            return None
        from slurm.packaging.choose import check_packaging

        return check_packaging(self._packaging, f"@task of {self.__name__}")

    @property
    def name(self) -> str:
        """What jobs of this task are called."""
        given = self._given.get("job_name") or self._given.get("name")
        return str(given or self.__name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        """Submit a call to the active cluster."""
        from slurm.cluster import active_cluster

        return active_cluster(self.name).submit(self)(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Task[..., T]:
        """A task that is a method: of an instance it is the task of the bound method."""
        if instance is None:
            return self
        bound = self._function.__get__(instance, owner)
        return type(self)(bound, self._given, self._packaging, self.conditions)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function here and now, as if it were not a task."""
        return self._function(*args, **kwargs)

    def with_options(
        self, *, packaging: PackagingGiven | None = None, **options: Unpack[TaskOptions]
    ) -> Task[P, T]:
        """The same task with other options; this one stays as it is."""
        from slurm.model.options import merge, normalize

        given = normalize(options, where=f"{self.name}.with_options")
        merged = merge(self._check(), given)
        # A None must go on to remove a default of the cluster, too.
        merged.update({k: None for k in (*self._check(), *given) if k not in merged})
        return type(self)(self._function, merged, packaging or self._packaging, self.conditions)

    def map(
        self,
        items: Iterable[Any],
        *,
        max_concurrent: int | None = None,
        common: Mapping[str, Any] | None = None,
        unpack: bool = True,
        pack: int | str | None = None,
    ) -> ArrayJob[T]:
        """Submit one call per item as one array; dict: keywords, tuple: positions, else one value.

        `common` are keyword arguments of all calls; `unpack=False` passes dicts and tuples as they
        are; at most `max_concurrent` run at the same time. With `pack` (a number, or "auto") so
        many items share one job, whose warm workers run them: for very many small calls.
        """
        from slurm.cluster import active_cluster

        return (
            active_cluster(self.name)
            .submit(self)
            .map(items, max_concurrent=max_concurrent, common=common, unpack=unpack, pack=pack)
        )

    def starmap(
        self,
        items: Iterable[Iterable[Any]],
        *,
        max_concurrent: int | None = None,
        common: Mapping[str, Any] | None = None,
        pack: int | str | None = None,
    ) -> ArrayJob[T]:
        """Like `map`, where each item is a sequence of positional arguments."""
        from slurm.packaging.arguments import items_of

        where = f"{self.name}.starmap"
        tuples = (
            tuple(items_of(item, where, number))
            for number, item in enumerate(items_of(items, where))
        )
        return self.map(tuples, max_concurrent=max_concurrent, common=common, pack=pack)

    def after(
        self,
        *jobs: Job[Any] | ArrayJob[Any],
        kind: str = "afterok",
        minutes: int | None = None,
    ) -> Task[P, T]:
        """The same task, to run after other jobs: `evaluate.after(train_job)(model)`.

        `kind` is one of Slurm's: afterok, afterany, afternotok, aftercorr, after (with `minutes`),
        singleton. Several conditions are combined by calling it again. Without jobs, as in
        `after(*jobs)` of an empty list, there is nothing to wait for.
        """
        from slurm.dependencies import Dependency

        condition = Dependency(kind, jobs, minutes)
        more = (*self.conditions, condition)
        return type(self)(self._function, self._given, self._packaging, more)

    def with_dependencies(self, jobs: Iterable[Job[Any] | ArrayJob[Any]]) -> Task[P, T]:
        """The same as `after(*jobs)`."""
        return self.after(*jobs)

    def __repr__(self) -> str:
        return f"<Task {getattr(self, '__module__', '?')}.{self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        from slurm.packaging.function import by_value_reason

        if by_value_reason(self._function) is None:
            place = (self._function.__module__, self._function.__qualname__)
            return _task_by_name, (*place, self._given, self._packaging, type(self))
        return type(self), (self._function, self._given, self._packaging)


def _inside_a_job() -> bool:
    """In a job a task's options are checked when they are used: the client has checked them, and
    a module full of tasks should import quickly there."""
    return "SLURM_SDK_RUN" in os.environ


def _task_by_name(
    module: str,
    qualname: str,
    options: dict[str, object],
    packaging: PackagingGiven | None,
    kind: type[Task[Any, Any]],
) -> Task[Any, Any]:
    __import__(module)
    found: Any = sys.modules[module]
    for part in qualname.split("."):
        found = getattr(found, part)
    return kind(getattr(found, "unwrapped", found), options, packaging)


class _Decorator(Protocol):
    """What `task(...)` with options returns; a context in front is not the caller's to give."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, T]], /
    ) -> Task[P, T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], T], /) -> Task[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T]: ...


@overload
def task(
    function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, T]],
    /,
    *,
    packaging: PackagingGiven | None = None,
    **options: Unpack[TaskOptions],
) -> Task[P, T]: ...
@overload
def task(
    function: Callable[Concatenate[JobContext, P], T],
    /,
    *,
    packaging: PackagingGiven | None = None,
    **options: Unpack[TaskOptions],
) -> Task[P, T]: ...
@overload
def task(
    function: Callable[P, Coroutine[Any, Any, T]],
    /,
    *,
    packaging: PackagingGiven | None = None,
    **options: Unpack[TaskOptions],
) -> Task[P, T]: ...
@overload
def task(
    function: Callable[P, T],
    /,
    *,
    packaging: PackagingGiven | None = None,
    **options: Unpack[TaskOptions],
) -> Task[P, T]: ...
@overload
def task(
    *, packaging: PackagingGiven | None = None, **options: Unpack[TaskOptions]
) -> _Decorator: ...
def task(
    function: Any = None,
    /,
    *,
    packaging: PackagingGiven | None = None,
    **options: Any,
) -> Any:
    """Make a task of a function: `@task`, `@task(time="2h", mem="8GiB")` or `task(f, gpus=1)`.

    Options have Slurm's own names; a wrong name or value is refused here, not on the cluster.
    """
    if function is None:
        return functools.partial(task, packaging=packaging, **options)
    if isinstance(function, Task):
        return function.with_options(packaging=packaging, **options)
    if not callable(function):
        from slurm.errors import UsageError

        raise UsageError(
            f"task() takes a function, not {function!r}",
            hint="write @task above a function, or task(function, time='2h')",
        )
    if packaging is not None:
        from slurm.packaging.choose import check_packaging

        check_packaging(packaging)
    return Task(function, options, packaging)
