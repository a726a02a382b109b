"""Job ids, array specifications and run names: text from outside becomes a checked value.

Runs on Python 3.6: the agent uses it on login nodes.
"""

import re
import time
from typing import Any, Iterable, List, NamedTuple, Optional, Set, Union

# Slurm's job ids are 32 bits wide; MaxArraySize cannot be set above this.
_LARGEST_JOB = 2**32 - 1
_LARGEST_ARRAY = 4000001

_JOB_ID = (
    r"(?P<job>[0-9]{1,10})(?:_(?P<index>[0-9]{1,10}))?"
    r"(?:;(?P<cluster>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}))?"
)
_RANGE = r"(?P<first>[0-9]{1,7})(?:-(?P<last>[0-9]{1,7})(?::(?P<step>[0-9]{1,7}))?)?"
_THROTTLE = r"%[0-9]{1,10}$"

_NAME_LENGTH = 60
_TOKEN = r"[0-9a-f]{6}"


class JobId(NamedTuple):
    """The id of a job, or of one element of an array: `str()` gives `123` or `123_4`."""

    job: int
    index: Optional[int] = None  # type: ignore[assignment]  # hides tuple.index, which we never use
    cluster: Optional[str] = None

    def __str__(self) -> str:
        return str(self.job) if self.index is None else "%d_%d" % (self.job, self.index)


def parse_job_id(text: Union[str, int]) -> JobId:
    """The job id in `123`, `123_4` or `123;cluster`; `ValueError` for anything else.

    Steps (`123.batch`) are not jobs and are refused too.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    match = re.fullmatch(_JOB_ID, text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("not a job id: %r (expected 123, 123_4 or 123;cluster)" % (text,))
    job = int(match.group("job"))
    index = None if match.group("index") is None else int(match.group("index"))
    if not 0 < job <= _LARGEST_JOB or (index is not None and index >= _LARGEST_ARRAY):
        raise ValueError("not a job id: %r (a number is out of range)" % (text,))
    return JobId(job, index, match.group("cluster"))


def expand_array_spec(spec: str) -> List[int]:
    """The indexes of an array specification, `0-5,9,12-20:4%2`, in order and each once.

    The throttle behind `%` says how many may run together and does not change the indexes.
    Raises `ValueError` for anything Slurm would not take.
    """
    indexes: Set[int] = set()
    for part in re.sub(_THROTTLE, "", spec).split(","):
        match = re.fullmatch(_RANGE, part)
        if match is None:
            raise ValueError("not an array specification: %r (at %r)" % (spec, part))
        first = int(match.group("first"))
        last = int(match.group("last") or first)
        step = int(match.group("step") or 1)
        if last < first or step < 1 or last >= _LARGEST_ARRAY:
            raise ValueError("not an array specification: %r (at %r)" % (spec, part))
        indexes.update(range(first, last + 1, step))
    return sorted(indexes)


def collapse_array_spec(indexes: Iterable[int]) -> str:
    """The shortest list of plain ranges for these indexes: `[0, 1, 2, 7]` gives `0-2,7`."""
    ranges: List[List[int]] = []
    for index in sorted(set(indexes)):
        if index < 0 or index >= _LARGEST_ARRAY:
            raise ValueError("not an array index: %r" % (index,))
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in ranges)


def make_run_name(task_name: str, when: Any, token: str) -> str:
    """The name of a run's directory: `<task>-<YYYYmmdd-HHMMSS>-<6 hex>`.

    `when` is a `time.struct_time` or a `datetime`, which is not named here: it is slow to import.
    The task's name is reduced to characters that need no quoting in any shell or path.
    """
    if re.fullmatch(_TOKEN, token) is None:
        raise ValueError("the token of a run name is six hex digits, not %r" % (token,))
    moment = when if isinstance(when, time.struct_time) else when.timetuple()
    stamp = "%04d%02d%02d-%02d%02d%02d" % moment[:6]
    return "%s-%s-%s" % (plain_name(task_name), stamp, token)


def plain_name(text: str) -> str:
    """`text` with only letters, digits, `_`, `.` and `-`: a safe file name, never empty."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".-")[:_NAME_LENGTH]
    return plain or "task"
