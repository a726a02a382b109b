"""Why a container did not start, read from what its runtime said last: a table, pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What a runtime says -> what it means, and what mends it.
_MEANINGS = (
    (
        r"executable file.*not found|command not found|no such file or directory: OCI runtime att"
        r"|execve\(\).*No such file|stat .*python.*no such file",
        "the image {image} has no Python where it was looked for",
        "install Python 3.8 or newer in the image, or say where it is in it: "
        'packaging={{"type": "container", "python": "/path", ...}}',
    ),
    (
        r"exec format error|image platform .* does not match",
        "the image {image} was made for another kind of machine",
        'build it for the nodes: packaging={{"type": "container", "platform": "linux/amd64", ...}}',
    ),
    (
        r"server gave HTTP response|x509|certificate",
        "the registry of {image} has no certificate that the node trusts",
        "have it trusted there, or for a registry of your own: tls_verify=False",
    ),
    (
        r"unauthorized|authentication required|denied: requested access",
        "the registry of {image} wants a login",
        "log in on the cluster as the same user: podman login REGISTRY (or apptainer, enroot)",
    ),
    (
        r"manifest unknown|not found: manifest|name unknown|no such image|does not exist",
        "there is no image {image}",
        "was it removed from the registry? build it anew with no_cache=True",
    ),
    (
        r"could not be pulled|connection refused|no such host|i/o timeout|unreachable",
        "the image {image} could not be fetched on the node",
        "is the registry up, and can compute nodes reach it?",
    ),
    (
        r"Task count specification|Task launch .* failed",
        "Slurm could not start the container",
        "Slurm before 23.02 starts one task per node in a container, and oci.conf has to be there; "
        "another runtime can do more",
    ),
)


def explain(image: str, lines: Sequence[str]) -> tuple[str, str]:
    """What went wrong with a container, and the fix."""
    text = "\n".join(lines)
    for pattern, meaning, fix in _MEANINGS:
        if re.search(pattern, text, re.IGNORECASE):
            return meaning.format(image=image), fix.format()
    return f"the container of {image} did not start", "see the log; start it by hand on a node"
