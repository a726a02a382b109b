"""Which way code gets to the node: what `packaging=` may say, and whose word counts; pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from slurm.errors import OptionError, PackagingError, join_names, nearest
from slurm.model import option_values as of
from slurm.model.units import refuse

#: What a user may write: `"wheel"`, `"container:IMAGE"`, or `{"type": "wheel", "extras": [...]}`.
PackagingGiven: TypeAlias = "str | Mapping[str, Any] | Packaging"

#: The key of a table that names the kind.
TYPE = "type"
#: Who speaks where a cluster inside a job takes over what the job was submitted with.
OUTER = "the job around it"


@dataclass(frozen=True)
class Packaging:
    """One way of packaging with its options, checked, and who asked for it."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    said_by: str = "the default"

    def plain(self) -> dict[str, Any]:
        """As a table that can be given again, also after it was JSON."""
        return {TYPE: self.kind, **self.options}

    def __str__(self) -> str:
        return self.kind


def texts(value: object, name: str) -> list[str]:
    """A list of texts; a single one may stand for itself."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        refuse(name, value, "must be text or a list of texts", f'write {name}=["..."]')
    return [of.text(item, name) for item in items]


def _folder(value: object, name: str) -> str:
    return os.path.abspath(os.path.expanduser(of.path(value, name)))


def _switch(value: object, name: str) -> bool:
    return bool(of.yes_no()(value, name))


def _place(value: object, name: str) -> bool | str:
    return value if isinstance(value, bool) else of.path(value, name)


#: What an environment on the cluster is made with, beside the wheel itself.
INSTALL: dict[str, of.Parse] = {
    "extras": texts,
    "dependencies": texts,
    "index_url": of.text,
    "extra_index_urls": texts,
    "find_links": texts,
    "installer": of.choice("auto", "uv", "pip"),
    "build_on": of.choice("job", "login"),
    "python_version": of.shaped(r"3\.[0-9]{1,2}", '"3.12"'),
    "python_mirror": of.text,
    "stage": _place,
}

#: The options of each kind. Paths of this machine become absolute where they are read.
OPTIONS: dict[str, dict[str, of.Parse]] = {
    "auto": {"project": _folder, **INSTALL},
    "wheel": {"project": _folder, "lock": of.path, **INSTALL},
    "none": {"python_mirror": of.text, "build_on": INSTALL["build_on"]},
    "source": {
        "root": _folder,
        "exclude": texts,
        "python_mirror": of.text,
        "build_on": INSTALL["build_on"],
    },
    "container": {
        "image": of.text,
        "dockerfile": of.path,
        "context": _folder,
        "engine": of.choice("auto", "podman", "docker", "buildah"),
        "runtime": of.choice("auto", "pyxis", "apptainer", "podman", "oci"),
        "registry": of.text,
        "push": _switch,
        "platform": of.text,
        "build_args": of.variables,
        "build_secrets": of.secret_names,
        "build_extra_args": texts,
        "no_cache": _switch,
        "tls_verify": _switch,
        "mounts": texts,
        "workdir": of.path,
        "env": of.variables,
        "gpus": _switch,
        "extra_args": texts,
        "python": of.path,
        "modules": texts,
    },
    "inherit": {},
}

#: What `packaging=` takes.
KINDS = tuple(OPTIONS)

#: Kinds that share their options when one layer lies over another.
_FAMILY = {"auto": "wheel"}


def check_packaging(given: PackagingGiven, said_by: str = "packaging") -> Packaging:
    """The checked form of what a user wrote; unknown kinds and options are refused by name."""
    if isinstance(given, Packaging):
        return given
    kind, options = _split(given)
    if kind not in OPTIONS:
        close = nearest(kind, KINDS)
        raise PackagingError(
            f"packaging={given!r} is not known; this version has "
            f"{join_names([repr(known) for known in KINDS])}",
            hint=f"did you mean {close!r}?" if close else "leave packaging out",
        )
    known = OPTIONS[kind]
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise _unknown_option(kind, str(name))
        if value is not None:
            try:
                checked[name] = known[name](value, name)
            except OptionError as error:
                raise PackagingError(
                    f"packaging {kind}: {error.message}", hint=error.hint
                ) from None
    return Packaging(kind, checked, said_by)


def _split(given: object) -> tuple[str, dict[Any, Any]]:
    if isinstance(given, str):
        kind, mark, image = given.partition(":")
        return (kind, {"image": image}) if mark and kind == "container" else (given, {})
    if isinstance(given, Mapping):
        options = dict(given)
        kind = options.pop(TYPE, None)
        if not isinstance(kind, str):
            raise PackagingError(
                f"packaging={dict(given)!r} does not name its {TYPE}",
                hint=f'write {{"{TYPE}": "wheel", ...}}',
            )
        kind, inner = _split(kind)
        return kind, {**inner, **options}
    raise PackagingError(
        f"packaging={given!r} is neither text nor a table", hint='write packaging="wheel"'
    )


def _unknown_option(kind: str, name: str) -> PackagingError:
    close = nearest(name, OPTIONS[kind])
    owners = [other for other in KINDS if name in OPTIONS[other]]
    if owners:
        hint = f"{name} is an option of {join_names(owners)}"
    elif close:
        hint = f"did you mean {close!r}?"
    elif OPTIONS[kind]:
        hint = f"it has {join_names(list(OPTIONS[kind]))}"
    else:
        hint = f"leave it out: {kind} has no options"
    return PackagingError(f"packaging {kind} has no option {name!r}", hint=hint)


def choose(*layers: Packaging | None) -> Packaging:
    """What holds for a call: the first layer that says anything names the kind.

    Layers behind it that name the same kind say what it leaves open: the index of a Slurmfile
    holds for a task that only adds an extra.
    """
    given = [layer for layer in layers if layer is not None]
    if not given:
        return Packaging("auto")
    first = given[0]
    options: dict[str, Any] = {}
    for layer in reversed(given):
        if _FAMILY.get(layer.kind, layer.kind) == _FAMILY.get(first.kind, first.kind):
            options.update(layer.options)
    return replace(first, options={k: v for k, v in options.items() if k in OPTIONS[first.kind]})


def find_project(start: str | None, exists: Callable[[str], bool] = os.path.isfile) -> str | None:
    """The nearest folder at or above a file's that holds a `pyproject.toml`."""
    folder = os.path.dirname(os.path.abspath(start)) if start else ""
    while folder:
        if exists(os.path.join(folder, "pyproject.toml")):
            return folder
        above = os.path.dirname(folder)
        folder = "" if above == folder else above
    return None
