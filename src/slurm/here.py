"""The working directory of this process, which somebody may have deleted."""

from __future__ import annotations

import os
import sys


def working_directory() -> str:
    """Where this process is; the home directory where that is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.path.expanduser("~")


def import_path() -> list[str]:
    """Absolute entries of the import path; those below a deleted directory lead nowhere."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return [os.path.normpath(entry) for entry in sys.path if os.path.isabs(entry)]
    return [os.path.normpath(os.path.join(here, entry)) for entry in sys.path]
