"""podman or docker as a program: create, start, ask, stop; every call has an end."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

from slurm.errors import StackError
from slurm.programs import install_command, named
from slurm.stack.advice import likely_fix
from slurm.stack.containers import CLUSTER, DIRECTORY, SERVICE, SPEC, Container

_PATIENCE = 120.0


class Said(NamedTuple):
    """How a program ended, and what it printed, errors included."""

    code: int
    text: str

    @property
    def last(self) -> list[str]:
        """Its last lines that say something."""
        return [line for line in self.text.splitlines() if line.strip()][-12:]


class Seen(NamedTuple):
    """A container as the engine has it."""

    service: str
    name: str
    state: str
    spec: str
    directory: str
    image: str
    restarts: int
    code: int

    @property
    def running(self) -> bool:
        """Whether its daemon may be at work."""
        return self.state == "running"


class Engine:
    """The containers of one cluster, through one program."""

    def __init__(self, program: str, cluster: str) -> None:
        self.program = program
        self.cluster = cluster
        if shutil.which(program) is None:
            raise StackError(
                f"{program} is not installed, and this cluster runs in its containers",
                hint=install_command([named(program)]),
            )

    def call(
        self,
        *words: str,
        patience: float = _PATIENCE,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
    ) -> Said:
        """Run the engine; one that takes too long counts as failed."""
        try:
            done = subprocess.run(
                [self.program, *words],
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout or subprocess.PIPE,
                stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Said(124, f"no end after {patience:g} s")
        text = (done.stderr if stdout else done.stdout) or b""
        return Said(done.returncode, text.decode(errors="replace"))

    def must(self, *words: str, problem: str, patience: float = _PATIENCE) -> str:
        """The same for a call that has to succeed."""
        said = self.call(*words, patience=patience)
        if said.code != 0:
            fix = likely_fix(said.last) or "mend what is said above"
            raise StackError(
                problem,
                evidence=[f"$ {self.program} {words[0]} ...", *said.last],
                hint=f"{fix}; then the same command again",
            )
        return said.text

    # ---- what is there --------------------------------------------------------------------------

    def seen(self) -> dict[str, Seen]:
        """The cluster's containers by service, whatever state they are in."""
        listed = self.must(
            *("ps", "--all", "--quiet", "--filter", f"label={CLUSTER}={self.cluster}"),
            problem=f"{self.program} does not list its containers",
        ).split()
        if not listed:
            return {}
        # One that goes away in between is no error: what is left is printed all the same.
        said = self.call("inspect", "--type", "container", *listed)
        start = said.text.find("[")
        try:
            found, _ = json.JSONDecoder().raw_decode(said.text[start:]) if start >= 0 else ([], 0)
        except ValueError:
            raise StackError(
                f"{self.program} inspect says nothing that can be read", evidence=said.last
            ) from None
        every = [_seen(item) for item in found]
        return {one.service: one for one in every}

    def log(self, name: str, lines: int = 40) -> list[str]:
        """The last lines of what a container said."""
        said = self.call("logs", "--tail", str(lines), name)
        return said.text.splitlines() if said.code == 0 else []

    # ---- containers -----------------------------------------------------------------------------

    def create(self, container: Container) -> None:
        """Make a container anew, joined to its networks, not started."""
        problem = f"{container.service} could not be created"
        # A start that was interrupted may have left one half made.
        self.remove(container.name)
        self.must("create", *container.create, problem=problem)
        for network in container.networks:
            self.must("network", "connect", network, container.name, problem=problem)

    def start(self, container: Container) -> None:
        """Start a container that was created or stopped."""
        self.must("start", container.name, problem=f"{container.service} could not be started")

    def stop(self, name: str, grace: int) -> None:
        """SIGTERM, and wait for the end; what ignores it for so many seconds is killed."""
        self.must(
            *("stop", "-t", str(grace), name),
            problem=f"{name} could not be stopped",
            patience=grace + _PATIENCE,
        )

    def remove(self, name: str) -> None:
        """Remove a stopped container, if it is there; its volumes stay."""
        self.call("rm", "--force", name)

    def execute(self, name: str, *words: str, patience: float = 60) -> Said:
        """Run a command in a container."""
        return self.call("exec", name, *words, patience=patience)

    def healthy(self, container: Container) -> bool:
        """Whether the service does its work; podman never asks by itself without systemd."""
        return self.execute(container.name, *container.health, patience=30).code == 0

    # ---- networks and volumes -------------------------------------------------------------------

    def has_network(self, name: str) -> bool:
        """Whether a network of that name exists."""
        return self.call("network", "inspect", name).code == 0

    def make_inner_network(self, name: str, subnets: Iterable[str]) -> str:
        """An internal network in the first of these subnets that is free here."""
        words = ["network", "create", "--internal", "--label", f"{CLUSTER}={self.cluster}"]
        if self.program == "podman":
            # Every name is in /etc/hosts: no daemon may depend on an answer of the resolver.
            words.append("--disable-dns")
        said = Said(1, "")
        for subnet in subnets:
            said = self.call(*words, "--subnet", subnet, name)
            if said.code == 0:
                return subnet
        raise StackError(
            f"no free subnet was found for the network {name}",
            evidence=said.last,
            hint='name one in cluster.toml: [network] subnet = "10.77.0.0/24"',
        )

    def make_network(self, name: str) -> None:
        """An ordinary network, for what is published."""
        if not self.has_network(name):
            words = ("network", "create", "--label", f"{CLUSTER}={self.cluster}", name)
            self.must(*words, problem=f"the network {name} could not be made")

    def owned(self, kind: str) -> list[str]:
        """The names of this cluster's own networks or volumes."""
        mine = f"label={CLUSTER}={self.cluster}"
        words = (kind, "ls", "--filter", mine, "--format", "{{.Name}}")
        return self.must(*words, problem=f"{self.program} does not list its {kind}s").split()

    def volumes(self) -> set[str]:
        """The names of all volumes, whoever made them."""
        words = ("volume", "ls", "--format", "{{.Name}}")
        return set(self.must(*words, problem=f"{self.program} does not list its volumes").split())

    def make_volume(self, name: str) -> None:
        """A volume that outlives its containers."""
        words = ("volume", "create", "--label", f"{CLUSTER}={self.cluster}", name)
        self.must(*words, problem=f"the volume {name} could not be made")


def _seen(item: dict[str, object]) -> Seen:
    config, state = item["Config"], item["State"]
    assert isinstance(config, dict) and isinstance(state, dict)
    labels = config.get("Labels") or {}
    return Seen(
        service=labels.get(SERVICE, ""),
        name=str(item["Name"]).lstrip("/"),
        state=str(state.get("Status", "")),
        spec=labels.get(SPEC, ""),
        directory=labels.get(DIRECTORY, ""),
        image=str(config.get("Image", "")),
        restarts=int(str(item.get("RestartCount") or 0)),
        code=int(str(state.get("ExitCode") or 0)),
    )


def pour(engine: Engine, words: tuple[str, ...], file: Path, problem: str) -> None:
    """Write what the engine prints into a file, whole or not at all."""
    fresh = file.with_name(file.name + ".new")
    with fresh.open("wb") as sink:
        said = engine.call(*words, stdout=sink, patience=3600)
    if said.code != 0:
        raise StackError(problem, evidence=said.last)
    fresh.chmod(0o600)
    fresh.replace(file)
