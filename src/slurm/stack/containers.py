"""Plan -> the containers of this host, each as the words that make an engine create it; pure."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from slurm.stack.compose import compose, reserved_devices
from slurm.stack.conf import slurm_conf, slurmdbd_conf
from slurm.stack.monitoring import monitoring_files
from slurm.stack.plan import Plan
from slurm.stack.services import EDGE, NETWORK, named_volumes
from slurm.stack.yaml import plain

#: Labels by which a container says whose it is, and from which words it was made.
CLUSTER, DIRECTORY, SERVICE, SPEC = (
    f"slurm-sdk.{n}" for n in ("cluster", "dir", "service", "spec")
)
#: Keys of slurm.conf that daemons take over only when they start.
_AT_START = (
    *("authalttypes", "authaltparameters", "authinfo", "authtype", "clustername", "credtype"),
    *("jobacctgathertype", "plugindir", "proctracktype", "selecttype", "selecttypeparameters"),
    *("slurmctldhost", "slurmctldport", "slurmdspooldir", "slurmuser", "statesavelocation"),
    *("switchtype", "taskplugin"),
)
#: Who must answer before whom; an upgrade goes the same way.
_ORDER = ("mysql", "slurmdbd", "slurmctld", "slurmctld-backup", "slurmd-", "")
_SECONDS = {"s": 1, "m": 60}
_DEFAULT_GRACE = 30


@dataclass(frozen=True)
class Container:
    """One service: how it is created, which further networks it joins, how it is asked and ended.

    `spec` is a digest of all this: a container that has another one is not as it should be.
    """

    service: str
    name: str
    image: str
    create: tuple[str, ...]
    networks: tuple[str, ...]
    health: tuple[str, ...]
    grace: int
    node: str = ""
    spec: str = ""


def containers(plan: Plan, directory: Path) -> tuple[Container, ...]:
    """The containers of this host in the order in which they come up."""
    whole = cast("dict[str, Any]", plain(compose(plan)))
    nodes = {node.hostname: node.name for node in plan.nodes}
    made = [
        container(plan, directory, name, service, nodes.get(name, ""), plan.topology.name)
        for name, service in whole["services"].items()
    ]
    return tuple(sorted(made, key=lambda container: _turn(container.service)))


def volumes(plan: Plan) -> list[str]:
    """The named volumes of the cluster, as the engine knows them."""
    whole = cast("dict[str, Any]", plain(compose(plan)))
    return [f"{plan.topology.name}_{name}" for name in named_volumes(whole["services"])]


def network(cluster: str, which: str = NETWORK) -> str:
    """A network's name in the engine, the same as compose gives it."""
    return f"{cluster}_{which}"


def _turn(service: str) -> int:
    return next(n for n, start in enumerate(_ORDER) if service.startswith(start) or not start)


def container(
    plan: Plan, directory: Path, service: str, entry: dict[str, Any], node: str, project: str
) -> Container:
    """One service of a compose project as a container; every name in it is the project's."""
    words = tuple(_options(plan, directory, entry, project))
    joined = entry.get("networks", {})
    edge = (network(project, EDGE),) if len(joined) > 1 else ()
    health = tuple(entry["healthcheck"]["test"][1:])
    digest = _digest([entry["image"], *_lasting(words), *edge, *_at_start(plan, service)])
    labels = {CLUSTER: project, DIRECTORY: str(directory), SERVICE: service, SPEC: digest}
    marks = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    return Container(
        service=service,
        name=entry["container_name"],
        image=entry["image"],
        create=(
            *("--name", entry["container_name"], *marks, *words),
            *(entry["image"], *entry.get("command", ())),
        ),
        networks=edge,
        health=health,
        grace=_seconds(entry.get("stop_grace_period", "")),
        node=node,
        spec=digest,
    )


def _digest(words: list[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def _lasting(words: tuple[str, ...]) -> list[str]:
    # No daemon looks another up by name: for one that comes or goes nobody has to start anew.
    pairs = zip(("", *words), words, strict=False)
    return [word for before, word in pairs if "--add-host" not in (before, word)]


def _at_start(plan: Plan, service: str) -> list[str]:
    """What a service reads when it starts and never again."""
    if service == "slurmdbd":
        return [slurmdbd_conf(plan)]
    folder = service.removeprefix("slurm-") + "/"
    own = [text for name, text in monitoring_files(plan).items() if name.startswith(folder)]
    if not service.startswith("slurm"):
        return own
    lines = slurm_conf(plan).splitlines()
    return own + [x for x in lines if x.partition("=")[0].strip().lower() in _AT_START]


def _options(plan: Plan, directory: Path, entry: dict[str, Any], project: str) -> Iterator[str]:
    """The options of `create`, which podman and docker have in common."""
    if "hostname" in entry:
        yield from ("--hostname", entry["hostname"])
    yield from ("--init", "--restart", entry["restart"], *_first_network(entry, project))
    for key, value in entry.get("environment", {}).items():
        yield from ("--env", f"{key}={value}")
    for volume in entry.get("volumes", ()):
        yield from ("--volume", _volume(project, directory, volume))
    for secret in entry.get("secrets", ()):
        yield from ("--volume", f"{directory}/secrets/{secret}:/run/secrets/{secret}:ro")
    for port in entry.get("ports", ()):
        yield from ("--publish", port)
    for capability in entry.get("cap_add", ()):
        yield from ("--cap-add", capability)
    for device in entry.get("devices", ()):
        yield from ("--device", device)
    for wanted in reserved_devices(entry):
        # One word of a list: docker itself takes the quotes off.
        yield from ("--gpus", f'"device={",".join(wanted["device_ids"])}"')
    yield from _limits(plan, entry)
    if plan.topology.engine == "docker":
        # podman asks only where systemd reminds it; docker shows the answers by itself.
        yield from _asked(entry["healthcheck"])


def _asked(check: dict[str, Any]) -> Iterator[str]:
    yield from ("--health-cmd", shlex.join(check["test"][1:]))
    for key in ("interval", "timeout", "retries", "start_period"):
        yield from (f"--health-{key.replace('_', '-')}", str(check[key]))


def _first_network(entry: dict[str, Any], project: str) -> Iterator[str]:
    if "network_mode" in entry:
        # service:NAME: in the network of the project's first container, whose hosts it knows, too.
        first = entry["network_mode"].partition(":")[2]
        yield from ("--network", f"container:{project}-{first}")
        return
    which, details = next(iter(entry["networks"].items()))
    yield from ("--network", network(project, which))
    if "ipv4_address" in details:
        yield from ("--ip", details["ipv4_address"])
    for host in entry["extra_hosts"]:
        yield from ("--add-host", host)


def _limits(plan: Plan, entry: dict[str, Any]) -> Iterator[str]:
    yield from ("--log-driver", entry["logging"]["driver"])
    # podman rotates by size alone and knows no number of files.
    known = ("max-size",) if plan.topology.engine == "podman" else ("max-size", "max-file")
    for option in known:
        yield from ("--log-opt", f"{option}={entry['logging']['options'][option]}")
    yield from ("--memory", entry["mem_limit"])
    if entry.get("cpus"):
        yield from ("--cpus", str(entry["cpus"]))
    if entry.get("privileged"):
        yield from ("--privileged", f"--cgroupns={entry['cgroup']}")
    if entry.get("user"):
        yield from ("--user", entry["user"])
    if entry.get("platform"):
        yield from ("--platform", entry["platform"])


def _volume(project: str, directory: Path, text: str) -> str:
    if text.startswith("./"):
        return f"{directory}{text[1:]}"
    return text if text.startswith("/") else f"{project}_{text}"


def _seconds(text: str) -> int:
    return int(text[:-1]) * _SECONDS[text[-1]] if text else _DEFAULT_GRACE
