"""The page about containers and the example, on a real Slurm with a real registry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from pages import ROOT, blocks_of, write_files

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

PAGE = ROOT / "docs" / "containers.md"
BASE, REGISTRY = "docker.io/library/python:3.11-slim", "registry.example.org/me"


def test_the_page_about_containers_runs(
    slurm_cluster: RunningCluster, app_image: str, base_image: str, tmp_path: Path
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    write_files(PAGE, folder)
    recipe = folder / "Dockerfile"
    assert BASE in recipe.read_text()
    recipe.write_text(recipe.read_text().replace(BASE, base_image))
    program = "\n".join(block.text for block in blocks_of(PAGE) if block.kind == "python")
    assert REGISTRY in program
    here = app_image.rpartition("/")[0]
    program = program.replace(f"{REGISTRY}/tools:1", app_image).replace(REGISTRY, here)
    (folder / "page.py").write_text(program)
    assert _printed(["page.py"], folder, app_image, tmp_path) == ["CPython", "3", "True"]


@pytest.mark.full
def test_the_example_about_containers_runs_in_an_image(
    slurm_cluster: RunningCluster, app_image: str, tmp_path: Path
) -> None:
    example = str(ROOT / "examples" / "in_a_container.py")
    *_, last = _printed([example, "local", app_image], tmp_path, app_image, tmp_path)
    assert last.startswith("it ran in Debian")


def _printed(words: list[str], folder: Path, image: str, home: Path) -> list[str]:
    """What a program prints that takes an image from the registry of the tests."""
    # A registry of the reader's has a certificate; this one is trusted without.
    registries = home / "registries.conf"
    place = image.partition("/")[0]
    registries.write_text(f'[[registry]]\nlocation = "{place}"\ninsecure = true\n')
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "HOME": str(home), "CONTAINERS_REGISTRIES_CONF": str(registries)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()
