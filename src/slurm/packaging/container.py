"""Containers: the function runs in an image, which is used as it is or built, pushed and pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm.errors import PackagingError

if TYPE_CHECKING:
    from slurm.packaging.prepare import Prepared, Request


def prepare_container(request: Request) -> Prepared:
    """The environment of a call that runs in a container.

    `request.packaging.options` are those of `choose.OPTIONS["container"]`. What comes back names
    the words that start Python in the container (`Environment.launch`) or srun's own flags
    (`Environment.srun`), the Python inside of it (`python`) and outside (`outside`), the image by
    digest (`digest`, `details`), and which modules the image holds (`Prepared.holds`).
    """
    raise PackagingError("packaging='container' is not built yet", hint="use wheel, source or none")
