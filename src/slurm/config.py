"""Slurmfile.toml: named profiles, each the arguments of one Cluster; unknown keys are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm.errors import ConfigError, OptionError, PackagingError, nearest
from slurm.here import working_directory
from slurm.model import older
from slurm.model.options import merge, normalize
from slurm.packaging.choose import check_packaging, choose
from slurm.reach import CONNECTION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "Slurmfile.toml"
DEFAULT_PROFILE = "default"

#: What `Cluster` takes besides options of tasks.
ARGUMENTS = (
    *("backend_type", "job_base_dir", "trust_group", "packaging", "callbacks", "progress"),
    *CONNECTION,
)

#: The keys of a profile; `options` holds defaults for tasks, in Slurm's own words.
KEYS = (*ARGUMENTS, "options")

#: Those whose values are not text, and what they are.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "port": ((int,), "a number"),
    "connect_timeout": ((int, float), "a number of seconds"),
    "ssh_options": ((dict, list), "a table or a list"),
    "packaging": ((str, dict), "text or a table"),
    "callbacks": ((list,), "a list"),
    "progress": ((bool,), "true or false"),
    "trust_group": ((bool,), "true or false"),
}

#: slurm-sdk's tables, and where their keys go.
_OLD_TABLES = ("cluster", "packaging", "submit")
_BESIDE_OLD = ("callbacks",)


def find_slurmfile(start: Path | None = None) -> Path:
    """`$SLURMFILE`, or the Slurmfile.toml in this directory or the nearest one above."""
    found = _nearest(start)
    if found is None:
        raise ConfigError(
            f"there is no {FILE_NAME} in {(start or Path(working_directory())).resolve()} or above",
            hint=f"write one, or set SLURMFILE, or use Cluster(...) directly:\n{EXAMPLE}",
        )
    return found


def _nearest(start: Path | None = None) -> Path | None:
    named = os.environ.get("SLURMFILE")
    if named:
        return Path(named).expanduser()
    here = (start or Path(working_directory())).resolve()
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            _check_owner(folder / FILE_NAME)
            return folder / FILE_NAME
    return None


def _check_owner(path: Path) -> bytes:
    """The file, unless somebody else put it above this directory: its callbacks are code.

    What was looked at is what is read: its name may lead elsewhere a moment later.
    """
    from slurm.rundir import Untrusted, read_checked

    try:
        return read_checked(str(path))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check the path, and $SLURMFILE"
        ) from error
    except Untrusted as error:
        raise ConfigError(
            f"{error}; it is not read, since a Slurmfile can run code",
            hint=f"if you trust it, name it: export SLURMFILE={path}",
        ) from error


def has_profile(profile: str | None) -> bool:
    """Whether there is a Slurmfile with this profile, or with the one that None stands for."""
    path = _nearest()
    if path is None:
        return False
    named = profile or os.environ.get("SLURM_ENV")
    # A profile that somebody named must be there: who loads it is told.
    return (profile is None and named is not None) or (named or DEFAULT_PROFILE) in _found(path)


def profile_names() -> list[str]:
    """The profiles of the nearest Slurmfile; none where there is no file, or none that is right."""
    try:
        return sorted(_found(find_slurmfile()))
    except ConfigError:
        return []


EXAMPLE = """[default]
backend_type = "local"
[default.options]
partition = "main"
time = "1h\""""


def found_profile(profile: str | None = None, code: bool = True) -> dict[str, Any]:
    """The same as `load_profile`, of the Slurmfile that counts here."""
    path = find_slurmfile()
    return _arguments(path, _found(path), profile, code)


def load_profile(path: Path, profile: str | None = None, code: bool = True) -> dict[str, Any]:
    """The arguments of `Cluster` that a profile stands for; `default` lies under every other.

    `code=False` leaves out what is code, its callbacks: they are not imported.
    """
    return _arguments(path, _read(path), profile, code)


def _arguments(
    path: Path, profiles: Mapping[str, dict[str, Any]], profile: str | None, code: bool
) -> dict[str, Any]:
    name = profile or os.environ.get("SLURM_ENV") or DEFAULT_PROFILE
    if name not in profiles:
        close = nearest(name, profiles)
        raise ConfigError(
            f"{path} has no profile {name!r}; it has {', '.join(sorted(profiles)) or 'none'}",
            hint=f"did you mean {close!r}?" if close else f"add a table [{name}]",
        )
    layers = [profiles[DEFAULT_PROFILE]] if DEFAULT_PROFILE in profiles else []
    if name != DEFAULT_PROFILE:
        layers.append(profiles[name])
    merged = {k: v for layer in layers for k, v in layer.items() if k != "options"}
    if not code:
        merged.pop("callbacks", None)
    if "callbacks" in merged:
        merged["callbacks"] = [_callback(f"{path}, [{name}]", one) for one in merged["callbacks"]]
    base = merged.get("job_base_dir", "~")
    # Over ssh it counts from the home there.
    if not base.startswith("~") and not merged.get("hostname"):
        merged["job_base_dir"] = os.path.join(path.resolve().parent, base)
    return {**merged, **merge(*(layer["options"] for layer in layers))}


def _callback(where: str, given: object) -> object:
    """The callback that `"module:Class"`, or a table with target, args and kwargs, stands for."""
    import importlib

    table: Mapping[str, Any] = given if isinstance(given, Mapping) else {"target": given}
    target = table.get("target")
    if not isinstance(target, str) or set(table) - {"target", "args", "kwargs"}:
        raise ConfigError(
            f"{where}: {given!r} is no callback",
            hint='write "module:Class", or a table with target, args and kwargs',
        )
    module, mark, name = target.partition(":")
    if not mark:
        module, _, name = target.rpartition(".")
    try:
        made: object = getattr(importlib.import_module(module), name)(
            *table.get("args", ()), **table.get("kwargs", {})
        )
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{where}: the callback {target} cannot be made: {error}",
            hint="check that its module can be imported here, and its arguments",
        ) from error
    return made


def _found(path: Path) -> dict[str, dict[str, Any]]:
    """The profiles of a file that was found, and not named."""
    return _read(path) if os.environ.get("SLURMFILE") else _parsed(path, _check_owner(path))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return _parsed(path, path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check the path, and $SLURMFILE"
        ) from error


def _parsed(path: Path, content: bytes) -> dict[str, dict[str, Any]]:
    try:
        data = tomllib.loads(content.decode("utf-8"))
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint=f"a profile looks like this:\n{EXAMPLE}"
        ) from error
    tables = data.get("environments", data)
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{path}: environments must be a table, not {tables!r}")
    return {name: _profile(path, name, table) for name, table in tables.items()}


def _profile(path: Path, name: str, table: object) -> dict[str, Any]:
    where = f"{path}, [{name}]"
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"{where}: {name} = {table!r} stands outside of a profile",
            hint=f"put it into a table, such as [{DEFAULT_PROFILE}]",
        )
    found = _from_old(table, where) if _is_old(table) else dict(table)
    for key in found:
        if key not in KEYS:
            _refuse_key(where, key)
        types, what = _TYPES.get(key, ((str,), "text"))
        if key != "options" and not isinstance(found[key], types):
            example = '"..."' if what == "text" else what
            raise ConfigError(
                f"{where}: {key} must be {what}, not {found[key]!r}",
                hint=f"write {key} = {example}",
            )
    try:
        options = normalize(_table(found, "options", where), where=f"{where}.options")
        if "packaging" in found:
            given = _beside(path, found["packaging"])
            found["packaging"] = check_packaging(given, where)
    except OptionError as error:
        raise ConfigError(error.message, hint=error.hint) from None
    except PackagingError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    return {**found, "options": options}


def _beside(path: Path, packaging: Any) -> Any:
    """The packaging of a profile, where paths count from the Slurmfile and not from here."""
    if not isinstance(packaging, Mapping):
        return packaging
    names = ("project", "root", "context")
    given = {n: os.path.expanduser(v) for n, v in packaging.items() if n in names and v}
    return {**packaging, **{n: os.path.join(path.resolve().parent, v) for n, v in given.items()}}


def _table(found: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    table = found.get(key, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {key} must be a table, not {table!r}")
    return dict(table)


def _refuse_key(where: str, key: str) -> None:
    close = nearest(key, KEYS)
    hint = f"did you mean {close}?" if close else f"a profile has {', '.join(KEYS)}"
    was = older.hint(key)
    if was is not None:
        raise ConfigError(f"{where}: {key} is a key of slurm-sdk 0.4", hint=was)
    try:
        normalize({key: None}, where=where)
        hint = f"options of tasks go into [{where.rpartition('[')[2].rstrip(']')}.options]"
    except OptionError:
        pass  # not an option either, so the first hint stands
    raise ConfigError(f"{where}: unknown key {key!r}", hint=hint)


def _is_old(table: Mapping[str, Any]) -> bool:
    """slurm-sdk's form: [env.cluster], [env.packaging], [env.submit]; both have the second."""
    return any(isinstance(table.get(name), Mapping) for name in ("cluster", "submit"))


def _from_old(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key in table:
        if key in KEYS and key not in (*_OLD_TABLES, *_BESIDE_OLD):
            raise ConfigError(
                f"{where}: {key!r} stands beside a table of slurm-sdk's form",
                hint=f"use one form: {', '.join(KEYS)}, or {', '.join(_OLD_TABLES)}",
            )
        if key not in (*_OLD_TABLES, *_BESIDE_OLD):
            _refuse_key(where, key)
    cluster = _table(table, "cluster", where)
    if "backend" in cluster:
        cluster["backend_type"] = cluster.pop("backend")
    given = {**_table(cluster, "backend_config", f"{where}.cluster"), **cluster}
    given.pop("backend_config", None)
    found = {older.RENAMED.get(key, key): value for key, value in given.items()}
    packaging = _table(table, "packaging", where)
    if packaging:
        found["packaging"] = {"type": "auto", **packaging}
    found["options"] = _table(table, "submit", where)
    found.update({key: table[key] for key in _BESIDE_OLD if key in table})
    return found


# ---- clusters that `slurm cluster up` made ------------------------------------------------------


def stack_file(name: str) -> Path:
    """Where `slurm cluster up` says how the cluster of that name is reached."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "slurm-sdk" / "clusters" / f"{name}.json"


def stack_names() -> list[str]:
    """The names of the clusters that were brought up here; one whose directory is gone is none."""
    return sorted(path.stem for path in stack_file("any").parent.glob("*.json") if _is_there(path))


def _is_there(index: Path) -> bool:
    import json

    try:
        return Path(json.loads(index.read_text(encoding="utf-8"))["dir"]).is_dir()
    except (OSError, ValueError, KeyError):
        return True  # whoever opens it says what is wrong with it


def load_stack(name: str) -> dict[str, Any]:
    """The arguments of `Cluster` for a cluster that `slurm cluster up` made."""
    import json

    try:
        entry = json.loads(stack_file(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = stack_names()
        close = nearest(name, known)
        raise ConfigError(
            f"no cluster {name!r} was brought up here; there is {', '.join(known) or 'none'}",
            hint=f"did you mean {close!r}?" if close else "bring one up: slurm cluster up",
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{stack_file(name)} cannot be read: {error}") from error
    if not entry["cluster"]:
        raise ConfigError(
            f"the cluster {name!r} has no login node that could be reached from here",
            hint=f"slurm cluster status {name} shows one that did not come up; else write "
            "[login] enabled = true into its cluster.toml, then: slurm cluster apply",
        )
    return dict(entry["cluster"])


def override(profile: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """A profile with other arguments put over it; options that exclude each other make way."""
    own = {name: overrides[name] for name in overrides if name in ARGUMENTS}
    options = {name: value for name, value in overrides.items() if name not in ARGUMENTS}
    given = {name: value for name, value in profile.items() if name not in ARGUMENTS}
    kept = {name: profile[name] for name in profile if name in ARGUMENTS}
    if own.get("packaging") is not None:
        chosen = check_packaging(own["packaging"], "the cluster")
        own["packaging"] = choose(chosen, kept.get("packaging"))
    return {
        **kept,
        **own,
        **merge(given, options),
        **{k: None for k in options if options[k] is None},
    }
