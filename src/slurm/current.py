"""The function of an earlier run as it stands in its file today."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from slurm import rundir
from slurm.errors import UsageError
from slurm.importing import Importing
from slurm.metadata import read_metadata
from slurm.packaging.inherit import read_environment

if TYPE_CHECKING:
    from slurm.cluster import Cluster
    from slurm.submission import Code


def current_code(cluster: Cluster, run: str) -> Code:
    """The code of a run's function as it is now, ready to travel as a new call's would."""
    from slurm.submission import Submitter

    function = current_function(cluster, run)
    given = read_metadata(cluster.backend.read_own(run, rundir.METADATA)).get("options", {})
    options: Any = {name: given[name] for name in ("python", "venv", "conda") if given.get(name)}
    return Submitter(cluster, function, (), None, options).ship_function()


def current_function(cluster: Cluster, run: str) -> Any:
    """The function of a run, imported from its file as it is now."""
    metadata = read_metadata(cluster.backend.read_own(run, rundir.METADATA))
    header, _ = rundir.decode_function(cluster.backend.read_own(run, rundir.FUNCTION), run)
    module, _, name = str(metadata["target"]).partition(":")
    for entry in header.get("path", ()):
        if entry not in sys.path:
            sys.path.append(entry)
    if module == "__main__":
        module = _script(cluster, run)
    if "<" in name or not module:
        raise UsageError(
            f"{name} of {run} is in no file that could be imported: only the code that was "
            "submitted is there",
            hint="leave --code out, or submit it from the program that defines it",
        )
    try:
        with Importing(module):
            found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{module}.{name} of {run} cannot be imported here: {error}",
            hint="run it where the code lies, or leave --code out",
        ) from error
    return found


def _script(cluster: Cluster, run: str) -> str:
    """The module that a run's script is when it is imported; "" for one without a file."""
    details = read_environment(cluster.backend.read_own(run, rundir.ENVIRONMENT)).details
    script = str((details.get("captured") or {}).get("script") or "")
    if not os.path.isfile(script):
        return ""
    sys.path.insert(0, os.path.dirname(script))
    return os.path.basename(script).rpartition(".")[0]
