"""The metadata of a run, as clients read it back."""

from __future__ import annotations

import json
from typing import Any

from slurm.rundir.about import checked


def read_metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a run, or an empty dictionary where there is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return checked(found) if isinstance(found, dict) else {}
