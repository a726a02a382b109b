"""Folders that nobody changes any more: they are made read-only, and removed all the same."""

import contextlib
import os
import shutil


def protect(top: str, writable: bool = False) -> None:
    """Take the right to write from a folder and all in it, or give it back."""
    for folder, _, names in os.walk(top):
        for path in [folder] + [os.path.join(folder, name) for name in names]:
            if not os.path.islink(path):
                mode = os.stat(path).st_mode & 0o777
                os.chmod(path, mode | 0o700 if writable else mode & 0o555)


def remove_tree(path: str) -> None:
    """Remove a folder that may be read-only; what cannot be removed does no harm."""
    with contextlib.suppress(OSError):
        protect(path, writable=True)
    shutil.rmtree(path, ignore_errors=True)
