"""Environments on the cluster: what one is made of, its name, and how a job's script gets it.

An environment is made where jobs run, by the first job that needs it, or ahead of time on the
login node; never by the client. Its name is a hash of all that it is made of.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir
from slurm.packaging import progress
from slurm.packaging.sdk import bring_sdk, sdk_hash
from slurm.rendering import Environment, shell_quote

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: How long the login node may take to make an environment before the client gives up waiting.
PATIENCE = 3600.0


@dataclass(frozen=True)
class Parcel:
    """A file that an environment is made of: where it lies here, and its place in the store."""

    path: str
    digest: str
    name: str

    @property
    def place(self) -> str:
        """Its path below the base directory."""
        return f"{rundir.BASE_WHEELS}/{self.digest[:32]}/{self.name}"


@dataclass(frozen=True)
class Recipe:
    """All that an environment is made of; two equal ones are the same environment."""

    label: str
    version: str
    #: The interpreter there; None: one of this version is looked for, or provided by uv.
    python: str | None = None
    wheel: Parcel | None = None
    wheels: tuple[Parcel, ...] = ()
    lock: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Where uv lies there, if the client knows.
    uv: str | None = None

    def plain(self) -> dict[str, Any]:
        """The recipe as its file on the cluster has it."""
        given = self.options
        return {
            "label": self.label,
            "python": {"version": self.version, "path": self.python},
            "wheel": self.wheel.place if self.wheel else None,
            "wheels": [parcel.place for parcel in self.wheels],
            "lock": list(self.lock),
            "installer": given.get("installer", "auto"),
            **{name: given.get(name) for name in _MADE_WITH},
            "python_mirror": given.get("python_mirror"),
            "uv": self.uv,
        }

    @property
    def key(self) -> str:
        """The environment's name."""
        told = {k: v for k, v in self.plain().items() if k not in _NOT_CONTENT}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def place(self) -> str:
        """The environment's folder below the base directory."""
        return f"{rundir.BASE_ENVIRONMENTS}/{self.key}"

    @property
    def parcels(self) -> tuple[Parcel, ...]:
        """The files that have to lie on the cluster."""
        return (*((self.wheel,) if self.wheel else ()), *self.wheels)


#: What may differ from one maker of the same environment to the next.
_NOT_CONTENT = ("label", "python_mirror", "uv")
_MADE_WITH = ("extras", "dependencies", "index_url", "extra_index_urls", "find_links")


def in_store(cluster: Cluster, recipe: Recipe, maker: str, outside: str) -> Environment:
    """The environment as a job's script uses it; `maker` is the Python that can make it."""
    options = recipe.options
    folder = f"{cluster.base}/{recipe.place}"
    stage = options.get("stage")
    here = folder if not stage else f"{_stage_folder(cluster, stage)}/{recipe.key}"
    needs = [parcel.place for parcel in recipe.parcels] + [f"{recipe.place}/{rundir.RECIPE}"]
    if options.get("build_on") == "login":
        needs.append(f"{recipe.place}/{rundir.CURRENT}")
    return Environment(
        python=f"{here}/{rundir.CURRENT}/bin/python",
        setup=setup_lines(folder, here, maker),
        digest=recipe.key,
        needs=tuple(needs),
        outside=outside,
        details={"environment": recipe.key, "label": recipe.label, "python": recipe.version},
    )


def _stage_folder(cluster: Cluster, stage: object) -> str:
    top = "/tmp" if stage is True else str(stage).rstrip("/")
    # Base directories differ from user to user: so do these.
    return f"{top}/slurm-sdk-{hashlib.sha256(cluster.base.encode()).hexdigest()[:10]}"


def setup_lines(folder: str, here: str, maker: str) -> tuple[str, ...]:
    """The lines of a job's script that bring its environment about; cheap where it is there."""
    make = f'{shell_quote(maker)} "$SLURM_SDK_ROOT/slurm/runner/environment.py" '
    make += shell_quote(folder) + ("" if here == folder else f" {shell_quote(here)}")
    current = shell_quote(f"{here}/{rundir.CURRENT}")
    there = f"[ -e {current}/bin/python ]"
    if here != folder:
        # Anybody can make that folder first where all may write, as in /tmp.
        top = os.path.dirname(here)
        mine, around = shell_quote(top), shell_quote(os.path.dirname(top))
        # In a sticky folder nobody takes it away; of others environment.py looks at each.
        kept = f"{{ [ -k {around} ] || [ -O {around} ]; }}"
        there = f"[ -O {mine} ] && [ ! -L {mine} ] && {kept} && {there}"
    lines = [f"{there} || sdk_made {make}"]
    if here != folder:
        each = 'srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 '
        alone = '[ "${SLURM_JOB_NUM_NODES:-1}" -le 1 ] || [ -n "${SLURM_STEP_ORDER:-}" ]'
        lines.append(f"{alone} || sdk_made {each}{make}")
    return (
        _MADE,
        *lines,
        # Only `slurm env gc` reads it: a full disk must not stop the job here.
        f"{{ : > {shell_quote(folder)}/{rundir.USED}; }} 2>/dev/null || :",
        f'export VIRTUAL_ENV={current} PATH={current}/bin:"$PATH"',
    )


# In the background, so that a signal is not kept waiting until it ends.
_MADE = """sdk_made() {
  "$@" &
  sdk_child=$!
  sdk_wait
  set -- "$sdk_code"
  sdk_child='' sdk_code=''
  return "$1"
}"""


# ---- bringing it ----------------------------------------------------------------------------


def deliver(cluster: Cluster, recipe: Recipe) -> None:
    """Bring what the environment is made of to the cluster; each file once."""
    from slurm.files import put_file

    for parcel in recipe.parcels:
        with progress.step("upload", parcel.name):
            put_file(cluster.backend, parcel.path, f"{cluster.base}/{parcel.place}", mode=0o400)
    data = json.dumps(recipe.plain(), indent=1).encode()
    cluster.backend.store_put(f"{recipe.place}/{rundir.RECIPE}", data)
    if recipe.options.get("build_on") == "login":
        make(cluster, recipe.key, recipe.label)


def make(cluster: Cluster, key: str, label: str) -> None:
    """Make an environment on the login node, and wait until it is ready."""
    backend = cluster.backend
    bring_sdk(cluster)
    with progress.step("install", label) as line:
        found = backend.environment_make(key, sdk_hash())
        until, pause, said, began = time.monotonic() + PATIENCE, 0.1, "", False
        while found["state"] != "ready":
            began = began or found["state"] == "making"
            if found["state"] == "failed" and began:
                failure = found["failure"]
                raise errors.EnvironmentFailed(
                    f"{label}: {failure['message']}",
                    hint=failure["hint"],
                    evidence=failure["evidence"],
                )
            if time.monotonic() > until:
                raise errors.EnvironmentFailed(f"{label} is not ready after {PATIENCE:.0f} s")
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)
            found = backend.environment_state(key)
            if found["log"] and found["log"] != said:
                said = found["log"]
                line(said)
