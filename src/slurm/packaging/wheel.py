"""The project of a task as a wheel, in an environment on the cluster that all its jobs share."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm.api import starting
from slurm.errors import PackagingError
from slurm.packaging.build import Wheel, asks_for_sdk, build_wheel, find_uv
from slurm.packaging.environments import Parcel, Recipe, deliver, in_store
from slurm.packaging.function import by_value_reason
from slurm.packaging.none import choose_interpreter
from slurm.packaging.prepare import Prepared, Request
from slurm.packaging.project import check_settings, project_of
from slurm.packaging.remote import is_users_own, remote_of
from slurm.packaging.sdkwheel import sdk_wheel
from slurm.packaging.tree import code_folder, read_tree
from slurm.rundir import make_private_folder, write_atomically

if TYPE_CHECKING:
    from slurm.cluster import Cluster


def prepare_wheel(request: Request) -> Prepared:
    """The environment of a call whose project is installed as a wheel."""
    options = request.packaging.options
    project = options.get("project") or project_of(request.source)
    if project is None:
        raise PackagingError(
            f"{request.name}: packaging='wheel' needs a pyproject.toml, and there is none at or "
            f"above {request.source}",
            hint='write one, or send the files as they are: packaging="source"',
        )
    refuse_credentials(options)
    tree = read_tree(str(project))
    wheel = build_wheel(tree, options)
    reason = _by_value(request, wheel)
    recipe, maker, outside = make_recipe(request, wheel, reason)
    environment = in_store(request.cluster, recipe, maker, outside)
    details = {
        **environment.details,
        "wheel": os.path.basename(wheel.path),
        "source": tree.facts(),
        "options": dict(options),
    }
    why = f"{wheel.name} {wheel.version} of {tree.root}, environment {recipe.key[:10]}"
    environment = replace(environment, kind="wheel", why=why, details=details)

    def bring(cluster: Cluster) -> None:
        deliver(cluster, recipe)

    return Prepared(environment, reason or "", wheel.holds, bring)


def _by_value(request: Request, wheel: Wheel) -> str | None:
    reason = by_value_reason(request.function)
    module = request.function.__module__
    if reason is None and not wheel.holds(module) and is_users_own(sys.modules.get(module)):
        return f"module {module} is not in the wheel of {wheel.name}"
    return reason


def make_recipe(request: Request, wheel: Wheel, reason: str | None) -> tuple[Recipe, str, str]:
    """What the environment is made of, who makes it, and the Python for what runs beside it."""
    options = request.packaging.options
    python, version, maker, outside = choose_interpreter(request, reason)
    own: tuple[Parcel, ...] = ()
    if wheel.needs_sdk or asks_for_sdk(options.get("dependencies", ())):
        own = (sdk_wheel(),)
    recipe = Recipe(
        label=f"{wheel.name} {wheel.version}",
        version=version,
        python=python,
        wheel=Parcel(wheel.path, wheel.digest, os.path.basename(wheel.path)),
        wheels=own,
        lock=_read_lock(request),
        options={k: v for k, v in options.items() if k not in ("project", "lock")},
        uv=find_uv() if remote_of(request.cluster) is None else None,
    )
    return recipe, maker, outside


_WITH_USER = re.compile(
    r"((?<![a-z0-9+])(?!(?:[a-z0-9]+\+)?ssh:)[a-z][a-z0-9+.-]*://)[^/@\s]+@", re.I
)


def refuse_credentials(options: Mapping[str, Any]) -> None:
    """A password in an address would lie on the cluster, and in lists of processes."""
    for name in ("index_url", "extra_index_urls", "dependencies", "find_links", "python_mirror"):
        given = options.get(name) or ()
        for text in map(str, [given] if isinstance(given, str) else given):
            # Over ssh the word is a login name, and no password can stand there.
            if not _WITH_USER.search(text):
                continue
            shown = _WITH_USER.sub(r"\1***@", text)
            raise PackagingError(
                f"{name}: {shown} has a user or password in it, which would be written down",
                hint="let it travel unwritten: secrets=('UV_INDEX_URL', 'PIP_INDEX_URL'); or put "
                "it into ~/.netrc on the cluster",
            )


# ---- the lock -----------------------------------------------------------------------------------


def _read_lock(request: Request) -> tuple[str, ...]:
    """The exact versions that the project's lock names, as constraints; none without a lock."""
    project = str(request.packaging.options.get("project") or project_of(request.source))
    given = request.packaging.options.get("lock")
    path = os.path.join(project, str(given or "uv.lock"))
    if not os.path.isfile(path):
        if given:
            raise PackagingError(f"lock={given!r}: {path} is not a file", hint="name a lock file")
        return ()
    if os.path.basename(path) != "uv.lock":
        with open(path, encoding="utf-8") as f:
            return constraints(f.read())
    return _from_uv(path, tuple(request.packaging.options.get("extras", ())))


def _from_uv(path: str, extras: tuple[str, ...]) -> tuple[str, ...]:
    with open(path, "rb") as f:
        content = hashlib.sha256(f.read() + repr(("hashes", extras)).encode()).hexdigest()[:32]
    kept = os.path.join(code_folder("locks"), f"{content}.txt")
    if os.path.isfile(kept):
        with open(kept, encoding="utf-8") as f:
            return constraints(f.read())
    uv = find_uv()
    if uv is None:
        raise PackagingError(
            f"{path} is there, and no uv that could read it",
            hint="pip install uv; or name a file of requirements: "
            '{"type": "wheel", "lock": "requirements.txt"}',
        )
    check_settings(os.path.dirname(path), os.path.dirname(path))
    words = [uv, "export", "--frozen", "--no-emit-project", "--no-dev", "--quiet"]
    for extra in extras:
        words += ["--extra", extra]
    done = starting.run(
        words, cwd=os.path.dirname(path), capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise PackagingError(
            f"uv cannot read {path}",
            hint=f"cd {os.path.dirname(path)} && uv lock",
            evidence=done.stderr.strip().splitlines()[-6:],
        )
    make_private_folder(os.path.dirname(kept))
    write_atomically(kept, done.stdout.encode(), sync=False)
    return constraints(done.stdout)


def constraints(text: str) -> tuple[str, ...]:
    """The lines of a file of requirements that name versions, with their hashes.

    Paths and the SDK are left out.
    """
    whole = text.replace("\\\n", " ").splitlines()
    lines = [" ".join(line.split(" #")[0].split()) for line in whole]
    kept = [line for line in lines if re.match(r"[A-Za-z0-9]", line) and "://" not in line]
    return tuple(line for line in kept if not asks_for_sdk([line]))
