"""The options of a task, a cluster or one submission: names, checks, merging, sbatch flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypedDict

from slurm.errors import OptionError, nearest
from slurm.model import older
from slurm.model.again import Retry
from slurm.model.option_table import (
    ALIASES,
    BY_NAME,
    EXCLUSIVE,
    MEANT,
    OPTIONS,
    OTHER_FLAGS,
    OWN_FLAGS,
    OptionSpec,
)
from slurm.model.option_values import text
from slurm.model.units import brief, refuse

if TYPE_CHECKING:
    from datetime import date, datetime, timedelta
    from os import PathLike

__all__ = [
    "OPTIONS",
    "OptionSpec",
    "TaskOptions",
    "merge",
    "normalize",
    "option_names",
    "sbatch_flags",
]


class TaskOptions(TypedDict, total=False):
    """What `@task`, `Cluster` and `cluster.submit` take, in Slurm's own words.

    None means "not set" and removes a default. Plain numbers mean what they mean to Slurm.
    """

    job_name: str | None  # the task's name by default
    comment: str | None
    partition: str | Sequence[str] | None  # several: whichever starts first
    account: str | None
    qos: str | Sequence[str] | None
    reservation: str | Sequence[str] | None
    wckey: str | None
    constraint: str | None  # "a100|h100"
    nodelist: str | Sequence[str] | None  # "n[1-3]"
    exclude: str | Sequence[str] | None  # "n[1-3]"
    switches: int | str | None  # 1, "1@10:00"
    contiguous: bool | None
    spread_job: bool | None
    time: str | float | timedelta | None  # minutes, "2h", "1-00:00:00", "UNLIMITED"
    time_min: str | float | timedelta | None  # a shorter limit that would do, too
    begin: str | date | datetime | timedelta | None  # "now+2hours"
    deadline: str | date | datetime | timedelta | None
    dependency: str | None  # "afterok:123"
    hold: bool | None
    nice: int | None
    priority: int | str | None
    nodes: int | str | None  # 2, "2-4"
    ntasks: int | None  # ranks
    ntasks_per_node: int | None
    cpus_per_task: int | None
    cpus_per_gpu: int | None  # instead of cpus_per_task
    threads_per_core: int | None
    mem: str | float | None  # per node: MiB, "8GiB", 0 for all of it
    mem_per_cpu: str | float | None  # instead of mem
    mem_per_gpu: str | float | None  # instead of mem
    gpus: int | str | None  # of the whole job: 2, "a100:2"
    gpus_per_node: int | str | None
    gpus_per_task: int | str | None
    gres: str | None  # "gpu:a100:2"
    tres_per_task: str | None  # Slurm 23.11 and later
    tmp: str | float | None  # MiB, "20G"
    licenses: str | None  # "matlab:2"
    exclusive: bool | str | None  # True, "user", "mcs", "topo"
    oversubscribe: bool | None
    overcommit: bool | None
    distribution: str | None  # "block:cyclic"
    hint: str | None  # "nomultithread"
    signal: str | int | None  # "B:USR1@60"
    requeue: bool | str | None  # True, False, "expedite"
    mail_type: str | Sequence[str] | None  # "END,FAIL"
    mail_user: str | None
    output: str | PathLike[str] | None
    error: str | PathLike[str] | None
    export: str | Sequence[str] | None
    profile: str | Sequence[str] | None
    array_throttle: int | None  # how many of an array run at the same time
    workdir: str | PathLike[str] | None
    env: Mapping[str, str | float | PathLike[str] | None] | None
    secrets: str | Sequence[str] | None  # names of variables; their values travel unwritten
    modules: str | Sequence[str] | None
    venv: str | PathLike[str] | None
    conda: str | PathLike[str] | None
    python: str | PathLike[str] | None
    setup: str | Sequence[str] | None  # lines of shell
    teardown: str | Sequence[str] | None
    all_ranks: bool | None  # the result is the list of all ranks' values
    launch: str | None  # "srun", "torchrun", or "once": one process, whatever the job has
    srun_args: Sequence[str] | None  # ["--cpu-bind=none"]
    cache: bool | str | Callable[..., str] | None  # True, or text for the code, or a key function
    retry: Retry | int | Mapping[str, object] | None  # Retry(times=2, oom="mem*2")
    sbatch: Mapping[str, bool | int | str] | None  # any other flag: {"core-spec": 2}


def option_names() -> tuple[str, ...]:
    """The names of all options, in the order of their flags in a script."""
    return (*BY_NAME, "sbatch")


def normalize(
    options: Mapping[str, object], *, where: str, beside: Iterable[str] = ()
) -> dict[str, object]:
    """The options with right names and plain values, or an `OptionError` that begins with `where`.

    Times become `Seconds` (or `"UNLIMITED"`), memory MiB, GPUs a tuple of `GpuRequest`, lists of
    names text with commas; `env` and `sbatch` dicts; `setup`, `teardown`, `modules` and `secrets`
    tuples. None stays, to remove a default in `merge`, and a switch that is False becomes None.
    What this returns may be given to it again, but not what JSON made of it: a plain number is
    minutes. `beside` are other names that may be meant, of what takes the options.
    """
    try:
        return _normalize(options, beside)
    except OptionError as error:
        raise OptionError(f"{where}: {error.message}", hint=error.hint) from None


def _normalize(options: Mapping[str, object], beside: Iterable[str]) -> dict[str, object]:
    plain: dict[str, object] = {}
    for given, value in options.items():
        name = ALIASES.get(given, given)
        if name not in BY_NAME and name != "sbatch":
            _refuse_name(given, beside)
        if name in plain:
            _refuse_pair(name, next(key for key, to in ALIASES.items() if to == name))
        if value is None:
            plain[name] = None
        elif name == "sbatch":
            plain[name] = _other_flags(value)
        else:
            plain[name] = BY_NAME[name].parse(value, given)
    for group in EXCLUSIVE:
        chosen = [name for name in group if plain.get(name) is not None]
        if len(chosen) > 1:
            _refuse_pair(*chosen[:2])
    limit, least = plain.get("time"), plain.get("time_min")
    if isinstance(limit, int) and isinstance(least, int) and least > limit:
        refuse("time_min", options["time_min"], "is longer than time")
    return plain


def _refuse_pair(one: str, other: str) -> NoReturn:
    raise OptionError(
        f"{one} and {other} cannot be set together", hint=f"leave out {one} or {other}"
    )


def _refuse_name(given: object, beside: Iterable[str]) -> NoReturn:
    """Say what the nearest right option is, or how else the thing is asked for."""
    if not isinstance(given, str):
        raise OptionError(f"the name of an option must be text, not {brief(given)}")
    name = given.lower().replace("-", "_").removeprefix("slurm_")
    flag = name.replace("_", "-")
    close = MEANT.get(name) or nearest(name, [*option_names(), *ALIASES, *beside])
    was = older.hint(name)
    if was is not None:
        hint = was
    elif name in BY_NAME or name in MEANT:
        hint = f"write {MEANT.get(name, name)}="
    elif flag in OWN_FLAGS:
        hint = OWN_FLAGS[flag]
    elif flag in OTHER_FLAGS:
        hint = f'write sbatch={{"{flag}": ...}}'
    elif close:
        hint = f"did you mean {close}?"
    else:
        hint = 'any other sbatch flag can be given as sbatch={"flag": value}'
    raise OptionError(f"unknown option {brief(given)}", hint=hint)


def _other_flags(value: object) -> dict[str, object]:
    """The flags of `sbatch={...}`: names without dashes in front, values True, False or text."""
    if not isinstance(value, Mapping):
        refuse("sbatch", value, "must be a mapping", 'write sbatch={"core-spec": 2}')
    taken = {spec.flag: f"{spec.name}=" for spec in OPTIONS if spec.flag}
    taken["no-requeue"] = "requeue=False"
    found: dict[str, object] = {}
    for key, entry in value.items():
        flag = key.strip().lstrip("-").replace("_", "-").lower() if isinstance(key, str) else ""
        name = f"sbatch[{brief(key)}]"
        if re.fullmatch(r"[a-z][a-z0-9-]+", flag) is None:
            refuse(name, entry, "is not the long name of a flag", 'for example "core-spec"')
        if flag in taken:
            refuse(name, entry, "has an option of its own", f"write {taken[flag]}")
        if flag in OWN_FLAGS:
            refuse(name, entry, "cannot be set here", OWN_FLAGS[flag])
        if flag in found:
            refuse(name, entry, "is given twice")
        found[flag] = _flag_value(entry, name)
    return found


def _flag_value(value: object, name: str) -> bool | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 10**18:
        return str(value)
    if value is None:
        refuse(name, value, "has no meaning", "write True for a bare flag, False for none")
    return text(value, name)


def merge(*layers: Mapping[str, object]) -> dict[str, object]:
    """Layers of `normalize`d options as one: a later layer wins, None removes.

    Of options that exclude each other the later one replaces the earlier. `env` and `sbatch` are
    merged key by key. What remains has no None in it.
    """
    merged: dict[str, object] = {}
    for layer in layers:
        for group in EXCLUSIVE:
            if any(layer.get(name) is not None for name in group):
                for name in group:
                    merged.pop(name, None)
        for name, value in layer.items():
            before = merged.get(name)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                value = {**before, **value}
            merged[name] = value
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in merged.items()
        if value is not None
    }


def _without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}


def sbatch_flags(options: Mapping[str, object]) -> list[tuple[str, str | None]]:
    """The sbatch flags of `normalize`d options, in a stable order: `("time", "02:00:00")`.

    Names come without dashes in front; a value of None is a bare flag.
    """
    flags: list[tuple[str, str | None]] = []
    for spec in OPTIONS:
        value = options.get(spec.name)
        nothing = value is None or (isinstance(value, (tuple, list)) and not value)
        if spec.flag is None or nothing:
            continue
        if value is False:
            flags += [(spec.off, None)] if spec.off else []
        else:
            flags.append((spec.flag, spec.show(value)))
    others = options.get("sbatch")
    if isinstance(others, Mapping):
        for flag, value in others.items():
            if value is not False:
                flags.append((flag, None if value is True else str(value)))
    return flags
