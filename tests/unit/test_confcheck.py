"""The validator says what a daemon would refuse, with file, line and fix."""

from __future__ import annotations

import pytest

from slurm.stack.confcheck import check_files, parse

GOOD = """\
ClusterName=lab
SlurmctldHost=ctl(10.0.0.2)
NodeName=n[1-2] CPUs=4
PartitionName=main Nodes=n[1-2] Default=YES
"""

WRONG = [
    ("slurm.conf", "MaxArraySiz=5", "22.05", "no key MaxArraySiz", "did you mean MaxArraySize?"),
    ("slurm.conf", "MetricsType=x", "24.11", "came with Slurm 25.11", "25.11 or later"),
    ("slurm.conf", "SlurmctldPlugstack=x", "24.11", "gone since Slurm 23.02", "remove"),
    ("slurm.conf", "KillWait=soon", "24.11", "KillWait=soon is not a number", "whole number"),
    ("slurm.conf", "UsePAM=maybe", "24.11", "neither yes nor no", "yes or no"),
    ("slurm.conf", "SelectType=select/cons_res", "24.11", "gone since Slurm 23.11", "remove"),
    ("slurm.conf", "AuthType=auth/slurm", "22.05", "came with Slurm 23.11", "23.11 or later"),
    ("slurm.conf", "TaskPlugin=task/none", "26.05", "gone since Slurm 23.11", "remove"),
    ("slurm.conf", "just some words", "24.11", "is not KEY=VALUE", "KEY=VALUE"),
    ("slurm.conf", "KillWait=", "24.11", "KillWait has no value", "give it one"),
    ("slurm.conf", "ClusterName=other", "24.11", "stands in line 1 already", "remove one"),
    ("slurm.conf", "NodeName=n2 CPUs=4", "24.11", "node n2 stands in line 3", "one line"),
    ("slurm.conf", "NodeName=x1 Cpu=4", "24.11", "NodeName has no key Cpu", "CPUs"),
    ("slurm.conf", "PartitionName=b Nodes=n7", "24.11", "n7, which is no node", "add the node"),
    ("slurm.conf", "PartitionName=b Nodes=n[1", "24.11", "is not closed", "n[1-4]"),
    ("slurm.conf", "PartitionName=b Nodes=n1 Default=YES", "24.11", "second default", "keep one"),
    (
        "slurm.conf",
        "PartitionName=b Nodes=n1 MaxTime=x",
        "24.11",
        "MaxTime=x is not a time",
        "D-HH",
    ),
    ("slurm.conf", "NodeName=g1 Gres=gpu:2", "24.11", "GresTypes has no gpu", "GresTypes=gpu"),
    ("slurm.conf", "AuthAltTypes=auth/jwt", "24.11", "has no key", "jwt_key="),
    ("slurm.conf", "AccountingStorageEnforce=limits", "24.11", "no slurmdbd", "slurmdbd"),
    ("slurm.conf", "TaskPlugin=task/cgroup", "24.11", "needs proctrack/cgroup", "ProctrackType"),
    ("cgroup.conf", "CgroupAutomount=yes", "24.11", "gone since Slurm 23.11", "remove"),
    ("cgroup.conf", "CgroupPlugin=disabled", "22.05", "came with Slurm 24.05", "later"),
    ("cgroup.conf", "AllowedRAMSpace=lots", "24.11", "is not a number", "number"),
    ("gres.conf", "NodeName=n1 Fil=/dev/x", "24.11", "no key Fil", "did you mean"),
    ("gres.conf", "AutoDetect=full", "24.11", "came with Slurm 26.05", "later"),
    ("oci.conf", 'EnvExclude="x"', "22.05", "came with Slurm 23.02", "later"),
    ("slurmdbd.conf", "DbdHost=a", "24.11", "StorageType is missing", "StorageType"),
]


@pytest.mark.parametrize(("file", "line", "version", "what", "fix"), WRONG)
def test_a_wrong_line_is_named_with_its_number_and_fix(
    file: str, line: str, version: str, what: str, fix: str
) -> None:
    files = {"slurm.conf": GOOD}
    files[file] = files.get(file, "") + line + "\n"
    problems = check_files(files, version)
    assert len(problems) == 1, problems
    assert problems[0].file == file
    assert what in problems[0].what
    assert fix in problems[0].fix
    assert problems[0].line == (5 if file == "slurm.conf" else 1)


@pytest.mark.parametrize("version", ["20.11", "22.05", "24.11", "26.05"])
def test_a_good_file_is_good_for_every_release(version: str) -> None:
    assert check_files({"slurm.conf": GOOD, "other.conf": "nonsense"}, version) == []


def test_what_slurm_conf_needs_is_missed() -> None:
    assert [p.what for p in check_files({"slurm.conf": ""}, "24.11")] == [
        "ClusterName is missing",
        "PartitionName is missing",
        "SlurmctldHost is missing",
        "there is no NodeName",
    ]


def test_gpus_and_their_device_files_must_agree() -> None:
    slurm = GOOD + "GresTypes=gpu\nNodeName=g1 CPUs=2 Gres=gpu:a100:2\n"
    gres = "NodeName=g1 Name=gpu Type=a100 File=/dev/nvidia[0-{}]\n"
    assert check_files({"slurm.conf": slurm, "gres.conf": gres.format(1)}, "24.11") == []
    (problem,) = check_files({"slurm.conf": slurm, "gres.conf": gres.format(3)}, "24.11")
    assert "g1 has 2 GPUs here and 4 device files" in problem.what and problem.line == 6


def test_disabled_cgroups_and_plugins_that_need_them_do_not_go_together() -> None:
    slurm = GOOD + "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n"
    found = check_files({"slurm.conf": slurm, "cgroup.conf": "CgroupPlugin=disabled\n"}, "24.11")
    assert [problem.line for problem in found] == [5, 6]


def test_comments_continued_lines_and_quotes_are_read_as_slurm_reads_them() -> None:
    text = '# a\nNodeName=n1 \\\n  CPUs=2 # b\n\nReason="a b"\ninclude /etc/more.conf\n'
    lines, problems = parse("slurm.conf", text)
    assert problems == []
    assert [(line.number, line.key, line.value) for line in lines] == [
        (2, "NodeName", "n1"),
        (5, "Reason", "a b"),
    ]
    assert lines[0].get("cpus") == "2"
