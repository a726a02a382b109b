"""A corpus of programs with one change each: none gets a stale value, few a needless miss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cache_corpus import CHANGES, Case, all_programs
from cache_corpus.fresh import Fresh, fresh

#: What counts although it does not matter; each with a reason in docs/caching.md.
NEEDLESS: set[str] = set()
#: One of so many programs is in the fast part.
_EACH = 7


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    with fresh(HOME=str(tmp_path_factory.mktemp("home"))) as found:
        yield found


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def said(processes: Fresh, folder: Path, base: Path, seed: int) -> tuple[str, str, str]:
    """The value of a program's call, whether it was cached, and what else was said."""
    lines = processes.run(str(folder), "main.py", "debug", str(base), seed=seed).splitlines()
    value, _, cached = lines[-1].rpartition(" ")
    return value, cached, "\n".join(lines[:-1])


def programs(*names: str) -> list[object]:
    """The programs; some of them in `make test`, all with `--full`."""
    found = list[object]()
    for number, (case, mode) in enumerate(all_programs(*names)):
        marks = [] if number % _EACH == 0 else [pytest.mark.full]
        found.append(pytest.param(case, mode, id=f"{case.name}-{mode}", marks=marks))
    return found


@pytest.mark.parametrize(("case", "mode"), programs(*CHANGES))
def test_a_change_that_matters_is_computed_again(
    processes: Fresh, tmp_path: Path, case: Case, mode: str
) -> None:
    write(tmp_path / "p", case.before(mode))
    before = said(processes, tmp_path / "p", tmp_path / "jobs", 0)
    assert before[1] == "False"
    file, text = case.changed(mode)
    (tmp_path / "p" / file).write_text(text)
    after = said(processes, tmp_path / "p", tmp_path / "jobs", 1)
    assert after[1] == "False", "a stale value"
    assert after[0] != before[0], "the case changes nothing that can be seen"


@pytest.mark.parametrize(("case", "mode"), programs("harmless"))
def test_a_change_that_does_not_matter_finds_the_value(
    processes: Fresh, tmp_path: Path, case: Case, mode: str
) -> None:
    write(tmp_path / "p", case.before(mode))
    before = said(processes, tmp_path / "p", tmp_path / "jobs", 0)
    assert before[1:] == ("False", "")
    file, text = case.changed(mode)
    (tmp_path / "p" / file).write_text(text)
    after = said(processes, tmp_path / "p", tmp_path / "jobs", 1)
    assert after[0] == before[0]
    assert after[1] == ("False" if f"{case.name}-{mode}" in NEEDLESS else "True")


def test_the_corpus_has_at_least_150_programs_that_change() -> None:
    assert len(all_programs(*CHANGES)) >= 150
