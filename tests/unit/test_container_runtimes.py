"""How a container starts by each runtime: text compared with golden files, and run where it can.

There is no package of Pyxis and enroot: their command line is held by a golden file, and a program
that records its arguments stands in for srun.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurm.errors import PackagingError
from slurm.packaging.container import runtimes
from slurm.packaging.container.failures import explain
from slurm.packaging.container.runtimes import Container

GOLDEN = Path(__file__).parent / "golden_containers"
_IMAGE = "registry.example.org:5000/me/app@sha256:" + "ab" * 32

_FULL = {
    "image": _IMAGE,
    "mounts": ("/data:/data:ro", "/scratch:/my scratch"),
    "workdir": "/work here",
    "names": ("TOKEN",),
    "extra": ("--flag=a b",),
    "tls_verify": False,
}


def text_of(container: Container) -> str:
    """A start as a script would hold it."""
    started = runtimes.start(container)
    words = [*started.launch, "python3", "runner"]
    if started.srun:
        words = ["srun", *started.srun, *words]
    return "\n".join([*started.setup, f"exec {' '.join(words)}", ""])


@pytest.mark.parametrize("runtime", runtimes.RUNTIMES)
@pytest.mark.parametrize("form", ["plain", "full"])
def test_the_start_of_each_runtime_is_the_golden_one(runtime: str, form: str) -> None:
    gpus = form == "full" and runtime != "oci"
    given = (
        {**_FULL, "gpus": gpus} if form == "full" else {"image": _IMAGE, "code": ("/home/me/p",)}
    )
    text = text_of(Container(runtime=runtime, **given))
    golden = GOLDEN / f"{runtime}_{form}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    subprocess.run(["bash", "-n", str(golden)], check=True)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that record their arguments and variables stand in for srun, podman, apptainer."""
    folder = tmp_path / "bin"
    folder.mkdir()
    each = 'for word in "${0##*/}" "$@"; do printf "%s\\n" "$word"; done'
    script = f'#!/bin/bash\n{each} > "$RECORD"\n'
    for name in ("srun", "podman", "apptainer"):
        program = folder / name
        program.write_text(f'{script}env > "$RECORD.env"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    monkeypatch.setenv("SLURM_SDK_BASE", "/base")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "record"


def start(container: Container, cwd: Path) -> None:
    subprocess.run(["bash", "-c", text_of(container)], check=True, cwd=cwd, timeout=60)


def test_srun_gets_the_words_of_pyxis_whole(record: Path, tmp_path: Path) -> None:
    here = tmp_path / "two words"
    here.mkdir()
    start(Container(_IMAGE, "pyxis", mounts=("/data:/data:ro",), names=("TOKEN",)), here)
    words = record.read_text().splitlines()
    assert words[:4] == [
        "srun",
        "--container-image=registry.example.org:5000#me/app:sha256:" + "ab" * 32,
        f"--container-mounts=/base:/base,/data:/data:ro,{here}:{here}",
        f"--container-workdir={here}",
    ]
    assert words[4] == "--no-container-mount-home"
    assert words[5].startswith("--container-env=") and words[5].endswith(",TOKEN")
    assert words[6:] == ["python3", "runner"]


def test_no_value_of_a_variable_is_in_the_words_of_podman(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    monkeypatch.setenv("SLURM_PROCID", "3")
    start(Container(_IMAGE, "podman", names=("TOKEN", "NOT_SET")), tmp_path)
    words = record.read_text().splitlines()
    assert "--env=TOKEN" in words and "--env=SLURM_PROCID" in words
    assert "--env=NOT_SET" not in words
    assert "hush" not in record.read_text()
    assert words[-3:] == [_IMAGE, "python3", "runner"]
    assert f"--volume={tmp_path}:{tmp_path}" in words


def test_apptainer_gets_variables_by_its_own_prefix(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    start(Container("/images/app.sif", "apptainer", names=("TOKEN",), gpus=True), tmp_path)
    words = record.read_text().splitlines()
    assert words[1:5] == ["--quiet", "exec", "--cleanenv", "--no-home"]
    assert "--nv" in words and "hush" not in record.read_text()
    assert words[-3:] == ["/images/app.sif", "python3", "runner"]
    assert "APPTAINERENV_TOKEN=hush" in Path(f"{record}.env").read_text().splitlines()


@pytest.mark.parametrize("here", ["/", "/usr/share", "/etc"])
def test_a_folder_of_the_image_is_not_covered_by_the_working_directory(
    here: str, record: Path
) -> None:
    start(Container(_IMAGE, "podman"), Path(here))
    assert f"--volume={here}:{here}" not in record.read_text().splitlines()


@pytest.mark.parametrize(
    ("image", "there"),
    [
        ("python:3.12", "python:3.12"),
        ("nvidia/cuda:12", "nvidia/cuda:12"),
        ("nvcr.io/nvidia/pytorch:25.09-py3", "nvcr.io#nvidia/pytorch:25.09-py3"),
        ("/images/app.sqsh", "/images/app.sqsh"),
    ],
)
def test_enroot_has_its_own_way_to_write_a_registry(image: str, there: str) -> None:
    assert runtimes.enroot_name(image) == there


@pytest.mark.parametrize("mount", ["data", "/a:b", "/a:/b:rx", "/a:/b:ro:x", "/a,b:/c", "/a:/", ""])
def test_a_mount_that_cannot_be_is_refused(mount: str) -> None:
    with pytest.raises(PackagingError, match="mounts has"):
        runtimes.check_mount(mount)


def test_one_path_is_mounted_under_its_own_name() -> None:
    assert runtimes.check_mount("/data") == "/data:/data"


def test_gpus_by_oci_are_refused_with_the_fix() -> None:
    with pytest.raises(PackagingError, match="oci"):
        runtimes.start(Container(_IMAGE, "oci", gpus=True))


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ('Error: crun: executable file `python3` not found in $PATH: No such file or directory: '
         "OCI runtime attempted to invoke a command that was not found", "has no Python"),
        ('runc failed: exec: "python3": executable file not found in $PATH', "has no Python"),
        ('FATAL:   "python3": executable file not found in $PATH', "has no Python"),
        ("slurmstepd: error: execve(): python3: No such file or directory", "has no Python"),
        ("exec /usr/bin/python3: exec format error", "another kind of machine"),
        ("http: server gave HTTP response to HTTPS client", "no certificate"),
        ("reading manifest 1 in r/x: manifest unknown", "there is no image"),
        ("unauthorized: authentication required", "wants a login"),
        ("dial tcp 127.0.0.1:1: connect: connection refused", "could not be fetched"),
        ("something new", "did not start"),
    ],
)  # fmt: skip
def test_the_words_of_a_runtime_are_explained(said: str, meaning: str) -> None:
    told, fix = explain("r/x:1", [said])
    assert meaning in told and "r/x:1" in told and fix
