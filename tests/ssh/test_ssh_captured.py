"""Over SSH, too, what was submitted is what runs, whatever is edited meanwhile."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from slurm import Cluster

CODE = """
import time
from slurm import task
VALUE = 2

@task(time="5min")
def value(_=0):
    time.sleep(0.2)
    return VALUE
"""


def test_edits_reach_no_item_and_no_worker(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "far_edited.py"
    file.write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import far_edited  # type: ignore[import-not-found]

    array = far_edited.value.map(range(4), max_concurrent=1)
    packed = far_edited.value.map(range(4), pack=1, max_concurrent=1)
    with cluster.executor(1) as pool:
        futures = [pool.submit(far_edited.value)]
        until = time.monotonic() + 100
        while array[0].state.value == "PENDING":
            assert time.monotonic() < until
            time.sleep(0.1)
        file.write_text(CODE.replace("VALUE = 2", "VALUE = 99"))
        futures += [pool.submit(far_edited.value) for _ in range(3)]
        assert array.results(120) == [2, 2, 2, 2]
        assert packed.results(120) == [2, 2, 2, 2]
        assert [future.result(120) for future in futures] == [2, 2, 2, 2]
    sys.modules.pop("far_edited")
