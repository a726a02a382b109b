"""The images of a cluster as values: one Containerfile, three targets, names by content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from slurm.stack.plan import Plan
from slurm.stack.versions import at_least

REPOSITORY = "localhost/slurm-sdk"
#: The Slurm packages of each Debian: what a release does not have yet is not asked for.
_ALWAYS = "slurmctld slurmd slurmdbd slurm-client munge openssh-server python3 iproute2 runc"


@dataclass(frozen=True)
class Image:
    """One image: its name, the target in the Containerfile, and the arguments of its build."""

    name: str
    target: str
    arguments: tuple[tuple[str, str], ...]


@cache
def template(name: str) -> str:
    """The text of a file that every cluster gets as it is."""
    return (files("slurm.stack") / "files" / name).read_text(encoding="utf-8")


def images(plan: Plan) -> dict[str, Image]:
    """The images that a cluster uses, by target."""
    asked, suite = plan.topology.images, plan.suite
    database = plan.topology.database.suite
    slurm = {
        "BASE": asked.base.format(suite=suite, version=plan.version),
        "SUITE": suite,
        "PACKAGES": " ".join([packages(plan.version), *asked.packages]),
    }
    other = {"DATABASE_BASE": asked.base.format(suite=database, version=plan.version)}
    return {
        "slurm": _image(plan, asked.slurm, "slurm", plan.version, slurm),
        "database": _image(plan, asked.database, "database", database, other),
        "monitoring": _image(plan, asked.monitoring, "monitoring", database, other),
    }


def packages(version: str) -> str:
    """The Debian packages that are this Slurm, and what its nodes need beside it."""
    words = [_ALWAYS]
    if at_least(version, "22.05"):
        words.append("slurmrestd slurm-wlm-jwt-plugin")
    if at_least(version, "23.11"):
        words.append("sackd")
    return " ".join(words)


def _image(plan: Plan, given: str, target: str, tag: str, arguments: dict[str, str]) -> Image:
    # The same content has the same name, and a changed one is never mistaken for it.
    content = [template("Containerfile"), template("entrypoint.sh"), *arguments.values()]
    digest = hashlib.sha256("\0".join(content).encode()).hexdigest()[:12]
    name = given.format(version=plan.version, suite=plan.suite)
    return Image(name or f"{REPOSITORY}/{target}:{tag}-{digest}", target, tuple(arguments.items()))
