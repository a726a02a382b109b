"""podman as a value: containers, networks and volumes, and a Slurm that obeys; nothing runs.

It stands where a real cluster is too slow: a command is interrupted at each of its hundred steps.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from slurm.stack import versions
from slurm.stack.engine import Said

_FLAGS = ("--init", "--privileged", "--rm", "--interactive")
_ORDER = ("slurmdbd", "slurmctld", "slurmd-")


@dataclass
class Box:
    """A container."""

    name: str
    image: str
    labels: dict[str, str]
    state: str = "created"
    code: int = 0
    restarts: int = 0

    @property
    def service(self) -> str:
        return self.labels["slurm-sdk.service"]

    @property
    def version(self) -> str:
        return versions.major(self.image.rpartition(":")[2].partition("-")[0])


@dataclass
class FakePodman:
    """One host; `wrong` collects what must never be, at whatever moment."""

    boxes: dict[str, Box] = field(default_factory=dict)
    owned: dict[str, list[str]] = field(default_factory=lambda: {"network": [], "volume": []})
    reasons: dict[str, str] = field(default_factory=dict)
    reserved: str = ""
    state: bytes = b"the queue"
    database: bytes = b"the accounting"
    poison: str = ""
    wrong: list[str] = field(default_factory=list)
    canaries: list[str] = field(default_factory=list)

    def call(
        self,
        *words: str,
        patience: float = 0,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
    ) -> Said:
        verb = words[0]
        if verb in ("network", "volume"):
            return self._kept(verb, *words[1:])
        return getattr(self, f"_{verb}")(list(words[1:]), stdin, stdout)

    def _kept(self, kind: str, verb: str, *words: str) -> Said:
        names = self.owned[kind]
        if verb == "create":
            names.append(words[-1])
        elif verb == "rm":
            names.remove(words[-1])
        elif verb == "inspect" and words[-1] not in names:
            return Said(1, "no such thing")
        return Said(0, "\n".join(names) if verb == "ls" else "")

    def _ps(self, *_: Any) -> Said:
        return Said(0, "\n".join(self.boxes))

    def _inspect(self, words: list[str], *_: Any) -> Said:
        boxes = [self.boxes[name] for name in words[2:]]
        for box in boxes:
            # Who ended by itself is started again and again.
            box.restarts += box.code
        every = [
            {
                "Name": box.name,
                "Config": {"Labels": box.labels, "Image": box.image},
                "RestartCount": box.restarts,
                "State": {"Status": box.state, "ExitCode": box.code},
            }
            for box in boxes
        ]
        return Said(0, json.dumps(every))

    def _create(self, words: list[str], *_: Any) -> Said:
        options, rest = _options(words)
        labels = dict(value.split("=", 1) for key, value in options if key == "--label")
        name = dict(options)["--name"]
        self.boxes[name] = Box(name, rest[0], labels)
        return Said(0, name)

    def _start(self, words: list[str], *_: Any) -> Said:
        box = self.boxes[words[0]]
        box.state = "exited" if self._poisoned(box) else "running"
        box.code = int(box.state == "exited")
        self._check_order()
        return Said(0, "")

    def _poisoned(self, box: Box) -> bool:
        """A slurmctld that cannot live with its file."""
        conf = Path(box.labels["slurm-sdk.dir"]) / "shared" / "slurm.conf"
        return box.service == "slurmctld" and bool(self.poison) and self.poison in conf.read_text()

    def _check_order(self) -> None:
        """slurmdbd >= slurmctld >= slurmd, at every moment."""
        running = [box for box in self.boxes.values() if box.state == "running"]
        found = [[b.version for b in running if b.service.startswith(s)] for s in _ORDER]
        for newer, older in itertools.pairwise(found):
            if newer and older and min(newer) < max(older):
                self.wrong.append(f"{newer} beside {older}")

    def _stop(self, words: list[str], *_: Any) -> Said:
        box = self.boxes[words[-1]]
        node = box.service.removeprefix("slurmd-")
        if node != box.service and box.state == "running" and node not in self.reasons:
            self.wrong.append(f"{node} was stopped while it was in service")
        if box.state == "running":
            box.state, box.code = "exited", 0
        return Said(0, "")

    def _kill(self, words: list[str], *_: Any) -> Said:
        self.boxes[words[-1]].state = "exited"
        return Said(0, "")

    def _rm(self, words: list[str], *_: Any) -> Said:
        self.boxes.pop(words[-1], None)
        return Said(0, "")

    def _logs(self, *_: Any) -> Said:
        return Said(0, "fatal: something is wrong\n")

    def _run(self, words: list[str], stdin: Any, stdout: Any) -> Said:
        """tar on the controller's state."""
        if any(b.service == "slurmctld" and b.state == "running" for b in self.boxes.values()):
            self.wrong.append("the state was touched while slurmctld ran")
        if stdout is not None:
            stdout.write(self.state)
        else:
            self.state = stdin.read()
        return Said(0, "")

    def _exec(self, words: list[str], stdin: Any, stdout: Any) -> Said:
        _, rest = _options(words)
        box = self.boxes.get(rest[0])
        if box is None or box.state != "running":
            return Said(125, "it does not run")
        if rest[1] == "mariadb-dump":
            stdout.write(self.database)
        elif rest[1] == "mariadb":
            self.database = stdin.read()
        elif rest[1] == "cat":
            return Said(0, "ssh-ed25519 AAAA")
        elif box.service == "slurmctld":
            return self._slurm(rest[1], rest[2:], box)
        return Said(0, "asked")

    def _slurm(self, program: str, words: list[str], box: Box) -> Said:
        given = dict(word.split("=", 1) for word in words if "=" in word)
        if program == "sinfo" and "--list-reasons" in words:
            return Said(0, "\n".join(f"{n}|{why}" for n, why in self.reasons.items()))
        if program == "sinfo":
            return Said(0, "\n".join(f"{n} {self._node(n)}" for n in self._nodes()))
        if program == "squeue":
            return Said(0, "")
        if program == "srun":
            return self._srun(given)
        if words[:1] == ["ping"]:
            return Said(0, "Slurmctld(primary) at slurmctld is UP")
        if words[:1] == ["reconfigure"] and self._poisoned(box):
            box.state, box.code = "exited", 1
            return Said(1, "fatal")
        if words[:2] == ["show", "reservation"]:
            return Said(
                0 if self.reserved else 1, f"ReservationName=x Nodes={self.reserved} Core=1"
            )
        if words[:2] == ["create", "reservation"]:
            self.reserved = given["nodes"]
        elif words[:1] == ["delete"] and "reservationname" in given:
            self.reserved = ""
        elif "nodename" in given:
            self._update(given)
        return Said(0, "")

    def _nodes(self) -> list[str]:
        found = [b.service for b in self.boxes.values() if b.service.startswith("slurmd-")]
        return [service.removeprefix("slurmd-") for service in found]

    def _node(self, name: str) -> str:
        up = [b for b in self.boxes.values() if b.service == f"slurmd-{name}"]
        mark = "" if up and up[0].state == "running" else "*"
        return ("drained" if name in self.reasons else "idle") + mark

    def _update(self, given: dict[str, str]) -> None:
        for name in given["nodename"].split(","):
            if given["state"] == "RESUME":
                self.reasons.pop(name, None)
            else:
                self.reasons[name] = given["reason"]

    def _srun(self, given: dict[str, str]) -> Said:
        names = given["--nodelist"].split(",")
        if any(self._node(name) != "idle" for name in names):
            return Said(1, "not available")
        if "--reservation" in given:
            self.canaries += names
        return Said(0, "")


def _options(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The options in front, and what comes behind them."""
    found, rest = [], list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if "=" in word or word in _FLAGS:
            found.append((word, ""))
        else:
            found.append((word, rest.pop(0)))
    return found, rest
