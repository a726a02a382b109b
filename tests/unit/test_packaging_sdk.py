"""The copy of the SDK that travels: what a node needs, nothing else, named by its content."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

import slurm
from slurm.packaging import sdk
from slurm.packaging.sdk import CLIENT_ONLY, sdk_files, sdk_hash


def test_the_copy_holds_slurm_and_cloudpickle_and_nothing_else() -> None:
    names = set(sdk_files())
    assert {name.partition("/")[0] for name in names} == {"slurm", "cloudpickle"}
    assert "slurm/runner/__main__.py" in names
    assert "slurm/rundir/names.py" in names
    assert "cloudpickle/cloudpickle.py" in names
    assert all(name.endswith(".py") for name in names)
    assert not [n for n in names for part in CLIENT_ONLY if n.startswith(f"slurm/{part}")]


def test_what_stays_at_home_is_a_part_of_the_package() -> None:
    top = Path(str(slurm.__file__)).parent
    assert [part for part in CLIENT_ONLY if not (top / part).is_dir()] == []


def test_the_copy_is_byte_for_byte_what_is_installed() -> None:
    top = Path(str(slurm.__file__)).parent
    files = sdk_files()
    assert files["slurm/errors.py"] == (top / "errors.py").read_bytes()
    assert files["cloudpickle/__init__.py"] == Path(str(cloudpickle.__file__)).read_bytes()


def test_the_name_of_the_copy_is_the_same_in_every_process() -> None:
    code = "from slurm.packaging.sdk import sdk_hash; print(sdk_hash())"
    names = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert names[0] == names[1]
    assert len(names[0]) == 20


def test_the_name_of_the_copy_changes_with_any_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = dict(sdk_files())
    changed["slurm/errors.py"] += b"#"
    before = sdk_hash.__wrapped__()
    monkeypatch.setattr(sdk, "sdk_files", lambda: changed)
    assert sdk_hash.__wrapped__() != before


def test_a_bare_python_imports_all_of_the_copy(tmp_path: Path) -> None:
    for name, content in sdk_files().items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import slurm\n"
        "for name in slurm.__all__: getattr(slurm, name)\n"
        "import slurm.runner.run, slurm.api.agent, slurm.packaging, cloudpickle\n"
        "assert slurm.__file__.startswith(sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
