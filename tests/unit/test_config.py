"""Slurmfile.toml: both forms are read, and a wrong key is answered with the right one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm.config import EXAMPLE, find_slurmfile, load_profile
from slurm.errors import ConfigError
from slurm.model.options import normalize
from slurm.packaging import Packaging


@pytest.fixture
def slurmfile(tmp_path: Path) -> Path:
    return tmp_path / "Slurmfile.toml"


def load(path: Path, text: str, profile: str | None = None) -> dict[str, Any]:
    path.write_text(text)
    return load_profile(path, profile)


def refusal(path: Path, text: str, profile: str | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(path, text, profile)
    assert str(path) in caught.value.message
    return caught.value


def test_a_relative_base_directory_counts_from_the_file(
    slurmfile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    text = '[default]\njob_base_dir = "runs"\n[far]\nhostname = "login"\n[home]\n'
    text += 'job_base_dir = "~/x"\n'
    assert load(slurmfile, text)["job_base_dir"] == str(tmp_path / "runs")
    assert load(slurmfile, text, "far")["job_base_dir"] == "runs"
    assert load(slurmfile, text, "home")["job_base_dir"] == "~/x"


# ---- where it is --------------------------------------------------------------------------------


def test_the_nearest_file_above_is_found(tmp_path: Path, slurmfile: Path) -> None:
    slurmfile.write_text("")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_slurmfile(below) == slurmfile.resolve()
    nearer = tmp_path / "a" / "Slurmfile.toml"
    nearer.write_text("")
    assert find_slurmfile(below) == nearer.resolve()


def test_the_search_begins_in_the_working_directory(
    slurmfile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurmfile.write_text("")
    monkeypatch.chdir(slurmfile.parent)
    assert find_slurmfile() == slurmfile.resolve()


def test_slurmfile_in_the_environment_comes_first(
    tmp_path: Path, slurmfile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurmfile.write_text("")
    monkeypatch.setenv("SLURMFILE", str(tmp_path / "other.toml"))
    assert find_slurmfile(tmp_path) == tmp_path / "other.toml"


def test_a_tilde_in_slurmfile_is_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SLURMFILE", "~/my.toml")
    assert find_slurmfile() == tmp_path / "my.toml"


def test_no_file_at_all_is_answered_with_one_to_copy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no Slurmfile\.toml") as caught:
        find_slurmfile(tmp_path)
    assert EXAMPLE in str(caught.value.hint)


def test_the_example_in_the_hint_is_right(slurmfile: Path) -> None:
    found = load(slurmfile, EXAMPLE)
    assert found == {"backend_type": "local", "partition": "main", "time": 3600}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        load_profile(tmp_path / "none.toml")


# ---- profiles -----------------------------------------------------------------------------------

TWO = """
[default]
backend_type = "local"
job_base_dir = "~/jobs"
[default.options]
time = "1h"
mem = "4G"
env = { A = "1", B = "1" }
[hpc]
backend_type = "embedded"
[hpc.options]
time = "2h"
env = { B = "2" }
"""


def test_default_is_what_comes_without_a_name(slurmfile: Path) -> None:
    found = load(slurmfile, TWO)
    assert found["backend_type"] == "local"
    assert found["time"] == 3600


def test_default_lies_under_every_other_profile(slurmfile: Path) -> None:
    found = load(slurmfile, TWO, "hpc")
    assert found["backend_type"] == "embedded"
    assert found["job_base_dir"] == "~/jobs"
    assert (found["time"], found["mem"]) == (7200, 4096)
    assert found["env"] == {"A": "1", "B": "2"}


def test_an_option_replaces_the_one_that_it_excludes(slurmfile: Path) -> None:
    text = '[default.options]\nmem = "4G"\n[hpc.options]\nmem_per_cpu = "1G"\n'
    found = load(slurmfile, text, "hpc")
    assert "mem" not in found
    assert found["mem_per_cpu"] == 1024


def test_a_profile_can_switch_a_default_off(slurmfile: Path) -> None:
    text = "[default.options]\nexclusive = true\n[hpc.options]\nexclusive = false\n"
    assert "exclusive" not in load(slurmfile, text, "hpc")


def test_what_a_profile_gives_can_be_checked_again_by_the_cluster(slurmfile: Path) -> None:
    found = load(slurmfile, '[default.options]\ntime = 90\nmem = "4G"\ngpus = "a100:2"\n')
    assert normalize(found, where="Cluster") == found


def test_the_environment_can_name_the_profile(
    slurmfile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_ENV", "hpc")
    assert load(slurmfile, TWO)["backend_type"] == "embedded"
    assert load(slurmfile, TWO, "default")["backend_type"] == "local"


def test_a_profile_that_is_not_there_is_answered_with_the_nearest(slurmfile: Path) -> None:
    error = refusal(slurmfile, TWO, "hcp")
    assert "has no profile 'hcp'; it has default, hpc" in error.message
    assert error.hint == "did you mean 'hpc'?"


def test_an_empty_file_has_no_profile(slurmfile: Path) -> None:
    assert "it has none" in refusal(slurmfile, "").message


# ---- strict keys --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says", "fix"),
    [
        ('[default]\nbackend = "local"', "unknown key 'backend'", "did you mean backend_type?"),
        ('[default]\njob_dir = "x"', "unknown key 'job_dir'", "did you mean job_base_dir?"),
        ('[default]\npartition = "x"', "unknown key 'partition'", "[default.options]"),
        ("[default]\nzzz = 1", "unknown key 'zzz'", "a profile has"),
        ('[default.options]\npartion = "x"', "'partion'", "partition"),
        ('[default.options]\ntime = "soon"', "time", ""),
        ("[default]\noptions = 3", "options must be a table, not 3", ""),
        ("[default]\nbackend_type = 3", "backend_type must be text, not 3", "backend_type ="),
        (
            "[default]\ntrust_group = 'lab'",
            "trust_group must be true or false",
            "trust_group = true",
        ),
        ("[default]\njob_base_dir = []", "job_base_dir must be text", "job_base_dir ="),
        ('backend_type = "local"', "stands outside of a profile", "[default]"),
        ("[default\n", "is not valid TOML", "[default]"),
        ("a = 1\na = 2", "is not valid TOML", ""),
        ("environments = 3", "environments must be a table", ""),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_the_fix(
    slurmfile: Path, text: str, says: str, fix: str
) -> None:
    error = refusal(slurmfile, text)
    assert says in error.message
    assert fix in str(error.hint)


def test_a_mistake_in_another_profile_is_found_too(slurmfile: Path) -> None:
    refusal(slurmfile, TWO + '\n[broken]\nbackend_typ = "x"\n', "hpc")


def test_a_file_that_is_not_utf_8_is_refused(slurmfile: Path) -> None:
    slurmfile.write_bytes(b'[default]\nbackend_type = "\xff"\n')
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_profile(slurmfile)


# ---- slurm-sdk's form ---------------------------------------------------------------------------

OLD = """
[default.cluster]
backend = "local"
job_base_dir = "/jobs"
[default.packaging]
type = "none"
[default.submit]
partition = "main"
time = "00:30:00"
"""


def test_the_form_of_slurm_sdk_is_read(slurmfile: Path) -> None:
    assert load(slurmfile, OLD) == {
        "backend_type": "local",
        "job_base_dir": "/jobs",
        "packaging": Packaging("none", {}, f"{slurmfile}, [default]"),
        "partition": "main",
        "time": 1800,
    }


def test_the_form_of_slurm_sdk_may_lie_under_environments(slurmfile: Path) -> None:
    text = OLD.replace("[default.", "[environments.default.")
    assert load(slurmfile, text)["partition"] == "main"


def test_the_settings_of_its_backend_come_up_to_the_profile(slurmfile: Path) -> None:
    text = '[default.cluster.backend_config]\njob_base_dir = "/x"\n'
    assert load(slurmfile, text) == {"job_base_dir": "/x"}


def test_profiles_of_both_forms_may_stand_in_one_file(slurmfile: Path) -> None:
    found = load(slurmfile, OLD + '\n[hpc.options]\npartition = "gpu"\n', "hpc")
    assert (found["partition"], found["time"]) == ("gpu", 1800)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[default.cluster]\nbackendd = "x"', "unknown key 'backendd'"),
        ('[default.packaging]\ntype = "none"\nextra = 1', "has no option 'extra'"),
        ('[default.submit]\npartion = "x"', "'partion'"),
        ("[default.submit]\n[default.typo]", "unknown key 'typo'"),
        ("[default]\nsubmit = 3\n[default.cluster]", "submit must be a table, not 3"),
        ("[default]\npackaging = 'none'\n[default.cluster]", "packaging must be a table"),
        ("[default.cluster]\nbackend_config = 3", "backend_config must be a table"),
        ("[default.submit]\ntime = 1\n[default.options]\nmem = 1", "'options' stands beside"),
        ('[default]\nbackend_type = "x"\n[default.submit]', "'backend_type' stands beside"),
    ],
)
def test_a_mistake_in_the_form_of_slurm_sdk_is_refused(
    slurmfile: Path, text: str, says: str
) -> None:
    assert says in refusal(slurmfile, text).message
