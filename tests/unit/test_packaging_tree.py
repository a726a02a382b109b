"""Working trees: which files count, what their digest depends on, and how long it takes."""

from __future__ import annotations

import os
import socket
import sys
import tarfile
import time
from pathlib import Path

import pytest

from slurm.errors import PackagingError
from slurm.packaging import tree as trees
from slurm.packaging.source import pack
from slurm.packaging.tree import Tree, read_tree
from waiting import age

sys.path.insert(0, str(Path(__file__).parents[1]))

from projects import git


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_text("a = 1\n")
    (folder / "b.txt").write_text("b\n")
    return folder


def names(tree: Tree) -> set[str]:
    return {entry.path for entry in tree.entries}


def test_without_git_all_files_count_but_junk(root: Path) -> None:
    for junk in (".venv/x.py", "__pycache__/m.pyc", "node_modules/y.js", "p.egg-info/PKG-INFO"):
        (root / junk).parent.mkdir()
        (root / junk).write_text("junk")
    (root / "my-env").mkdir()
    (root / "my-env" / "pyvenv.cfg").touch()
    tree = read_tree(str(root))
    assert names(tree) == {"pkg/a.py", "b.txt"}
    assert tree.git is None


def test_with_git_tracked_and_untracked_files_count_and_ignored_ones_do_not(root: Path) -> None:
    git(root, "init", "-q")
    (root / ".gitignore").write_text("*.log\n")
    (root / "gone.py").write_text("")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    (root / "new.py").write_text("new = 1\n")
    (root / "x.log").write_text("ignored")
    (root / "pkg" / "a.py").write_text("a = 2\n")
    (root / "gone.py").unlink()
    tree = read_tree(str(root))
    assert names(tree) == {".gitignore", "pkg/a.py", "b.txt", "new.py"}
    assert tree.git is not None
    assert tree.git["commit"] == git(root, "rev-parse", "HEAD")
    assert (tree.git["changed"], tree.git["untracked"]) == (2, 1)


def test_a_folder_of_a_repository_counts_from_itself(root: Path) -> None:
    git(root, "init", "-q")
    git(root, "add", "-A")
    (root / "pkg" / "new.py").write_text("new = 1\n")
    assert names(read_tree(str(root / "pkg"))) == {"a.py", "new.py"}


def test_a_nested_repository_stands_for_its_files(root: Path) -> None:
    inner = root / "libs"
    inner.mkdir()
    (inner / "lib.py").write_text("x = 1\n")
    git(inner, "init", "-q")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "lib")
    git(root, "init", "-q")
    git(root, "add", "pkg", "b.txt")
    assert names(read_tree(str(root))) == {"pkg/a.py", "b.txt", "libs/lib.py"}


def test_the_digest_is_that_of_names_contents_and_the_right_to_execute(root: Path) -> None:
    first = read_tree(str(root)).digest
    assert read_tree(str(root)).digest == first
    (root / "b.txt").write_text("c\n")
    second = read_tree(str(root)).digest
    (root / "b.txt").write_text("b\n")
    assert read_tree(str(root)).digest == first != second
    (root / "b.txt").chmod(0o755)
    assert read_tree(str(root)).digest != first
    (root / "b.txt").chmod(0o644)
    (root / "b.txt").rename(root / "c.txt")
    assert read_tree(str(root)).digest != first


def test_a_change_within_one_tick_of_the_clock_is_seen(root: Path) -> None:
    file = root / "b.txt"
    file.write_text("one\n")
    before = os.stat(file)
    first = read_tree(str(root)).digest
    file.write_text("two\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_tree(str(root)).digest != first


def test_two_copies_of_a_tree_have_the_same_digest(root: Path, tmp_path: Path) -> None:
    import shutil

    other = tmp_path / "elsewhere"
    shutil.copytree(root, other)
    assert read_tree(str(root)).digest == read_tree(str(other)).digest


def test_names_with_newlines_quotes_and_bad_bytes_travel(root: Path, tmp_path: Path) -> None:
    odd = ["new\nline.py", "quo\"te'.py", "tab\t.py", "é.py", os.fsdecode(b"bad\xff.py")]
    for name in odd:
        (root / name).write_text(f"# {name!r}\n")
    for use_git in (False, True):
        if use_git:
            git(root, "init", "-q")
            git(root, "add", "b.txt")
        tree = read_tree(str(root))
        assert set(odd) <= names(tree)
        archive = tmp_path / f"{use_git}.tar.gz"
        pack(tree, str(archive))
        with tarfile.open(archive) as packed:
            assert set(odd) <= set(packed.getnames())
            inner = packed.extractfile("new\nline.py")
            assert inner is not None
            assert inner.read() == b"# 'new\\nline.py'\n"


def test_symbolic_links_in_a_circle_are_kept_as_links(root: Path, tmp_path: Path) -> None:
    (root / "pkg" / "up").symlink_to("..")
    (root / "self").symlink_to("self")
    (root / "away").symlink_to("/nowhere/at/all")
    tree = read_tree(str(root))
    assert names(tree) == {"pkg/a.py", "b.txt", "pkg/up", "self", "away"}
    archive = tmp_path / "links.tar.gz"
    pack(tree, str(archive))
    with tarfile.open(archive) as packed:
        assert packed.getmember("pkg/up").linkname == ".."


def test_what_is_no_file_does_not_count(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        short = os.open(root, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{short}/s")
        os.close(short)
        assert names(read_tree(str(root))) == {"pkg/a.py", "b.txt"}


def test_a_tree_that_is_too_large_is_refused_with_what_is_large(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MOST_FILES", 10)
    (root / "data").mkdir()
    for number in range(20):
        (root / "data" / f"{number}.bin").write_bytes(b"x" * 1000)
    with pytest.raises(PackagingError, match="too much for source code") as caught:
        read_tree(str(root))
    assert "'data'" in str(caught.value.hint)
    assert names(read_tree(str(root), ["data"])) == {"pkg/a.py", "b.txt"}


def test_a_file_that_changes_while_it_is_packed_is_noticed(root: Path, tmp_path: Path) -> None:
    tree = read_tree(str(root))
    (root / "b.txt").write_text("B\n")
    with pytest.raises(PackagingError, match=r"b\.txt changed while it was packaged"):
        pack(tree, str(tmp_path / "x.tar.gz"))


@pytest.mark.parametrize("pattern", ["pkg", "pkg/", "*.py", "pkg/a.py"])
def test_a_pattern_excludes_names_and_folders(root: Path, pattern: str) -> None:
    assert names(read_tree(str(root), [pattern])) == {"b.txt"}


def test_a_project_of_2000_files_is_read_quickly_and_unchanged_at_once(root: Path) -> None:
    for number in range(2000):
        file = root / f"m{number % 50}" / f"f{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"x = {number}\n" * 50)
        os.utime(file, (1e9, 1e9))
    git(root, "init", "-q")
    git(root, "add", "-A")
    age(time.time(), 2.1)  # what has just been changed is read again
    taken = []
    for _ in range(6):
        begun = time.process_time()
        tree = read_tree(str(root))
        taken.append(time.process_time() - begun)
    assert len(tree.entries) == 2002
    # In CPU time, with a wide margin for a machine with other work; docs/packaging.md has numbers.
    assert taken[0] < 1.0
    assert min(taken[1:]) < 0.1
