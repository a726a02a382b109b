"""Slurm's releases as data: which we know, the Debian that carries each, who may follow whom."""

from __future__ import annotations

from slurm.errors import ConfigError, nearest

#: Every major release in the order of time; a minor release never changes what files may hold.
MAJORS = (
    *("20.11", "21.08", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05"),
)
#: The Debian release whose packages are that Slurm; only these can be built and run.
SUITES = {"20.11": "bullseye", "22.05": "bookworm", "24.11": "trixie", "26.05": "forky"}
DEFAULT = "24.11"


def major(version: str) -> str:
    """`24.11` of `24.11`, `24.11.5` or `slurm 24.11.5-4`; refuses what is no Slurm release."""
    words = version.strip().removeprefix("slurm").removeprefix("-wlm").strip()
    found = ".".join(words.split(".")[:2])
    if found not in MAJORS:
        close = nearest(found, MAJORS)
        raise ConfigError(
            f"version={version!r} is not a Slurm release known here",
            hint=f"did you mean {close}?" if close else f"one of {', '.join(MAJORS)}",
        )
    return found


def at_least(version: str, floor: str) -> bool:
    """Whether `version` is the release `floor` or a later one."""
    return MAJORS.index(version) >= MAJORS.index(floor)


def accepts(new: str) -> tuple[str, ...]:
    """The releases whose state, database and daemons a new release understands, oldest first.

    From 24.11 on these are the three before it, earlier the two before it.
    """
    here = MAJORS.index(new)
    return MAJORS[max(0, here - (3 if at_least(new, "24.11") else 2)) : here]
