"""Locks, names of environments, and what may leave the store: pure parts of packaging."""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from slurm import Cluster
from slurm.packaging.build import asks_for_sdk
from slurm.packaging.environments import Parcel, Recipe, in_store, setup_lines
from slurm.packaging.retention import DAY, MONTH, Stored, expired
from slurm.packaging.sdkwheel import sdk_wheel
from slurm.packaging.wheel import constraints
from slurm.runner import uv_pin
from slurm.runner.install import Failed, hashed, index_flags, install, located, requirements

RECIPE = Recipe("shapes 0.1", "3.11", wheel=Parcel("/here/x.whl", "abc", "x.whl"))


def test_the_name_of_an_environment_is_that_of_its_content() -> None:
    same = [
        replace(RECIPE, label="another"),
        replace(RECIPE, uv="/opt/uv"),
        replace(RECIPE, wheel=Parcel("/elsewhere/x.whl", "abc", "x.whl")),
        replace(RECIPE, options={"python_mirror": "https://m", "stage": True}),
    ]
    other = [
        replace(RECIPE, version="3.12"),
        replace(RECIPE, lock=("six==1.16",)),
        replace(RECIPE, wheel=Parcel("/here/x.whl", "abd", "x.whl")),
        replace(RECIPE, options={"extras": ["gpu"]}),
        replace(RECIPE, options={"index_url": "https://i"}),
        replace(RECIPE, wheels=(Parcel("/s.whl", "sdk", "s.whl"),)),
    ]
    assert {recipe.key for recipe in same} == {RECIPE.key}
    assert len({recipe.key for recipe in other} | {RECIPE.key}) == len(other) + 1


def test_an_environment_of_the_login_node_must_be_whole_before_a_job(tmp_path: Path) -> None:
    cluster = Cluster("embedded", job_base_dir=tmp_path)
    plain = in_store(cluster, RECIPE, "python", "")
    early = in_store(cluster, replace(RECIPE, options={"build_on": "login"}), "python", "")
    assert plain.digest == early.digest
    assert set(early.needs) - set(plain.needs) == {f"{RECIPE.place}/current"}


def test_the_script_starts_no_python_where_the_environment_is_ready() -> None:
    lines = setup_lines("/b/.environments/k", "/b/.environments/k", "/usr/bin/python3")
    make = [line for line in lines if "environment.py" in line]
    assert make == [
        "[ -e /b/.environments/k/current/bin/python ] || sdk_made /usr/bin/python3 "
        '"$SLURM_SDK_ROOT/slurm/runner/environment.py" /b/.environments/k'
    ]


# ---- requirements -------------------------------------------------------------------------------


def test_what_pip_is_told() -> None:
    recipe = {
        "wheel": "/b/x.whl",
        "extras": ["a", "b"],
        "wheels": ["/b/sdk.whl"],
        "dependencies": ["six>1"],
        "constraints": "/b/c.txt",
        "index_url": "https://i",
        "extra_index_urls": ["https://j"],
        "find_links": ["/w"],
    }
    assert requirements(recipe) == [
        *("/b/x.whl[a,b]", "/b/sdk.whl", "six>1", "--constraint", "/b/c.txt"),
    ]
    told = index_flags(recipe, "--index-url", "--extra-index-url")
    assert told == [
        *("--index-url", "https://i", "--extra-index-url", "https://j", "--find-links", "/w"),
    ]
    assert requirements({}) == []


def test_the_lines_of_a_lock_that_name_versions_are_constraints() -> None:
    text = """
    # made by a tool
    -e .
    ./libs/other
    six==1.16.0 \\
        --hash=sha256:0000 \\
        --hash=sha256:1111
    numpy==2.1 ; python_version >= "3.10"   # via x
    slurm-sdk==0.4.6
    thing @ https://example.org/thing.whl
    """
    assert constraints(text) == (
        "six==1.16.0 --hash=sha256:0000 --hash=sha256:1111",
        'numpy==2.1 ; python_version >= "3.10"',
    )


@pytest.mark.attack
def test_the_hashes_of_a_lock_reach_the_installer(tmp_path: Path) -> None:
    recipe = {"wheel": "x.whl", "lock": ["six==1.16.0 --hash=sha256:0000", "attrs==26.1.0"]}
    found = located(recipe, "/b", str(tmp_path / "c"))
    assert Path(found["constraints"]).read_text() == "six==1.16.0\nattrs==26.1.0\n"
    assert Path(found["hashed"]).read_text() == "\n".join(recipe["lock"]) + "\n"
    assert hashed(found) == ["--require-hashes", "--no-deps", "--requirement", found["hashed"]]
    plain = located({"wheel": "x.whl", "lock": ["six==1.16.0"]}, "/b", str(tmp_path / "c"))
    assert hashed(plain) == []


def test_the_uv_that_is_fetched_is_the_one_of_the_lock() -> None:
    lock = Path(__file__).parents[2] / "requirements" / "dev.txt"
    assert f"uv=={uv_pin.VERSION} \\" in lock.read_text().splitlines()
    assert len(uv_pin.HASHES) > 10
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in uv_pin.HASHES)


@pytest.mark.parametrize(
    ("requirement", "is_sdk"),
    [
        ("slurm-sdk", True),
        ("Slurm_SDK>=0.4", True),
        ("slurm.sdk[x] ; python_version > '3'", True),
        ("slurm-sdk-extras", False),
        ("slurm", False),
    ],
)
def test_a_requirement_on_the_sdk_is_known_by_any_spelling(requirement: str, is_sdk: bool) -> None:
    assert asks_for_sdk([requirement]) is is_sdk


def test_the_wheel_of_the_sdk_can_be_installed_and_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wheel = sdk_wheel()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target"]
    subprocess.run([*pip, str(tmp_path / "site"), wheel.path], check=True, timeout=120)
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import slurm; print(slurm.task.__module__)"],
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "slurm.task\n"


# ---- what may go --------------------------------------------------------------------------------

OLD = MONTH + 1


def names(items: list[Stored]) -> list[str]:
    return [item.name for item in items]


def test_what_was_not_used_for_a_month_goes_and_the_rest_stays() -> None:
    items = [Stored("environment", "old", OLD), Stored("environment", "new", 5.0)]
    assert names(expired(items, ())) == ["old"]


def test_what_queued_jobs_need_stays() -> None:
    items = [Stored("environment", "k", OLD), Stored("snapshot", "s", OLD), Stored("sdk", "h", OLD)]
    used = {".environments/k/recipe.json", ".snapshots/s", ".sdk/h"}
    assert expired(items, used) == []
    assert names(expired(items, {".environments/kk/recipe.json"})) == ["k", "s", "h"]


def test_a_wheel_stays_as_long_as_an_environment_that_is_made_of_it() -> None:
    wheel = Stored("wheel", "w", OLD)
    young = Stored("environment", "k", 5.0, made_of=(".wheels/w/x.whl",))
    assert expired([wheel, young], ()) == []
    old = replace(young, idle=OLD)
    assert names(expired([wheel, old], ())) == ["w", "k"]


def test_what_is_being_made_stays_and_what_a_death_has_left_goes_after_a_day() -> None:
    items = [
        Stored("environment", "busy", OLD, state="making"),
        Stored("environment", "k/half", DAY + 1, state="left over"),
        Stored("environment", "k/fresh", 5.0, state="left over"),
    ]
    assert names(expired(items, ())) == ["k/half"]


def test_the_copy_of_the_sdk_that_this_client_uses_stays() -> None:
    items = [Stored("sdk", "mine", OLD), Stored("sdk", "older", OLD)]
    assert names(expired(items, (), own_sdk="mine")) == ["older"]


def _wheel(folder: Path, name: str, *requires: str, body: str = "") -> Path:
    """A wheel by hand; `body` makes another of the same name."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info/"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", body)
        file.writestr(
            about + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
        )
        file.writestr(
            about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(about + "RECORD", "")
    return path


@pytest.mark.attack
@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_file_that_an_index_exchanged_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    index, own = tmp_path / "index", tmp_path / "own"
    index.mkdir()
    own.mkdir()
    thing = _wheel(index, "thing")
    digest = hashlib.sha256(thing.read_bytes()).hexdigest()
    project = _wheel(own, "project", "thing")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    recipe = {
        "installer": installer,
        "uv": str(Path(sys.executable).with_name("uv")),
        "python": {"version": version, "path": sys.executable},
        "wheel": str(project),
        "lock": [f"thing==1.0 --hash=sha256:{digest}"],
        "find_links": [str(index)],
    }
    log = tmp_path / "log"
    found = located(recipe, "/", str(tmp_path / "c"))
    install(found, str(tmp_path), str(tmp_path / "good"), str(log))
    assert list((tmp_path / "good").rglob("thing.py"))
    _wheel(index, "thing", body="print('exchanged')")
    with pytest.raises(Failed) as refused:
        install(found, str(tmp_path), str(tmp_path / "bad"), str(log))
    assert "hash" in "\n".join(refused.value.evidence).lower()
    assert not list((tmp_path / "bad").rglob("thing.py"))
