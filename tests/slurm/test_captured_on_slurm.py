"""On a real Slurm, too, what was submitted is what runs, whatever is edited meanwhile."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster

CODE = """
    import os, time
    from slurm import task, workflow
    VALUE = 2

    @task(time="5min")
    def value(_=0):
        time.sleep(0.2)
        import real_late
        return VALUE if real_late.SAME == VALUE else "mixed"

    @workflow(time="5min")
    def flow(sign):
        while not os.path.exists(sign):
            time.sleep(0.05)
        return value.map([1, 2]).results()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "real_work.py").write_text(textwrap.dedent(CODE))
    (tmp_path / "real_late.py").write_text("SAME = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("real_work", "real_late"):
        sys.modules.pop(name, None)


def test_edits_reach_no_item_no_child_and_no_worker(folder: Path) -> None:
    import real_work  # type: ignore[import-not-found]

    with Cluster(job_base_dir=folder / "jobs", mem="50M") as cluster:
        array = real_work.value.map(range(4), max_concurrent=1)
        packed = real_work.value.map(range(4), pack=1, max_concurrent=1)
        job = real_work.flow(str(folder / "sign"))
        with cluster.executor(1) as pool:
            futures: list[Any] = [pool.submit(real_work.value)]
            until = time.monotonic() + 60
            while "PENDING" in (array[0].state.value, job.state.value):
                assert time.monotonic() < until
                time.sleep(0.1)
            text = (folder / "real_work.py").read_text()
            (folder / "real_work.py").write_text(text.replace("VALUE = 2", "VALUE = 99"))
            (folder / "real_late.py").write_text("SAME = 99\n")
            (folder / "sign").touch()
            futures += [pool.submit(real_work.value) for _ in range(3)]
            assert array.results(120) == [2, 2, 2, 2]
            assert packed.results(120) == [2, 2, 2, 2]
            assert job.result(120) == [2, 2]
            assert [future.result(120) for future in futures] == [2, 2, 2, 2]
        assert real_work.value().result(120) == 99
