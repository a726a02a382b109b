"""Which container runtimes the cluster has, as far as its login node shows; on Python 3.6."""

import os
import subprocess
from typing import Dict

from slurm.api import starting
from slurm.api.pythons import which


def find(scheduler: str) -> Dict[str, str]:
    """The runtimes by name, and where each was found; compute nodes may differ."""
    found = {}  # type: Dict[str, str]
    for name, programs in (("apptainer", ("apptainer", "singularity")), ("podman", ("podman",))):
        paths = [path for path in map(which, programs) if path]
        if paths:
            found[name] = paths[0]
    if scheduler != "slurm":
        return found
    # Options of srun itself; those of a plugin are in its help, too.
    told = _help()
    if "--container-image" in told:
        found["pyxis"] = "srun --container-image"
    conf = os.path.join(os.path.dirname(os.environ.get("SLURM_CONF") or "/etc/slurm/x"), "oci.conf")
    if "--container " in told and os.path.exists(conf):
        found["oci"] = conf
    return found


def _help() -> str:
    srun = which("srun")
    if srun is None:
        return ""
    try:
        done = starting.run(
            [srun, "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(done.stdout.decode("utf-8", "replace"))
