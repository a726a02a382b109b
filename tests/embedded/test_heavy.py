"""Large values of numpy, pandas and pyarrow: in memory once, and shared by the jobs of a node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow
import pytest

from slurm import Cluster, task
from waiting import until

SIZE = 96 << 20
#: What a process may need besides: code that is loaded on the way, buffers of files.
ASIDE = 28 << 20

MAKE = {
    "numpy": "numpy.ones(SIZE // 8)",
    "fortran": "numpy.ones((1000, SIZE // 8000), order='F')",
    "pandas": "pandas.DataFrame(numpy.ones((SIZE // 80, 10)), copy=False)",
    "arrow": "pyarrow.table({'a': numpy.ones(SIZE // 16), 'b': numpy.ones(SIZE // 16)})",
    "nested": "[{'a': numpy.ones(SIZE // 16)}, numpy.ones(SIZE // 16)]",
    "bytes": "b'x' * SIZE",
}
WAYS = {
    "job": ("take(value=value).result(90)", "give(place).result(90)"),
    "common": (
        "take.map(range(1), common={'value': value}).results(90)[0]",
        "give.map([place]).results(90)[0]",
    ),
    "packed": (
        "take.map([{'value': value}], pack=1).results(90)[0]",
        "give.map([place], pack=1).results(90)[0]",
    ),
    "executor": ("call(take, value=value)", "call(give, place)"),
}

SCRIPT = """
import json, os, subprocess, sys
import cloudpickle, numpy, pandas, pyarrow
from slurm import Cluster, task

SIZE = {size}
# Keeps the last peak of a process that it saw.
WATCH = '''
import os, sys, time
pid, place, text = sys.argv[1], sys.argv[2], ""
while True:
    try:
        with open("/proc/" + pid + "/status") as f:
            found = [line.split()[1] for line in f if line.startswith("VmHWM")]
    except OSError:
        break
    if not found:
        break
    text = found[0]
    time.sleep(0.001)
with open(place + ".tmp", "w") as f:
    f.write(text)
os.replace(place + ".tmp", place)
'''


def peak(reset=False):
    if reset:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    with open("/proc/self/status") as f:
        return [int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM")][0]


def make():
    return {make}


def touch(value):
    if isinstance(value, list):
        return [touch(part) for part in (value[0]["a"], value[1])]
    if isinstance(value, pyarrow.Table):
        from pyarrow import compute

        return [compute.sum(column) for column in value.columns]
    return len(value) if isinstance(value, bytes) else value.sum()


@task
def take(i=0, value=None):
    touch(value)
    return peak()


@task
def give(place):
    subprocess.Popen([sys.executable, "-c", WATCH, str(os.getpid()), place])
    return make()


if __name__ == "__main__":
    found = {{}}
    with Cluster("embedded", job_base_dir={base!r}) as cluster:

        def call(function, *args, **kwargs):
            with cluster.executor(max_workers=1) as pool:
                return pool.submit(function, *args, **kwargs).result(90)

        place = {base!r} + "-peak"
        found["bare"] = peak()
        value = make()
        before = peak(reset=True)
        found["took"] = {take}
        found["sent"] = peak() - before
        del value
        before = peak(reset=True)
        value = {give}
        touch(value)
        found["received"] = peak() - before
    print(json.dumps(found))
"""


#: One of each way in `make test`.
SHORT = [("numpy", "job"), ("pandas", "common"), ("arrow", "packed"), ("numpy", "executor")]


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *SHORT,
        *(
            pytest.param(kind, way, marks=pytest.mark.full)
            for kind in MAKE
            for way in WAYS
            if (kind, way) not in SHORT
        ),
    ],
)
def test_a_large_value_is_in_memory_once_at_either_end(tmp_path: Path, kind: str, way: str) -> None:
    base = str(tmp_path / "jobs")
    take, give = WAYS[way]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(size=SIZE, make=MAKE[kind], base=base, take=take, give=give))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    until("the job that made the value has ended", lambda: os.path.exists(base + "-peak"))
    found["gave"] = int(Path(base + "-peak").read_text()) << 10
    # Before it was sent the value was there already.
    assert found["sent"] < 0.3 * SIZE + ASIDE, found
    assert found["took"] - found["bare"] < 1.3 * SIZE + ASIDE, found
    assert found["gave"] - found["bare"] < 1.3 * SIZE + ASIDE, found
    assert found["received"] < 1.3 * SIZE + ASIDE, found


# ---- what several calls share -------------------------------------------------------------------


def own_memory() -> int:
    with open("/proc/self/smaps_rollup") as f:
        return sum(int(line.split()[1]) << 10 for line in f if line.startswith("Anonymous"))


@task
def change(i: int, table: Any) -> tuple[float, float, int]:
    """What it found in the table, what it wrote there, and how much of the rest became its own."""
    before = own_memory()
    found = float(table[0] + table.min())
    table[:8] = i
    return found, float(table[0]), own_memory() - before


@pytest.mark.parametrize("how", ["items", "common"])
@pytest.mark.parametrize("options", [{}, {"pack": 4}], ids=["array", "packed"])
def test_items_share_the_pages_of_a_value_and_do_not_see_what_others_write(
    cluster: Cluster, how: str, options: dict[str, Any]
) -> None:
    table = numpy.ones(SIZE // 8)
    if how == "items":
        jobs = change.map([(i, table) for i in range(8)], **options)
    else:
        jobs = change.map(range(8), common={"table": table}, **options)
    for i, (found, written, own) in enumerate(jobs.results(90)):
        assert (found, written) == (2.0, float(i))
        assert own < SIZE // 4
    stored = sum(p.stat().st_size for p in Path(cluster.base).rglob("*") if p.is_file())
    assert stored < 1.5 * SIZE


@task
def same(value: Any) -> Any:
    return value


def frames() -> list[Any]:
    """Values as people have them: views, orders, dates, categories, missing values, text."""
    base = numpy.arange(200_000.0).reshape(500, 400)
    times = pandas.date_range("2026-01-01", periods=50_000, freq="min")
    frame = pandas.DataFrame(
        {
            "n": numpy.arange(50_000),
            "text": [f"row {n % 97}" for n in range(50_000)],
            "kind": pandas.Categorical(["a", "b"] * 25_000),
            "gone": pandas.array([1, None] * 25_000, dtype="Int64"),
        },
        index=times,
    )
    return [
        base,
        base[::2, ::-1],
        numpy.asfortranarray(base),
        numpy.array([{"a": 1}, None], dtype=object),
        numpy.zeros(20_000, dtype=[("a", "<i4"), ("b", "<f8")]),
        numpy.ma.masked_greater(base, 7),
        frame,
        frame["text"],
        frame.index,
    ]


@pytest.mark.parametrize("way", ["job", "packed", "executor"])
def test_arrays_and_frames_of_all_kinds_arrive_as_they_were(cluster: Cluster, way: str) -> None:
    values = frames()
    if way == "job":
        found = same(values).result(90)
    elif way == "packed":
        found = same.map(values, pack=4, unpack=False).results(90)
    else:
        with cluster.executor(max_workers=1) as pool:
            found = list(pool.map(same, values))
    for one, other in zip(values, found, strict=True):
        if isinstance(one, numpy.ndarray):
            assert type(other) is type(one) and other.dtype == one.dtype
            assert numpy.ma.allequal(one, other) if one.dtype.kind == "f" else (one == other).all()
            # It can be changed, as in this process.
            other[0] = other[-1]
        else:
            assert type(other) is type(one) and other.equals(one)


@pytest.mark.parametrize("way", ["job", "map", "packed", "executor"])
def test_arrays_of_every_size_around_the_limits_arrive(cluster: Cluster, way: str) -> None:
    sizes = [n << 10 for n in (1, 63, 65, 100, 127, 129, 200, 255, 257, 600, 1023, 1025, 3000)]
    values: list[Any] = [numpy.arange(size // 8) for size in sizes]
    # One lies apart, the other does not.
    values += [[numpy.zeros(10 << 10), numpy.ones(size // 8)] for size in (1 << 17, 1 << 21)]
    if way == "job":
        found = same(values).result(90)
    elif way == "executor":
        with cluster.executor(max_workers=1) as pool:
            found = list(pool.map(same, values))
    else:
        found = same.map(values, unpack=False, pack=4 if way == "packed" else None).results(90)
    for one, other in zip(values, found, strict=True):
        assert all(map(numpy.array_equal, one, other))


def test_tables_and_batches_of_arrow_arrive_as_they_were(cluster: Cluster) -> None:
    table = pyarrow.table(
        {
            "n": pyarrow.array(range(100_000)),
            "text": pyarrow.array([None, "ä"] * 50_000),
            "word": pyarrow.array(["x", "y"] * 50_000).dictionary_encode(),
        }
    )
    values = [table, table.slice(3, 50_000), table.to_batches()[0], table["text"], table.schema]
    for one, other in zip(values, same(values).result(90), strict=True):
        assert type(other) is type(one) and other.equals(one)
