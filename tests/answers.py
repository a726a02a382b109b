"""One question to everybody who can answer it: in which state is a job?"""

from __future__ import annotations

import contextlib
import html
import http.client
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from slurm import ArrayJob, Cluster, Job
from slurm.cli.cancel import cancel
from slurm.cli.frame import Common
from slurm.cli.ls import ls
from slurm.cli.show import show
from slurm.cli.why import why
from waiting import age, until


@dataclass
class Dashboard:
    """A dashboard that runs, and the session of one viewer."""

    place: str
    cookie: str

    def page(self, path: str) -> str:
        """The text of a page."""
        return _get(self.place, path, self.cookie)[1]

    def job(self, job_id: str) -> str:
        """The state that the page of a job begins with."""
        page = self.page(f"/jobs/{job_id}")
        # One question a second, of all viewers together; and a page comes before its answer.
        while "too many questions" in page or "Looking it up" in page:
            age(time.time(), 1)
            page = self.page(f"/jobs/{job_id}")
        found = re.search(r'class="chip [a-z]+"[^>]*>(?:<span[^>]*>[^<]*</span>)?([^<]+)<', page)
        return (
            html.unescape(found[1]).upper().replace(" ", "_") if found else f"none: {page[-900:]}"
        )


def _get(place: str, path: str, cookie: str) -> tuple[str, str]:
    connection = http.client.HTTPConnection(place, timeout=60)
    connection.request("GET", path, headers={"Accept": "text/html", "Cookie": cookie})
    try:
        answer = connection.getresponse()
    except TimeoutError:
        raise AssertionError(f"{path} does not come") from None
    text = answer.read().decode()
    connection.close()
    return answer.headers.get("set-cookie", ""), text


@contextlib.contextmanager
def dashboard(*words: str) -> Iterator[Dashboard]:
    """`slurm dashboard` with these words, until the block is left."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "slurm.cli", "dashboard", *words, "--port", "0"],
            stdin=subprocess.DEVNULL,
            stderr=said,
        )
        try:
            until("it prints its link", lambda: _link(said) or process.poll() is not None)
            found = _link(said)
            assert found, _text(said)
            yield Dashboard(found[1], _get(found[1], found[2], "")[0].partition(";")[0])
            process.terminate()
            assert process.wait(30) == 0, _text(said)
            assert "Traceback" not in _text(said)
        finally:
            process.kill()
            process.communicate()


def _text(said: IO[str]) -> str:
    said.seek(0)
    return said.read()


def _link(said: IO[str]) -> re.Match[str] | None:
    return re.search(r"http://([^/\s]+)(\S+)\n", _text(said))


def state_of_all(job_id: str, cluster: Cluster, common: Common, seen: Dashboard) -> dict[str, str]:
    """What everybody says of one job; `ls` knows whole runs only."""
    job: Any = cluster.get_job(job_id)
    told = {
        "python": str(job.state.value),
        "show": show(job_id, common=common).state,
        "why": why(job_id, common=common).state,
        "dashboard": seen.job(job_id),
    }
    if job.part is None:
        told["ls"] = next(
            row.state for row in ls(all=True, common=common).runs if row.run == job.run
        )
    return told


def differing(
    jobs: Sequence[Job[Any]], cluster: Cluster, common: Common, seen: Dashboard
) -> dict[str, dict[str, str]]:
    """The jobs of which not all say the same, with what each says."""
    told = {job.bare: state_of_all(job.bare, cluster, common, seen) for job in jobs}
    return {job: one for job, one in told.items() if len(set(one.values())) > 1}


def count_of_all(array: ArrayJob[Any], cluster: Cluster, common: Common) -> list[dict[str, int]]:
    """How many elements of an array are in which state, by everybody who counts."""
    job_id = array[0].bare.partition("_")[0]
    again = cluster.get_job(job_id)
    return [
        dict(Counter(str(job.state.value) for job in again)),
        show(job_id, common=common).states,
        dict(next(row.states for row in ls(all=True, common=common).runs if row.run == array.run)),
    ]


def cancelled(job_id: str, common: Common) -> tuple[int, int]:
    """Cancel a job: how many were asked to end, and how many were over."""
    told = next(iter(cancel(job_id, common=common)))
    return told.asked, told.over
