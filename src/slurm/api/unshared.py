"""Which partitions and nodes of a cluster see no shared file, so that no run is sent there.

`slurm cluster` writes this beside slurm.conf where a host has joined without the shared directory.
Without that file, which other clusters do not have, nothing is read and nothing is asked.
"""

import json
import os
import re
from typing import Any, Callable, Dict, List, Mapping, Optional

FILE_NAME = "noshared.json"
#: The feature of such nodes, and how the node sets begin that such partitions consist of.
FEATURE = "noshared"
_OPTION = re.compile(r"^#SBATCH\s+--(partition|nodelist)=(\S+)", re.MULTILINE)
_VARIABLES = {"partition": "SBATCH_PARTITION"}


def known(env: Mapping[str, str]) -> Optional[Dict[str, Any]]:
    """What the file beside slurm.conf says; None where there is none."""
    conf = env.get("SLURM_CONF") or "/etc/slurm/slurm.conf"
    try:
        with open(os.path.join(os.path.dirname(conf), FILE_NAME)) as f:
            found = json.load(f)  # type: Dict[str, Any]
    except (OSError, ValueError):
        return None
    return found


def why_not(
    found: Dict[str, Any],
    script: str,
    env: Mapping[str, str],
    expand: Callable[[str], List[str]],
) -> Optional[str]:
    """Why a run cannot go where a script sends it; None where it can. `expand`s a host list."""
    asked = {option: env[name] for option, name in _VARIABLES.items() if name in env}
    asked.update(dict(_OPTION.findall(script)))
    for option, value in asked.items():
        for name in expand(value) if "[" in value else value.split(","):
            if name in found[option]:
                words = "{}={} is on {}, which does not have {}: the run would not find its files"
                return words.format(option, name, found[option][name], found["path"])
    return None
