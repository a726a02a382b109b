"""What the bridge can do about pods and their Slurm jobs: plain values, carried out elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from slurm.bridge.allotment import Allotment
from slurm.bridge.kube_types import Pod
from slurm.bridge.translation import Claim
from slurm.model.states import JobState


@dataclass(frozen=True)
class JobView:
    """What Slurm says of one of our jobs."""

    id: int
    state: JobState
    claim: Claim
    nodes: tuple[str, ...] = ()
    reason: str = ""
    start: int | None = None
    # What it has on each node; None before Slurm was asked.
    has: Allotment | None = None

    @property
    def live(self) -> bool:
        """Whether it waits or holds nodes; what Slurm has no word for may."""
        return not self.state.finished


@dataclass(frozen=True)
class Submit:
    """Make a placeholder for these pods."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class Mark:
    """Write a job's number on pods; None takes it off."""

    pods: tuple[Pod, ...]
    job: int | None


@dataclass(frozen=True)
class Place:
    """Let a pod run on a node of Kubernetes."""

    pod: Pod
    node: str
    job: int


@dataclass(frozen=True)
class Evict:
    """Delete a pod that lost its node; `unproved` where Slurm no longer knows the job."""

    pod: Pod
    reason: str
    message: str
    unproved: bool = False


@dataclass(frozen=True)
class Expire:
    """Let the kubelet end a pod as out of time."""

    pod: Pod
    reason: str
    message: str


@dataclass(frozen=True)
class Hold:
    """Leave pods waiting without a job, with the reason on them."""

    pods: tuple[Pod, ...]
    message: str


@dataclass(frozen=True)
class End:
    """End a job, with the pods' outcome on record."""

    job: JobView
    outcome: str


@dataclass(frozen=True)
class Release:
    """Take the finalizer off a pod; `gone` deletes it at once, where no kubelet will."""

    pod: Pod
    gone: bool = False


@dataclass(frozen=True)
class Tell:
    """Say on the pods what is being waited for."""

    pods: tuple[Pod, ...]
    reason: str
    message: str


Action = Submit | Mark | Place | Evict | Expire | Hold | End | Release | Tell
