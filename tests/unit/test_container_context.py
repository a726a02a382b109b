"""The content of a build context: what counts, what is left out, and what cannot hang."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm.errors import PackagingError
from slurm.packaging.container import context


def digest(folder: Path) -> str:
    return context.content_hash(str(folder), context.list_context(str(folder)))


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("*.log", "a.log", True),
        ("*.log", "sub/a.log", False),
        ("**/*.log", "sub/deep/a.log", True),
        ("**/*.log", "a.log", True),
        ("data", "data/x/y", True),
        ("data/", "data/x", True),
        ("/data", "data/x", True),
        ("data", "database", False),
        ("sub/*", "sub/a", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("[ab].txt", "b.txt", True),
        ("./here", "here", True),
    ],
)
def test_patterns_match_as_builders_do(pattern: str, path: str, ignored: bool) -> None:
    assert context.is_ignored(path, [pattern]) is ignored


def test_the_last_pattern_that_matches_decides() -> None:
    patterns = ["*", "!src", "src/secret"]
    assert not context.is_ignored("src/main.py", patterns)
    assert context.is_ignored("src/secret", patterns)
    assert context.is_ignored("other", patterns)


def test_what_is_ignored_does_not_change_the_hash(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text("# comment\n*.log\n")
    (tmp_path / "a.py").write_text("1")
    before = digest(tmp_path)
    (tmp_path / "x.log").write_text("noise")
    assert digest(tmp_path) == before
    (tmp_path / "a.py").write_text("2")
    assert digest(tmp_path) != before


def test_times_do_not_count_but_names_bytes_links_and_permissions_do(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    seen = [digest(tmp_path)]
    os.utime(file, (1, 1))
    assert digest(tmp_path) == seen[0]
    file.chmod(0o755)
    seen.append(digest(tmp_path))
    (tmp_path / "link").symlink_to("a")
    seen.append(digest(tmp_path))
    (tmp_path / "empty").mkdir()
    seen.append(digest(tmp_path))
    file.rename(tmp_path / "b")
    seen.append(digest(tmp_path))
    assert len(set(seen)) == len(seen)


def test_a_write_changes_the_signature_without_reading(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    before = context.signature(context.list_context(str(tmp_path)))
    file.write_text("2")
    assert context.signature(context.list_context(str(tmp_path))) != before


def test_loops_of_links_pipes_and_odd_names_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "two\nlines").write_text("x")
    (tmp_path / os.fsdecode(b"not-\xff-utf8")).write_text("x")
    os.mkfifo(tmp_path / "pipe")
    names = [entry.path for entry in context.list_context(str(tmp_path))]
    assert len(names) == 5
    assert digest(tmp_path) == digest(tmp_path)


def test_a_context_that_is_far_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / str(number)).touch()
    with pytest.raises(PackagingError, match="more than 3 files"):
        context.list_context(str(tmp_path))


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackagingError, match="nowhere"):
        context.list_context(str(tmp_path / "nowhere"))
