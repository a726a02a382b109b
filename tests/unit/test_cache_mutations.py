"""Random programs with one operator or constant changed: no stale value, however it is reached."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cache_corpus.fresh import fresh
from cache_corpus.mutate import all_mutations


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 100), pytest.param(1000, 2000, marks=pytest.mark.full)]
)
def test_no_mutation_of_what_a_call_reaches_finds_the_value_of_before(
    tmp_path: Path, seed: int, count: int
) -> None:
    stale = []
    known: dict[str, str] = {}
    refused: set[str] = set()
    with fresh(HOME=str(tmp_path)) as processes:
        for number, (files, name, text) in enumerate(itertools.islice(all_mutations(seed), count)):
            key = repr(sorted(files.items()))
            folder, base = tmp_path / "p", tmp_path / f"jobs{len(known)}"
            if key not in known:
                known[key] = str(base)
                _write(folder, files)
                assert processes.run(str(folder), "main.py", str(base)).endswith("False")
                again = processes.run(str(folder), "main.py", str(base), seed=1)
                if "cannot be seen" in again:  # said, and never a stale answer
                    refused.add(key)
                else:
                    assert again.endswith("True")
            _write(folder, {**files, name: text})
            try:
                said = processes.run(str(folder), "main.py", known[key], seed=number % 2)
            except AssertionError:
                continue  # it raises now, which is no value of before either
            if said.endswith("True"):
                stale.append((number, name, text))
    assert stale == []
    # A module that only the call imports may read something then, as far as we can see.
    assert len(refused) <= len(known) // 10


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.rglob("*.py"):
        if str(path.relative_to(folder)) not in files:
            path.unlink()
