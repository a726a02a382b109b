"""Containers: the function runs in an image, which is used as it is or built, pushed and pinned.

`prepare_container` is the packaging itself; `build_image` builds a `Build` and gives its `Image`,
and a `Container` is the way in which a job enters one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.packaging.container.build import Image, build_image
    from slurm.packaging.container.engines import Build
    from slurm.packaging.container.prepare import prepare_container
    from slurm.packaging.container.runtimes import Container

__all__ = ["Build", "Container", "Image", "build_image", "prepare_container"]

_HOME = {
    "Build": "engines",
    "Container": "runtimes",
    "Image": "build",
    "build_image": "build",
    "prepare_container": "prepare",
}


def __getattr__(name: str) -> Any:
    """Load the module of a name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
