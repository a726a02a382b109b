"""The metadata of a run, as clients read it back."""

from __future__ import annotations

import json
from typing import Any


def read_metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a run, or an empty dictionary where there is none."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
