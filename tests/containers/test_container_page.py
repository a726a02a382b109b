"""The page about containers, run as one program on a real Slurm with a real registry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

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
    # A registry of the reader's has a certificate; this one is trusted without.
    registries = tmp_path / "registries.conf"
    place = app_image.partition("/")[0]
    registries.write_text(f'[[registry]]\nlocation = "{place}"\ninsecure = true\n')
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=folder,
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "CONTAINERS_REGISTRIES_CONF": str(registries),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["CPython", "3", "True"]
