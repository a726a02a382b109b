"""What is found on a host (GPUs, cgroups, platform), and `slurm cluster render` on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm.cli import main
from slurm.stack import site
from slurm.stack.site import Gpu


def test_a_real_h200_is_found() -> None:
    # What nvidia-smi printed on a machine with one H200, whose device was /dev/nvidia0.
    assert site.parse_nvidia("0, NVIDIA H200\n") == (Gpu("nvidia", "h200", "/dev/nvidia0"),)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("Tesla V100-PCIE-16GB", "v100-pcie-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("NVIDIA", "nvidia"),
    ],
)
def test_a_type_is_a_part_of_the_name_that_slurm_itself_finds(name: str, kind: str) -> None:
    assert site.gpu_type(name) == kind
    assert kind in name.lower().replace(" ", "_")


def nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in on PATH: there is no GPU where tests run."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_gpus_of_a_host_are_those_that_nvidia_smi_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = "0, NVIDIA A100-SXM4-40GB\\n1, NVIDIA A100-SXM4-40GB\\n"
    nvidia_smi(tmp_path, f"printf '{listed}'", monkeypatch)
    kind = "a100-sxm4-40gb"
    assert site.find_gpus() == tuple(Gpu("nvidia", kind, f"/dev/nvidia{n}") for n in (0, 1))


@pytest.mark.parametrize(
    "script",
    [
        "echo 'No devices were found'",
        "echo 'NVIDIA-SMI has failed because it couldn'; exit 9",
        "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
    ],
)
def test_no_gpu_and_a_driver_that_fails_are_no_error(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path, script, monkeypatch)
    assert site.find_gpus() == site.amd_gpus()
    assert site.amd_gpus(Path("/no/such/folder")) == ()


def test_an_amd_gpu_is_found_by_what_the_driver_tells(tmp_path: Path) -> None:
    for number, simd, minor, name in ((0, 0, 0, ""), (1, 304, 128, "gfx942")):
        node = tmp_path / str(number)
        node.mkdir()
        (node / "name").write_text(f"{name}\n")
        (node / "properties").write_text(f"simd_count {simd}\ndrm_render_minor {minor}\n")
    assert site.amd_gpus(tmp_path) == (Gpu("amd", "gfx942", "/dev/dri/renderD128"),)


def test_cgroups_count_only_with_a_memory_controller(tmp_path: Path) -> None:
    assert site.cgroup_version(tmp_path) == "none"
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")
    assert site.cgroup_version(tmp_path) == "none"
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").touch()
    assert site.cgroup_version(tmp_path) == "v1"
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert site.cgroup_version(tmp_path) == "v2"


def test_the_platform_is_found_by_itself(tmp_path: Path) -> None:
    assert site.host_platform("Darwin") == "mac"
    assert site.host_platform("Linux", tmp_path) == "qnap"
    assert site.host_platform("Linux", tmp_path / "none") == "ubuntu"


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "render", *words])
    return int(str(ended.value.code))


def test_render_takes_the_file_in_the_directory_and_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.toml").write_text('name = "mine"\n')
    assert call(str(tmp_path), "--platform", "mac") == 0
    assert "docker-compose.yml" in capsys.readouterr().out
    assert "name: mine" in (tmp_path / "docker-compose.yml").read_text()
    assert "override.mac.yml" in (tmp_path / ".env").read_text()
    assert call(str(tmp_path), "--platform", "mac") == 0
    assert capsys.readouterr().out == "all files are as they should be\n"


def test_what_daemons_read_can_be_read_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert call(str(tmp_path / "lab")) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "lab" / "shared").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "lab" / "shared" / "slurm.conf").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "lab" / "secrets").stat().st_mode & 0o777 == 0o700


def test_render_refuses_a_wrong_topology_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.toml").write_text("\nnodez = 3\n")
    assert call(str(tmp_path)) == 2
    assert "cluster.toml, line 2: nodez: unknown key" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]
