"""Options: right ones become sbatch flags, wrong ones are refused with the fix."""

import datetime
import os
import pickle
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import OptionError
from slurm.model.again import Retry
from slurm.model.option_table import ALIASES, BY_NAME, EXCLUSIVE, MEANT, OTHER_FLAGS, OWN_FLAGS
from slurm.model.options import (
    OPTIONS,
    TaskOptions,
    merge,
    normalize,
    option_names,
    sbatch_flags,
)
from slurm.model.units import GpuRequest, Seconds

# For each option a value, its plain form, and the flags it renders to.
GOLDEN: list[tuple[str, object, object, list[tuple[str, str | None]]]] = [
    ("job_name", "my job", "my job", [("job-name", "my job")]),
    ("comment", "it's $(mine)", "it's $(mine)", [("comment", "it's $(mine)")]),
    ("partition", "gpu", "gpu", [("partition", "gpu")]),
    ("partition", ["gpu", "cpu"], "gpu,cpu", [("partition", "gpu,cpu")]),
    ("account", "lab", "lab", [("account", "lab")]),
    ("qos", "high", "high", [("qos", "high")]),
    ("reservation", "night", "night", [("reservation", "night")]),
    ("wckey", "key", "key", [("wckey", "key")]),
    ("constraint", "[a100|h100]&ib", "[a100|h100]&ib", [("constraint", "[a100|h100]&ib")]),
    ("nodelist", "n[1-2]", "n[1-2]", [("nodelist", "n[1-2]")]),
    ("exclude", ["n1", "n7"], "n1,n7", [("exclude", "n1,n7")]),
    ("switches", 2, "2", [("switches", "2")]),
    ("switches", "1@10min", "1@00:10:00", [("switches", "1@00:10:00")]),
    ("contiguous", True, True, [("contiguous", None)]),
    ("spread_job", True, True, [("spread-job", None)]),
    ("time", "2h", 7200, [("time", "02:00:00")]),
    ("time", 90, 5400, [("time", "01:30:00")]),
    ("time", datetime.timedelta(days=2), 172800, [("time", "2-00:00:00")]),
    ("time", "UNLIMITED", "UNLIMITED", [("time", "UNLIMITED")]),
    ("time_min", "1-00:00:00", 86400, [("time-min", "1-00:00:00")]),
    ("begin", "now+2hours", "now+2hours", [("begin", "now+2hours")]),
    ("begin", datetime.timedelta(hours=1), "now+3600", [("begin", "now+3600")]),
    ("begin", datetime.datetime(2040, 1, 2, 3, 4), "2040-01-02T03:04:00",
     [("begin", "2040-01-02T03:04:00")]),
    ("begin", datetime.date(2040, 1, 2), "2040-01-02", [("begin", "2040-01-02")]),
    ("begin", "16:00", "16:00", [("begin", "16:00")]),
    ("deadline", "2040-01-02T03:04", "2040-01-02T03:04", [("deadline", "2040-01-02T03:04")]),
    ("dependency", "afterok:12:13_4,singleton", "afterok:12:13_4,singleton",
     [("dependency", "afterok:12:13_4,singleton")]),
    ("dependency", "after:12+5?afterany:3_*", "after:12+5?afterany:3_*",
     [("dependency", "after:12+5?afterany:3_*")]),
    ("hold", True, True, [("hold", None)]),
    ("nice", 100, 100, [("nice", "100")]),
    ("nice", -5, -5, [("nice", "-5")]),
    ("nice", 0, 0, [("nice", "0")]),
    ("priority", "top", "TOP", [("priority", "TOP")]),
    ("nodes", 2, 2, [("nodes", "2")]),
    ("nodes", "2-4", "2-4", [("nodes", "2-4")]),
    ("ntasks", "8", 8, [("ntasks", "8")]),
    ("ntasks_per_node", 4, 4, [("ntasks-per-node", "4")]),
    ("cpus_per_task", 4, 4, [("cpus-per-task", "4")]),
    ("cpus_per_gpu", 4, 4, [("cpus-per-gpu", "4")]),
    ("threads_per_core", 1, 1, [("threads-per-core", "1")]),
    ("mem", "8GiB", 8192, [("mem", "8192M")]),
    ("mem", 0, 0, [("mem", "0")]),
    ("mem_per_cpu", "2G", 2048, [("mem-per-cpu", "2048M")]),
    ("mem_per_gpu", 1000, 1000, [("mem-per-gpu", "1000M")]),
    ("gpus", "a100:2", (GpuRequest("a100", 2),), [("gpus", "a100:2")]),
    ("gpus", 0, (), []),
    ("gpus_per_node", 4, (GpuRequest(None, 4),), [("gpus-per-node", "4")]),
    ("gpus_per_task", "1", (GpuRequest(None, 1),), [("gpus-per-task", "1")]),
    ("gres", "gpu:a100:2", "gpu:a100:2", [("gres", "gpu:a100:2")]),
    ("tres_per_task", "gres/gpu:1", "gres/gpu:1", [("tres-per-task", "gres/gpu:1")]),
    ("tmp", "1G", 1024, [("tmp", "1024M")]),
    ("licenses", "matlab:2,ansys@db:1", "matlab:2,ansys@db:1",
     [("licenses", "matlab:2,ansys@db:1")]),
    ("exclusive", True, True, [("exclusive", None)]),
    ("exclusive", "user", "user", [("exclusive", "user")]),
    ("oversubscribe", True, True, [("oversubscribe", None)]),
    ("overcommit", True, True, [("overcommit", None)]),
    ("distribution", "block:cyclic", "block:cyclic", [("distribution", "block:cyclic")]),
    ("hint", "NoMultiThread", "nomultithread", [("hint", "nomultithread")]),
    ("signal", "b:usr1@60", "B:USR1@60", [("signal", "B:USR1@60")]),
    ("signal", 12, "12", [("signal", "12")]),
    ("requeue", True, True, [("requeue", None)]),
    ("requeue", False, False, [("no-requeue", None)]),
    ("mail_type", ["end", "FAIL"], "END,FAIL", [("mail-type", "END,FAIL")]),
    ("mail_user", "me@example.org", "me@example.org", [("mail-user", "me@example.org")]),
    ("output", Path("logs") / "%j.out", "logs/%j.out", [("output", "logs/%j.out")]),
    ("error", "a b'c.err", "a b'c.err", [("error", "a b'c.err")]),
    ("export", ["ALL", "A=b"], "ALL,A=b", [("export", "ALL,A=b")]),
    ("profile", "task", "task", [("profile", "task")]),
    ("array_throttle", 5, 5, []),
    ("workdir", Path("/data/x"), "/data/x", []),
    ("env", {"A": 1, "B_2": "two\nlines"}, {"A": "1", "B_2": "two\nlines"}, []),
    ("secrets", ["WANDB_API_KEY"], ("WANDB_API_KEY",), []),
    ("modules", ["gcc", "cuda/12.4"], ("gcc", "cuda/12.4"), []),
    ("modules", "gcc cuda/12.4", ("gcc", "cuda/12.4"), []),
    ("venv", "~/venv", "~/venv", []),
    ("conda", "ml", "ml", []),
    ("python", "python3.11", "python3.11", []),
    ("setup", "a\nb\n", ("a\nb",), []),
    ("setup", ["a", "cat <<E\r\nx\r\nE"], ("a", "cat <<E\nx\nE"), []),
    ("teardown", ["rm -rf x"], ("rm -rf x",), []),
    ("all_ranks", True, True, []),
    ("launch", "torchrun", "torchrun", []),
    ("srun_args", ["--cpu-bind", "none"], ("--cpu-bind", "none"), []),
    ("cache", "v2", "v2", []),
    ("retry", 2, Retry(times=2), []),
    ("sbatch", {"--core_spec": 2, "reboot": True, "no-kill": False},
     {"core-spec": "2", "reboot": True, "no-kill": False}, [("core-spec", "2"), ("reboot", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "plain", "flags"), GOLDEN)
def test_each_option_has_a_plain_form_and_renders_to_its_flags(
    name: str, value: object, plain: object, flags: list[tuple[str, str | None]]
) -> None:
    options = normalize({name: value}, where="test")
    assert options == {name: plain}
    assert sbatch_flags(options) == flags
    assert normalize(options, where="test") == options, "the plain form is read as itself"


def test_every_option_has_a_golden_value() -> None:
    assert {row[0] for row in GOLDEN} == set(option_names())


def test_the_typed_dict_and_the_table_have_the_same_names_in_the_same_order() -> None:
    assert tuple(TaskOptions.__annotations__) == option_names()
    names = {**vars(datetime), "PathLike": os.PathLike}
    typing.get_type_hints(TaskOptions, localns=names)  # each type can be evaluated


def test_the_table_agrees_with_itself() -> None:
    flags = [spec.flag for spec in OPTIONS if spec.flag]
    assert len(set(flags)) == len(flags) and len(BY_NAME) == len(OPTIONS)
    assert all(flag.replace("-", "_") in BY_NAME for flag in flags)
    assert all(spec.doc.endswith(".") for spec in OPTIONS)
    assert not set(flags) & set(OWN_FLAGS) and not set(flags) & OTHER_FLAGS
    assert not OTHER_FLAGS & set(OWN_FLAGS)
    assert set(ALIASES.values()) | set(MEANT.values()) <= set(option_names())
    assert not (set(ALIASES) | set(MEANT)) & set(option_names())
    assert all(name in BY_NAME for group in EXCLUSIVE for name in group)


def test_flags_come_in_the_order_of_the_table_whatever_the_order_of_the_call() -> None:
    given = {"gpus": 1, "mem": "1G", "time": 5, "partition": "x", "job_name": "j"}
    expected = ["job-name", "partition", "time", "mem", "gpus"]
    for options in (given, dict(reversed(given.items()))):
        assert [flag for flag, _ in sbatch_flags(normalize(options, where="t"))] == expected


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tme", "did you mean time?"),
        ("cpu_per_task", "did you mean cpus_per_task?"),
        ("partion", "did you mean partition?"),
        ("memry", "did you mean memory?"),
        ("cpus", "write cpus_per_task="),
        ("walltime", "write time="),
        ("slurm_partition", "write partition="),
        ("cpus-per-task", "write cpus_per_task="),
        ("Time", "write time="),
        ("core_spec", 'write sbatch={"core-spec": ...}'),
        ("array", "call task.map(items)"),
        ("wrap", "decorate a function with @task"),
        ("zzzz", 'any other sbatch flag can be given as sbatch={"flag": value}'),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one(name: str, hint: str) -> None:
    with pytest.raises(OptionError) as refused:
        normalize({name: 1}, where="@task(train)")
    assert refused.value.message == f"@task(train): unknown option {name!r}"
    assert refused.value.hint == hint


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_words_of_other_tools_are_taken_as_ours(alias: str, name: str) -> None:
    assert normalize({alias: "5"}, where="t") == normalize({name: "5"}, where="t")
    with pytest.raises(OptionError, match=f"{name} and {alias} cannot be set together"):
        normalize({alias: "5", name: "5"}, where="t")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", "soon"), ("time", 0), ("time_min", "UNLIMITED"), ("mem", "lots"), ("gpus", "x:y"),
        ("nodes", "4-2"), ("nodes", 0), ("nodes", True), ("nodes", 1.5), ("ntasks", 0),
        ("ntasks", "two"), ("ntasks", True), ("cpus_per_task", 1.5), ("partition", ""),
        ("partition", []), ("partition", ["a,b"]), ("partition", 5), ("account", " "),
        ("constraint", "a\nb"), ("job_name", "a\x00b"), ("job_name", "a\rb"), ("comment", "\ud800"),
        ("nodelist", "n[1-"), ("exclude", []), ("exclude", "/etc/hosts"), ("switches", "x"),
        ("begin", "later"), ("begin", "now; ls"), ("begin", 5),
        ("begin", datetime.datetime(2040, 1, 1, tzinfo=datetime.timezone.utc)),
        ("dependency", "12"), ("dependency", "afterok:x"), ("dependency", "afterok:1,"),
        ("dependency", "afterok:1,afterany:2?singleton"), ("hold", 1), ("hold", "yes"),
        ("nice", "x"), ("nice", 2**40), ("priority", -1), ("gres", "gpu 2"), ("hint", "fast"),
        ("exclusive", "nobody"), ("exclusive", 1), ("signal", "B:"), ("signal", "USR1@99999"),
        ("requeue", "yes"), ("mail_type", "ENDD"), ("mail_type", 5), ("output", "a\nb"),
        ("output", b"x"), ("workdir", "-x"), ("venv", ""), ("python", "a\nb"), ("env", ["A=1"]),
        ("env", {"1A": "x"}), ("env", {"A": "x\0"}), ("env", {"A": True}), ("env", {"A": [1]}),
        ("env", {"A": "\udc80"}), ("env", {"A B": "x"}), ("env", {1: "x"}),
        ("secrets", {"A": "x"}), ("secrets", ["A B"]), ("secrets", 5), ("modules", ["a;b"]),
        ("modules", ["-x"]), ("modules", []), ("setup", 5), ("setup", ["a\0"]), ("setup", [5]),
        ("distribution", "random"), ("profile", "foo"), ("licenses", "a b"), ("export", "A\nB"),
        ("array_throttle", 0), ("all_ranks", 1), ("sbatch", ["x"]), ("sbatch", {"core-spec": None}),
        ("sbatch", {"core-spec": "a\nb"}), ("sbatch", {"": 1}), ("sbatch", {"c": 1}),
        ("sbatch", {"a b": 1}), ("sbatch", {"a=b": 1}), ("sbatch", {5: 1}),
        ("sbatch", {"core-spec": 1.5}), ("sbatch", {"core-spec": 1, "--core_spec": 2}),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_and_names_the_option(name: str, value: object) -> None:
    with pytest.raises(OptionError) as refused:
        normalize({name: value}, where="Cluster(...)")
    assert refused.value.message.startswith(f"Cluster(...): {name}")


def test_a_wrong_word_comes_with_the_nearest_right_one() -> None:
    with pytest.raises(OptionError) as refused:
        normalize({"mail_type": "END,FIAL"}, where="t")
    assert refused.value.hint == 'did you mean "FAIL"?'


@pytest.mark.parametrize("flag", ["time", "--mem", "cpus_per_task", "no-requeue", "output"])
def test_a_flag_with_an_option_of_its_own_is_refused_in_sbatch(flag: str) -> None:
    with pytest.raises(OptionError, match="has an option of its own") as refused:
        normalize({"sbatch": {flag: "1"}}, where="t")
    option = "requeue=False" if flag == "no-requeue" else flag.lstrip("-").replace("-", "_") + "="
    assert refused.value.hint == f"write {option}"


@pytest.mark.parametrize("flag", OWN_FLAGS)
def test_a_flag_that_the_sdk_owns_is_refused_in_sbatch_with_what_to_do(flag: str) -> None:
    with pytest.raises(OptionError, match="cannot be set here") as refused:
        normalize({"sbatch": {f"--{flag}": True}}, where="t")
    assert refused.value.hint == OWN_FLAGS[flag]


@pytest.mark.parametrize(
    "options",
    [
        {"secrets": ["KEY=hunter2"]},
        {"secrets": ["hunter2!"]},
        {"secrets": {"KEY": "hunter2"}},
        {"env": {"KEY=hunter2": "x"}},
        {"env": {"KEY": "hunter2\0"}},
        {"env": {"KEY": ["hunter2"]}},
        {"env": ["KEY=hunter2"]},
    ],
)
def test_an_error_about_secrets_or_environment_never_shows_a_value(
    options: dict[str, object],
) -> None:
    with pytest.raises(OptionError) as refused:
        normalize(options, where="t")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("group", EXCLUSIVE)
def test_options_that_exclude_each_other_are_refused_together(group: tuple[str, ...]) -> None:
    values = {row[0]: row[1] for row in GOLDEN}
    with pytest.raises(OptionError) as refused:
        normalize({name: values[name] for name in group[:2]}, where="t")
    assert group[0] in refused.value.message and group[1] in refused.value.message


def test_a_minimum_time_above_the_limit_is_refused() -> None:
    with pytest.raises(OptionError, match="time_min='2h': is longer than time"):
        normalize({"time": "1h", "time_min": "2h"}, where="t")


def test_none_is_kept_to_remove_a_default_and_false_does_the_same() -> None:
    options = normalize({"mem": None, "hold": False, "exclusive": False}, where="t")
    assert options == {"mem": None, "hold": None, "exclusive": None}
    assert sbatch_flags(options) == []
    defaults = normalize({"mem": "1G", "hold": True, "exclusive": "user"}, where="t")
    assert merge(defaults, options) == {}


def test_a_later_layer_wins_and_env_and_sbatch_are_merged_by_key() -> None:
    merged = merge(
        {"time": 60, "partition": "a", "env": {"A": "1", "B": "2", "C": "3"}},
        {"time": 120, "env": {"B": "3", "C": None}, "sbatch": {"reboot": True, "core-spec": "1"}},
        {"sbatch": {"reboot": False}},
    )
    assert merged == {
        "time": 120,
        "partition": "a",
        "env": {"A": "1", "B": "3"},
        "sbatch": {"reboot": False, "core-spec": "1"},
    }
    assert sbatch_flags(merged)[-1] == ("core-spec", "1")


def test_a_later_option_replaces_an_earlier_one_that_it_excludes() -> None:
    assert merge({"mem": 1}, {"mem_per_cpu": 2}) == {"mem_per_cpu": 2}
    assert merge({"mem": 1}, {"mem_per_cpu": 2}, {"mem_per_gpu": 3}) == {"mem_per_gpu": 3}
    assert merge({"mem": 1}, {"mem_per_cpu": None}) == {"mem": 1}
    assert merge({"mem": 1}, {"mem": 2}) == {"mem": 2}


def test_merging_changes_no_layer() -> None:
    first: dict[str, object] = {"env": {"A": "1"}, "mem": 1}
    second: dict[str, object] = {"env": {"B": "2"}, "mem": None}
    assert merge(first, second) == {"env": {"A": "1", "B": "2"}}
    assert (first, second) == (
        {"env": {"A": "1"}, "mem": 1},
        {"env": {"B": "2"}, "mem": None},
    )


def test_plain_options_survive_pickle() -> None:
    options = normalize({"time": "2h", "gpus": "a100:2"}, where="t")
    again = pickle.loads(pickle.dumps(options))
    assert again == options and isinstance(again["time"], Seconds)
    assert normalize(again, where="t") == options


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**5000),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.lists(st.one_of(st.text(max_size=5), st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers()), max_size=3),
    st.timedeltas(),
    st.datetimes(),
    st.sampled_from([row[1] for row in GOLDEN]),
)


@given(st.dictionaries(st.sampled_from(option_names()) | st.text(max_size=8), VALUES, max_size=4))
def test_no_options_raise_anything_but_option_error_and_flags_stay_on_one_line(
    options: dict[str, object],
) -> None:
    try:
        plain = normalize(options, where="t")
    except OptionError:
        return
    assert normalize(plain, where="t") == plain
    merged = merge(plain)
    assert None not in merged.values() and merge(merged) == merged
    for flag, value in sbatch_flags(merged):
        assert "\n" not in flag and (value is None or not set(value) & {"\n", "\r", "\0"})
