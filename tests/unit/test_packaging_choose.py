"""Which way of packaging holds for a call, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, task
from slurm.config import load_profile
from slurm.errors import ConfigError, PackagingError
from slurm.packaging import Packaging, Request, check_packaging, choose, prepare
from slurm.packaging.choose import KINDS, OPTIONS, find_project
from slurm.packaging.prepare import decide


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_taken_as_text_and_as_a_table(kind: str) -> None:
    assert check_packaging(kind) == check_packaging({"type": kind})


def test_an_image_stands_behind_a_colon() -> None:
    packaging = check_packaging("container:host:5000/me/image:v1")
    assert packaging.kind == "container"
    assert packaging.options == {"image": "host:5000/me/image:v1"}


@pytest.mark.parametrize(
    ("given", "says", "hint"),
    [
        ("wheeel", "packaging='wheeel' is not known", "did you mean 'wheel'?"),
        ("contianer:x", "is not known", "did you mean 'container'?"),
        ({"extras": ["x"]}, "does not name its type", "wheel"),
        ({"type": "wheel", "extra": ["x"]}, "has no option 'extra'", "did you mean 'extras'?"),
        ({"type": "none", "extras": ["x"]}, "has no option", "extras is an option of"),
        ({"type": "wheel", "extras": 3}, "extras=3", "extras="),
        ({"type": "wheel", "installer": "conda"}, "'conda' is not known", "auto, uv or pip"),
        ({"type": "wheel", "python_version": "3"}, "is not of the form", "3.12"),
        (3, "is neither text nor a table", "wheel"),
        ("wheel:thing", "is not known", "wheel"),
    ],
)
def test_a_mistake_is_refused_with_the_nearest_right_one(given: Any, says: str, hint: str) -> None:
    with pytest.raises(PackagingError) as caught:
        check_packaging(given)
    assert says in caught.value.message
    assert hint in str(caught.value.hint)


def test_the_nearest_layer_names_the_kind() -> None:
    task_says, cluster_says = check_packaging("none"), check_packaging("wheel")
    assert choose(None, task_says, cluster_says).kind == "none"
    assert choose(cluster_says, task_says).kind == "wheel"
    assert choose().kind == "auto"


def test_layers_of_the_same_kind_say_what_is_left_open() -> None:
    near = check_packaging({"type": "wheel", "extras": ["gpu"]})
    far = check_packaging({"type": "wheel", "extras": ["cpu"], "index_url": "https://i/simple"})
    assert choose(near, far).options == {"extras": ["gpu"], "index_url": "https://i/simple"}
    assert choose(check_packaging("source"), far).options == {}


def test_auto_and_wheel_share_their_options() -> None:
    far = check_packaging({"type": "auto", "index_url": "https://i/simple"})
    assert choose(check_packaging("wheel"), far).options == {"index_url": "https://i/simple"}


def test_a_task_a_cluster_and_a_submission_may_each_say_it(tmp_path: Path) -> None:
    @task(packaging="none")
    def own() -> None: ...

    @task
    def silent() -> None: ...

    cluster = Cluster("embedded", job_base_dir=tmp_path, packaging="source")
    assert cluster.submit(own).packaging.kind == "none"
    assert cluster.submit(silent).packaging.kind == "source"
    assert cluster.submit(own, packaging={"type": "wheel"}).packaging.kind == "wheel"


def test_a_task_refuses_a_wrong_kind_where_it_is_written() -> None:
    with pytest.raises(PackagingError, match="is not known"):

        @task(packaging="wheell")
        def wrong() -> None: ...


def test_a_profile_may_hold_a_table(tmp_path: Path) -> None:
    file = tmp_path / "Slurmfile.toml"
    file.write_text('[default.packaging]\ntype = "wheel"\nextras = ["gpu"]\n')
    cluster = Cluster.from_file(file, job_base_dir=tmp_path)
    assert (cluster.packaging.kind, cluster.packaging.options) == ("wheel", {"extras": ["gpu"]})
    other = Cluster.from_file(file, packaging={"type": "wheel", "installer": "pip"})
    assert other.packaging.options == {"extras": ["gpu"], "installer": "pip"}
    assert Cluster.from_file(file, packaging="none").packaging.kind == "none"


def test_paths_of_a_profile_count_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "Slurmfile.toml"
    file.write_text('[default.packaging]\ntype = "wheel"\nproject = "libs/mine"\n')
    found = load_profile(file)["packaging"]
    assert found.options == {"project": str(tmp_path / "libs" / "mine")}


def test_a_mistake_in_a_profile_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "Slurmfile.toml"
    file.write_text('[default]\npackaging = "wheell"\n')
    with pytest.raises(ConfigError, match=str(file)) as caught:
        load_profile(file)
    assert "did you mean 'wheel'?" in str(caught.value.hint)


# ---- auto ---------------------------------------------------------------------------------------


def test_the_nearest_project_at_or_above_a_file_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner" / "pkg"
    inner.mkdir(parents=True)
    assert find_project(str(inner / "m.py"), lambda _: False) is None
    (tmp_path / "outer" / "pyproject.toml").touch()
    assert find_project(str(inner / "m.py")) == str(tmp_path / "outer")
    (tmp_path / "outer" / "inner" / "pyproject.toml").touch()
    assert find_project(str(inner / "m.py")) == str(tmp_path / "outer" / "inner")


class _Far:
    """A cluster that shares no files with this machine, as far as the decision asks."""

    class backend:
        kind = "ssh"


def function_of(file: Path) -> Any:
    """A function that is written in a file."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("def f():\n    return 1\n")
    space: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(file.read_text(), str(file), "exec"), space)
    return space["f"]


def decided(function: Any) -> tuple[Packaging, str]:
    return decide(Request(_Far, Packaging("auto"), function, {}))  # type: ignore[arg-type]


def test_auto_is_a_wheel_where_the_cluster_does_not_share_our_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    packaging, why = decided(function_of(tmp_path / "pkg" / "m.py"))
    assert packaging.kind == "wheel"
    assert why == f"auto: {tmp_path}/pyproject.toml"


def test_auto_is_none_without_a_project_and_for_the_sdk_itself(tmp_path: Path) -> None:
    packaging, why = decided(function_of(tmp_path / "m.py"))
    assert packaging.kind == "none"
    assert "no pyproject.toml above" in why
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "slurm-sdk"\n')
    packaging, why = decided(function_of(tmp_path / "m.py"))
    assert (packaging.kind, why) == ("none", "auto: the SDK itself")


def test_auto_captures_the_code_where_the_job_has_our_own_python_and_files(tmp_path: Path) -> None:
    cluster = Cluster("embedded", job_base_dir=tmp_path)
    made = prepare(Request(cluster, cluster.packaging, find_project, {}))
    assert made.environment.kind == "none"
    assert made.environment.why.startswith("auto; the job uses this machine's files")
    made = prepare(Request(cluster, cluster.packaging, decided, {}))
    assert made.environment.kind == "captured"
    assert made.environment.digest == ""  # a cache key is about the function, not about the copy


def test_inherit_outside_of_a_job_is_refused(tmp_path: Path) -> None:
    cluster = Cluster("embedded", job_base_dir=tmp_path, packaging="inherit")
    with pytest.raises(PackagingError, match="this process is no job"):
        prepare(Request(cluster, cluster.packaging, find_project, {}))


def test_every_option_takes_its_own_checked_form_again() -> None:
    given = {"type": "wheel", "extras": "gpu", "project": "~/x", "stage": True}
    once = check_packaging(given)
    assert check_packaging(once.plain()).options == once.options
    assert set(OPTIONS["auto"]) <= set(OPTIONS["wheel"])
