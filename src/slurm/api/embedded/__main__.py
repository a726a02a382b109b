"""Starts the scheduler's process: the program that the client runs in a fresh interpreter."""

from __future__ import annotations

import sys


def start(root: str, directory: str, socket: str, ready: str) -> None:
    """Become the scheduler of a place; `root` is where this package was imported from."""
    # Last, so that nothing beside this package can stand in for the standard library.
    sys.path.append(root)
    from slurm.api.embedded.daemon import main
    from slurm.api.embedded.place import Place

    main(Place(directory, socket), int(ready))


if __name__ == "__main__":
    start(*sys.argv[1:])
