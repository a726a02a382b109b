"""What is found on a host (GPUs, cgroups, platform), and `slurm cluster render` on it."""

from __future__ import annotations

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


def test_no_gpu_is_no_error() -> None:
    assert site.parse_nvidia("No devices were found\n") == ()
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


def test_render_refuses_a_wrong_topology_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.toml").write_text("\nnodez = 3\n")
    assert call(str(tmp_path)) == 2
    assert "cluster.toml, line 2: nodez: unknown key" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.toml"]
