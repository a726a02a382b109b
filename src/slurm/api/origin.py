"""Which scheduler made a run: two that share a base directory give the same job ids.

Runs where the scheduler is, on Python 3.6.
"""

import os
import re
from typing import Any, Dict, Mapping, NamedTuple, Optional  # noqa: F401 - in comments

from slurm import rundir
from slurm.api import run_files
from slurm.api.agent_error import AgentError

#: Where the metadata of a run keeps it.
KEY = "scheduler"

#: Where slurm.conf lies if no variable names it; the last two where slurmd fetches it.
_CONF = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
)
_SETTING = re.compile(
    r"^\s*(ClusterName|SlurmctldHost(?:\[0\])?|ControlMachine|SlurmctldPort)\s*=\s*([^\s#]+)", re.I
)
_PORT = "6817"


class Origin(NamedTuple):
    """A scheduler. A field that is "" is not known."""

    #: `slurm` or `embedded`.
    kind: str
    #: The cluster's own name.
    cluster: str
    #: The host of its (first) controller, with the port; of an embedded one its host.
    controller: str
    #: Of an embedded one its queue: one that is made later gives the same ids again.
    instance: str = ""

    def __str__(self) -> str:
        if self.kind == "embedded":
            mark = f" ({self.instance[:6]})" if self.instance else ""
            return f"the embedded scheduler of {self.controller or 'some host'}{mark}"
        return f"Slurm cluster {self.cluster or 'without a name'}" + (
            f" of {self.controller}" if self.controller else ""
        )

    @property
    def key(self) -> str:
        """A word for it that may stand in a file's name."""
        plain = "-".join(part for part in (self.instance or self.cluster, self.controller) if part)
        return re.sub(r"[^A-Za-z0-9.-]", "_", plain)

    def is_same(self, other: "Origin") -> bool:
        """Whether both are one scheduler, as far as is known of them."""
        if self.kind != other.kind:
            return False
        if self.instance and other.instance:
            return self.instance == other.instance
        return _agree(self.cluster, other.cluster) and _agree_hosts(
            self.controller, other.controller
        )


def _agree(one: str, other: str) -> bool:
    return not one or not other or one == other


def _agree_hosts(one: str, other: str) -> bool:
    host, _, port = one.partition(":")
    other_host, _, other_port = other.partition(":")
    return _agree(host, other_host) and _agree(port, other_port)


def of(scheduler: Any) -> Optional[Origin]:
    """What a scheduler is; None where it cannot say so."""
    ask = getattr(type(scheduler), "identify", None)
    try:
        return None if ask is None else ask(scheduler)
    except AgentError:
        return None
    except Exception as error:  # told apart below; anything else is raised again
        if getattr(error, "agent_kind", None) is None:
            raise
        return None  # the embedded scheduler raises what the user will see


def of_run(path: str) -> Optional[Origin]:
    """The scheduler that a run was given to; None for a run that does not say so."""
    found = run_files.metadata(path).get(KEY)
    if not isinstance(found, dict) or not found.get("kind"):
        return None
    return Origin(*(str(found.get(name) or "") for name in Origin._fields))


def marked(scheduler: Any, metadata: bytes) -> bytes:
    """The metadata of a run with the scheduler that it is given to."""
    import json

    origin = of(scheduler)
    if origin is None:
        return metadata
    found = json.loads(metadata.decode("utf-8"))
    return run_files.encode_json(dict(found, **{KEY: dict(origin._asdict())}))


def of_settings(settings: Mapping[str, str]) -> Origin:
    """A Slurm cluster by its settings, as `scontrol show config` or slurm.conf names them."""
    plain = {name.lower(): value for name, value in settings.items()}
    host = plain.get("slurmctldhost[0]") or plain.get("slurmctldhost")
    host = (host or plain.get("controlmachine") or "").partition("(")[0].partition(",")[0]
    port = plain.get("slurmctldport") or _PORT
    return Origin("slurm", plain.get("clustername", "").lower(), f"{host}:{port}" if host else "")


def of_conf(conf: str = "") -> Optional[Origin]:
    """The Slurm cluster of a slurm.conf, $SLURM_CONF's or this machine's; None: not to be read."""
    named = conf or os.environ.get("SLURM_CONF", "")
    path = named or next((path for path in _CONF if os.path.isfile(path)), "")
    found = {}  # type: Dict[str, str]
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                match = _SETTING.match(line)
                if match:
                    found.setdefault(match.group(1), match.group(2))
    except OSError:
        return None
    origin = of_settings(found)
    return origin if origin.cluster and origin.controller else None  # the rest is included


def is_id(text: str) -> bool:
    """Whether a person names a job by its id: `12`, `12_3`, `12.1` or `12+1`."""
    return re.match(r"[0-9]+([._+][0-9]+)?(;.*)?\Z", text) is not None


def link_to(base: str, job: str, own: Optional[Origin]) -> str:
    """The run in a base directory that this scheduler's job belongs to; "" for none."""
    folder = os.path.join(base, rundir.BASE_IDS)
    for name in ([f"{job}@{own.key}"] if own is not None else []) + [job]:
        link = os.path.join(folder, name)
        if os.path.islink(link):
            path = os.path.realpath(link)
            made = of_run(path)
            if own is None or made is None or made.is_same(own):
                return path
    return ""


def name_for(base: str, job: str, path: str) -> str:
    """What the link of a job to its run is called: the id, if no other scheduler's job has it."""
    link = os.path.join(base, rundir.BASE_IDS, job)
    if not os.path.islink(link):
        return link
    made, own = of_run(os.path.realpath(link)), of_run(path)
    if own is None or made is None or made.is_same(own):
        return link
    return f"{link}@{own.key}"
