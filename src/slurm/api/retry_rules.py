"""The rules of retries, as pure functions: how a call failed, what follows, and with what script.

Whoever judges uses them: a guard, a client, a job that waits. They keep to Python 3.6.
"""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from slurm import rundir

#: What a death without an exception counts as, for `on=`.
DIED = ("slurm.errors.JobFailed", "slurm.errors.JobError", "slurm.errors.SlurmError")
EXITED = ("slurm.errors.FunctionExited", *DIED[1:])
ANY = ("Exception", "BaseException")
_BY_STATE = {
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "CANCELLED": "cancelled",
}
#: What a job of a packed map says of itself when items are left.
_BY_ERROR = {"JobOutOfMemory": "oom", "TimeLimitReached": "timeout"}


class Failure(NamedTuple):
    """How a call failed: the kind, the names of the exception's classes, and a line about it."""

    kind: str
    types: Tuple[str, ...]
    text: str


def failure_of(
    record: Optional[rundir.Record],
    state: str,
    exit_code: Optional[int],
    ended: Optional[rundir.Event],
) -> Failure:
    """The failure of a call, out of its record, the scheduler's state and the script's end."""
    header = record.header if record is not None else {}
    ranks_oom = ended is not None and "oom" in ended.fields
    if header.get("oom") or ranks_oom or state == "OUT_OF_MEMORY":
        return Failure("oom", (), "its memory was used up")
    if record is not None and not (header.get("stopped") and state in _BY_STATE):
        if header.get("error"):
            kind = _BY_ERROR.get(str(header["error"]), "refused")
            return Failure(kind, (), str(header.get("message", "")))
        if record.kind == rundir.EXIT:
            return Failure("exited", EXITED + ANY, "it called sys.exit")
        text = "{}: {}".format(header.get("type", "?"), header.get("message", ""))
        return Failure("raised", tuple(header.get("types") or ()), text)
    if state in _BY_STATE:
        return Failure(_BY_STATE[state], (), f"it ended as {state}")
    if exit_code == rundir.EXIT_NOT_WRITTEN:
        return Failure("unwritten", (), "its result could not be written")
    if ended is None and state in ("", "REVOKED"):
        return Failure("node_fail", (), "the scheduler has forgotten it")
    return Failure("died", DIED + ANY, f"it ended with exit code {exit_code} and left no result")


def letter_for(rules: Dict[str, Any], failure: Failure, retries: int) -> Optional[str]:
    """What the rules do about a failure after so many retries; None: it is for good."""
    if retries >= rules["times"]:
        return None
    if failure.kind in ("oom", "timeout"):
        growth = rules[failure.kind]
        if growth is None:
            return None
        return "r" if not growth else failure.kind[0]
    if failure.kind in ("preempted", "node_fail"):
        return "r" if rules[failure.kind] else None
    return "r" if set(failure.types) & set(rules["on"]) else None


def retries_of(token: str) -> int:
    """How many retries lie behind a part."""
    return len(re.findall("[rot]", token))


def grown(rules: Dict[str, Any], token: str, first: Dict[str, Any]) -> Dict[str, int]:
    """Memory (MiB) and time (seconds) of a part, where they differ from the first ones."""
    found = {}  # type: Dict[str, int]
    for letter, rule, name in (("o", "oom", "mem"), ("t", "timeout", "time")):
        value = first.get(name)
        if value is None or letter not in token:
            continue
        sign, amount = rules[rule]
        for _ in range(token.count(letter)):
            value = value * amount if sign == "*" else value + amount
        found[name] = int(value)
    return found


class Part(NamedTuple):
    """A part of a run: its name, its job, and the calls in it."""

    token: str
    job: str
    first: str
    offset: int
    array: bool
    indexes: List[int]

    def element(self, index: int) -> str:
        """The id of one call's job."""
        bare = self.job.partition(";")[0]
        return f"{bare}_{index - self.offset}" if self.array else bare


def letter_in(judged: Optional[Dict[str, Any]], index: int) -> Optional[str]:
    """Into which new part a judgement puts a call; None for none."""
    groups = (judged or {}).get("groups", {})
    return next((letter for letter, found in groups.items() if index in found), None)


def following(progress: Dict[str, Any], token: str, index: int) -> Optional[str]:
    """The part in which a call of another one went on, by what `retries.progress` says."""
    letter = letter_in(progress["judged"].get(token), index)
    names = ["{}m{}".format(token, index)] + ([token + letter] if letter else [])
    return next((name for name in names if name in progress["ids"]), None)


def script_of(text: str, part: Part, flags: Dict[str, Any]) -> str:
    """The script of a part that is submitted again, made of the first one's."""
    lines = []  # type: List[str]
    # Not splitlines: a value in the script may hold what it takes for the end of a line.
    for line in text.rstrip("\n").split("\n"):
        option = re.match("#SBATCH --([a-z-]+)", line)
        name = option.group(1) if option else ""
        if name == "array":
            throttle = re.search("%[0-9]+$", line)
            numbers = ",".join(str(i - part.offset) for i in part.indexes)
            line = "#SBATCH --array={}{}".format(numbers, throttle.group() if throttle else "")
        elif name in flags:
            continue
        elif line.startswith("export SLURM_SDK_PART="):
            line = f"export SLURM_SDK_PART={part.token}"
        lines.append(line)
    added = [f"#SBATCH --{k}={v}" for k, v in sorted(flags.items()) if v is not None]
    return "\n".join(lines[:1] + added + lines[1:]) + "\n"


def clock(seconds: int) -> str:
    """Seconds as a time limit: `1-02:03:04`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return "{}-{:02}:{:02}:{:02}".format(hours // 24, hours % 24, minutes, rest)
