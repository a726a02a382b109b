"""Every state a Slurm job can be in, as one table that explains itself.

Runs on Python 3.6: the agent uses it on login nodes.
"""

import enum
import re
from typing import Iterable, List, Optional, Union

_PENDING = "pending"
_ACTIVE = "active"
_FINISHED = "finished"
_UNKNOWN = "unknown"


class JobState(str, enum.Enum):
    """A state of a job in Slurm's own words.

    A member equals its long name (`JobState.RUNNING == "RUNNING"`). `code` is Slurm's short code
    (`R`), and the long name where Slurm has none. `phase` is `pending`, `active`, `finished` or
    `unknown`; `succeeded` tells a good end; `meaning` says in a sentence when a job may enter it.

    `may_requeue` marks the ends after which Slurm itself can put the job back into the queue: such
    a state is the end only where the job was submitted without requeue, or where Slurm still says
    so after it had the time to requeue. `overrides` marks a flag that Slurm sets on top of a base
    state and that says more than the base does.
    """

    code: str
    phase: str
    succeeded: bool
    may_requeue: bool
    overrides: bool
    meaning: str

    def __new__(
        cls,
        name: str,
        code: str,
        phase: str,
        meaning: str,
        traits: str = "",
    ) -> "JobState":
        """Make a member from one row of the table; `traits` holds words for the booleans."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.code = code or name
        member.phase = phase
        member.meaning = meaning
        member.succeeded = "success" in traits
        member.may_requeue = "requeue" in traits
        member.overrides = "flag" in traits
        return member

    # fmt: off
    # Not started yet.
    PENDING = (
        "PENDING", "PD", _PENDING,
        "The job waits in the queue: for resources, its turn, a dependency or a release.",
    )
    REQUEUED = (
        "REQUEUED", "RQ", _PENDING,
        "The job ran before and goes back into the queue; its last attempt is being cleaned up.",
        "flag",
    )
    REQUEUE_HOLD = (
        "REQUEUE_HOLD", "RH", _PENDING,
        "The job went back into the queue and is held there until somebody releases it.",
        "flag",
    )
    REQUEUE_FED = (
        "REQUEUE_FED", "RF", _PENDING,
        "The federation puts the job back into the queue, perhaps on another of its clusters.",
        "flag",
    )
    SPECIAL_EXIT = (
        "SPECIAL_EXIT", "SE", _PENDING,
        "The job went back into the queue, held and marked, because of its exit code or by hand.",
        "flag",
    )
    RESV_DEL_HOLD = (
        "RESV_DEL_HOLD", "RD", _PENDING,
        "The reservation that the job asked for was deleted; the job is held.",
        "flag",
    )
    EXPEDITING = (
        "EXPEDITING", "", _PENDING,
        "The job ended badly and Slurm decides whether it is requeued ahead of others.",
        "flag",
    )

    # Has an allocation.
    CONFIGURING = (
        "CONFIGURING", "CF", _ACTIVE,
        "Nodes are allocated and being made ready (boot, prolog); the script has not begun.",
        "flag",
    )
    POWER_UP_NODE = (
        "POWER_UP_NODE", "", _ACTIVE,
        "Nodes that were powered down are allocated and booting for the job.",
    )
    RUNNING = (
        "RUNNING", "R", _ACTIVE,
        "The job has its nodes and its script runs, as far as the controller knows.",
    )
    SUSPENDED = (
        "SUSPENDED", "S", _ACTIVE,
        "The job's processes are stopped and its CPUs are lent to other jobs.",
    )
    STOPPED = (
        "STOPPED", "ST", _ACTIVE,
        "The job's processes were stopped by a signal; it keeps its CPUs.",
        "flag",
    )
    SIGNALING = (
        "SIGNALING", "SI", _ACTIVE,
        "A signal is on its way to the job's processes.",
        "flag",
    )
    RESIZING = (
        "RESIZING", "RS", _ACTIVE,
        "The job's allocation is about to grow or shrink.",
        "flag",
    )
    STAGE_OUT = (
        "STAGE_OUT", "SO", _ACTIVE,
        "The script is over and a burst buffer still copies the job's files out.",
        "flag",
    )
    COMPLETING = (
        "COMPLETING", "CG", _ACTIVE,
        "The job is ending: processes or the epilog are still there on some of its nodes.",
        "flag",
    )
    LAUNCH_FAILED = (
        "LAUNCH_FAILED", "", _ACTIVE,
        "The job could not be started on its nodes; Slurm has not yet said what becomes of it.",
    )
    RECONFIG_FAIL = (
        "RECONFIG_FAIL", "", _ACTIVE,
        "The job's nodes could not be set up as it asked; Slurm has not yet said what follows.",
    )
    UPDATE_DB = (
        "UPDATE_DB", "", _ACTIVE,
        "The controller is sending the job's record to the accounting database.",
    )

    # Over.
    COMPLETED = (
        "COMPLETED", "CD", _FINISHED,
        "The script ended with exit code 0.",
        "success",
    )
    FAILED = (
        "FAILED", "F", _FINISHED,
        "The script ended with another exit code or by a signal, or could not be started.",
    )
    CANCELLED = (
        "CANCELLED", "CA", _FINISHED,
        "The user, an administrator or Slurm itself ended the job, before or after its start.",
    )
    TIMEOUT = (
        "TIMEOUT", "TO", _FINISHED,
        "The job reached its time limit and was ended.",
    )
    DEADLINE = (
        "DEADLINE", "DL", _FINISHED,
        "The job could not end before its deadline, or ran into it.",
    )
    OUT_OF_MEMORY = (
        "OUT_OF_MEMORY", "OOM", _FINISHED,
        "The kernel killed a process of the job because the job's memory was used up.",
    )
    NODE_FAIL = (
        "NODE_FAIL", "NF", _FINISHED,
        "A node of the job was lost.",
        "requeue",
    )
    BOOT_FAIL = (
        "BOOT_FAIL", "BF", _FINISHED,
        "The job's nodes could not be booted or made ready.",
        "requeue",
    )
    PREEMPTED = (
        "PREEMPTED", "PR", _FINISHED,
        "A job of higher priority took the resources.",
        "requeue",
    )
    REVOKED = (
        "REVOKED", "RV", _FINISHED,
        "Another cluster of the federation started the job, so this copy was dropped.",
        "flag",
    )

    # Not a state of Slurm: what we say when its word is not one we know.
    UNKNOWN = (
        "UNKNOWN", "?", _UNKNOWN,
        "Slurm gave no state, or one that this version does not know.",
    )
    # fmt: on

    @property
    def pending(self) -> bool:
        """The job waits and holds no resources."""
        return self.phase == _PENDING

    @property
    def active(self) -> bool:
        """The job holds resources."""
        return self.phase == _ACTIVE

    @property
    def finished(self) -> bool:
        """The job is over; see `may_requeue` for the ends that Slurm can take back."""
        return self.phase == _FINISHED

    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, spec: str) -> str:
        return str.__format__(self, spec)


_BY_NAME = {state.value: state for state in JobState}
_BY_NAME["CANCELED"] = JobState.CANCELLED
_BY_CODE = {state.code: state for state in JobState}

# Some flags can be set together; the first of these that is set is the one Slurm's tools print.
_FLAG_ORDER = (
    JobState.COMPLETING,
    JobState.STAGE_OUT,
    JobState.CONFIGURING,
    JobState.RESIZING,
    JobState.EXPEDITING,
    JobState.REQUEUED,
    JobState.REQUEUE_FED,
    JobState.REQUEUE_HOLD,
    JobState.SPECIAL_EXIT,
    JobState.STOPPED,
    JobState.REVOKED,
    JobState.RESV_DEL_HOLD,
    JobState.SIGNALING,
)
_WORD = r"[^\s,|]+"


def parse_state(text: Union[str, Iterable[str], None]) -> JobState:
    """The state that Slurm's text means, and `JobState.UNKNOWN` for text that means none.

    Takes long names and short codes in any case, `CANCELLED by 1000`, names that sacct cut
    (`OUT_OF_ME+`), several states at once (`RUNNING,COMPLETING`) and the lists of `--json`. Never
    raises for any text.
    """
    if text is None:
        return JobState.UNKNOWN
    if isinstance(text, str) and text in _BY_NAME:
        return _BY_NAME[text]  # what nearly every answer is, and long lists have thousands of
    parts = [text] if isinstance(text, str) else text
    states: List[JobState] = []
    for part in parts:
        for word in re.findall(_WORD, part):
            state = _parse_word(word.upper())
            if state is None and word.lower() == "by":
                break  # the rest names who cancelled the job
            if state is not None:
                states.append(state)
    for flag in _FLAG_ORDER:
        if flag in states:
            return flag
    return next((state for state in states if state is not JobState.UNKNOWN), JobState.UNKNOWN)


def _parse_word(word: str) -> Optional[JobState]:
    """The state of one upper-case word, or None."""
    if not word.endswith("+"):
        return _BY_NAME.get(word) or _BY_CODE.get(word)
    stem = word.rstrip("+")
    if stem in _BY_NAME:
        return _BY_NAME[stem]
    found = {state for name, state in _BY_NAME.items() if stem and name.startswith(stem)}
    return found.pop() if len(found) == 1 else None
