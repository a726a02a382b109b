"""The `--dependency` line of a script, whose job ids are filled in once they are known.

The agent uses it, so it keeps to Python 3.6.
"""

import re
from typing import List, Sequence, Tuple

_LINE = re.compile("^#SBATCH --dependency=(.*)$", re.MULTILINE)
#: Kinds of which one failed call is enough to make them impossible.
_NEED_SUCCESS = ("afterok", "aftercorr")


def needs_success(script: str, token: str) -> bool:
    """Whether the script waits for the success of the jobs that a token stands for."""
    return any(kind in _NEED_SUCCESS for kind, jobs in _clauses(script) if token in jobs)


def fill_in(script: str, token: str, ids: Sequence[str]) -> str:
    """The script with ids in the place of a token; what waits for no job any more is left out."""
    kept = []
    place = re.compile(re.escape(token) + "([+][0-9]+)?:?")
    for kind, jobs in _clauses(script):
        names = place.sub(
            lambda found: "".join(i + (found.group(1) or "") + ":" for i in ids), jobs
        )
        names = names.rstrip(":")
        if names or not jobs:
            kept.append(kind + (":" + names if names else ""))
    line = "#SBATCH --dependency=" + ",".join(kept) if kept else "#"
    return _LINE.sub(lambda _: line, script)


def last_job(script: str) -> str:
    """One of the jobs that a script waits for; "" where it waits for none."""
    ids = [name for _, jobs in _clauses(script) for name in jobs.split(":") if name[:1].isdigit()]
    return ids[-1].partition("+")[0] if ids else ""


def _clauses(script: str) -> List[Tuple[str, str]]:
    """The kinds in a script's dependency, each with its jobs as text."""
    found = _LINE.search(script)
    if found is None:
        return []
    # Commas part them, and a token's own colons are within its `@` signs.
    clauses = [clause.partition(":") for clause in found.group(1).strip("'\"").split(",")]
    return [(kind, jobs) for kind, _, jobs in clauses]
