"""Plan of a native cluster -> configuration files, compared with the text a person would check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm.errors import StackError
from slurm.stack.conf import cgroup_conf, slurm_conf, slurmdbd_conf
from slurm.stack.native_plan import (
    NativeCluster,
    Request,
    check_request,
    checked_directory,
    native_plan,
)
from slurm.stack.topology import Nodes

TOP = Path("/srv/lab")


def cluster(
    request: Request | None = None, *, directory: Path = TOP, enforced: bool = True
) -> NativeCluster:
    asked = replace(request or Request(nodes=2), name="lab").topology()
    if request is None:
        asked = replace(asked, nodes=(Nodes(("n1",), 8, 4000), Nodes(("n2",), 2, 900)))
    count = sum(len(group.names) for group in asked.nodes)
    ports = [17000, 17010, *range(17001, 17001 + count)]
    why_not = None if enforced else "no cgroups here"
    plan = native_plan(asked, directory, "box", "root", ports, "22.05", why_not)
    return NativeCluster(plan, directory, files=(request or Request()).files)


SLURM_CONF = """\
# Slurm 22.05, cluster lab: written by `slurm cluster`.

# Who is who
ClusterName=lab
SlurmctldHost=box(127.0.0.1)
SlurmctldPort=17000
SlurmUser=root
AuthType=auth/munge
SlurmdUser=root
AuthInfo=cred_expire=5,socket=/srv/lab/munge/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny

# Where things are
StateSaveLocation=/srv/lab/state
SlurmdSpoolDir=/srv/lab/spool/%n
SlurmctldPidFile=/srv/lab/run/slurmctld.pid
SlurmdPidFile=/srv/lab/run/slurmd-%n.pid
MailProg=/bin/true
SlurmctldLogFile=/srv/lab/log/slurmctld.log
SlurmdLogFile=/srv/lab/log/slurmd-%n.log

# Scheduling
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
ReturnToService=2
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=2
SlurmctldTimeout=60
SlurmdTimeout=60

# How jobs are held together
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=30

# Accounting
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=17010
AccountingStoragePass=/srv/lab/munge/munge.socket

# Nodes
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=box Port=17001 CPUs=8 CoresPerSocket=8 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname=box Port=17002 CPUs=2 CoresPerSocket=2 RealMemory=900 State=UNKNOWN

# Partitions
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""  # noqa: E501 - Slurm's own lines

SLURMDBD_CONF = """\
# Accounting of cluster lab; the password is not in this file.

# The daemon
DbdHost=box
DbdAddr=127.0.0.1
DbdPort=17010
SlurmUser=root
AuthType=auth/munge
PidFile=/srv/lab/run/slurmdbd.pid
AuthInfo=socket=/srv/lab/munge/munge.socket
CommunicationParameters=NoInAddrAny
LogFile=/srv/lab/log/slurmdbd.log

# Its database
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""

CGROUP_CONF = """\
# How jobs are held to what they asked for.

# Cgroups
CgroupPlugin=cgroup/v1
CgroupMountpoint=/srv/lab/cgroup
CgroupAutomount=no
ConstrainRAMSpace=yes
ConstrainCores=no
ConstrainDevices=no
"""


def test_two_nodes_with_accounting_and_enforcement_give_these_files() -> None:
    lab = cluster()
    assert slurm_conf(lab.plan) == SLURM_CONF
    assert slurmdbd_conf(lab.plan) == SLURMDBD_CONF
    assert cgroup_conf(lab.plan) == CGROUP_CONF


def test_without_accounting_there_is_no_slurmdbd_and_no_word_of_it() -> None:
    files = cluster(Request(accounting=False)).conf_files()
    assert "slurmdbd.conf" not in files
    assert "AccountingStorageType=accounting_storage/none" in files["slurm.conf"]
    assert "AccountingStoragePort" not in files["slurm.conf"]


def test_without_cgroups_processes_are_followed_by_linuxproc() -> None:
    files = cluster(enforced=False).conf_files()
    assert "cgroup.conf" not in files
    assert "ProctrackType=proctrack/linuxproc" in files["slurm.conf"]
    assert "cgroup" not in files["slurm.conf"]


def lines_of(*extra: str) -> list[str]:
    return cluster(Request(nodes=2, extra_conf=extra)).conf_files()["slurm.conf"].splitlines()


def test_an_extra_line_replaces_our_default_of_the_same_key() -> None:
    lines = lines_of("killwait = 30", "MinJobAge=2")
    assert "KillWait=2" not in lines
    assert lines[-2:] == ["killwait = 30", "MinJobAge=2"]


def test_partitions_of_the_caller_come_instead_of_ours() -> None:
    text = "\n".join(lines_of("PartitionName=a Nodes=n1 Default=YES"))
    assert text.count("PartitionName=") == 1


def test_defaults_for_all_nodes_stand_before_the_nodes() -> None:
    lines = lines_of("NodeName=DEFAULT Features=fast", "NodeName=x1 Port=5")
    defaults = lines.index("NodeName=DEFAULT Features=fast")
    assert lines[defaults + 1].startswith("NodeName=n1 ")
    assert lines[-1] == "NodeName=x1 Port=5"


def test_files_of_the_caller_are_written_as_given_and_cgroup_conf_is_completed() -> None:
    given = {"oci.conf": "A=1\n", "cgroup.conf": "ConstrainCores=yes\n"}
    files = cluster(Request(files=given)).conf_files()
    assert files["oci.conf"] == "A=1\n"
    lines = files["cgroup.conf"].splitlines()
    assert "ConstrainCores=yes" in lines
    assert "ConstrainCores=no" not in lines
    assert "CgroupMountpoint=/srv/lab/cgroup" in lines


def test_the_same_name_in_two_directories_gives_two_cgroups() -> None:
    other = cluster(directory=Path("/srv/other"))
    assert cluster().cgroup != other.cgroup
    assert other.cgroup.startswith("slurm-sdk-lab-")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(nodes=0), "nodes=0"),
        (Request(cpus=-1), "cpus=-1"),
        (Request(memory_mb=5), "memory_mb=5"),
        (Request(name="My Lab"), "name='My Lab'"),
        (Request(files={"slurm.conf": ""}), "slurm.conf"),
        (Request(files={"../passwd": ""}), "../passwd"),
        (Request(extra_conf=("A=1\nB=2",)), "extra_conf"),
    ],
)
def test_a_request_that_cannot_be_is_refused_by_name_and_value(
    request_: Request, words: str
) -> None:
    with pytest.raises(StackError) as caught:
        check_request(request_)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("path", ["/tmp/a b", "/tmp/a,b", "/tmp/a#b", "/tmp/a%b", "/tmp/a'b"])
def test_a_directory_that_slurm_conf_cannot_name_is_refused(path: str) -> None:
    with pytest.raises(StackError, match="conf cannot express"):
        checked_directory(path)


def test_a_directory_too_long_for_a_unix_socket_is_refused() -> None:
    with pytest.raises(StackError, match="107 bytes"):
        checked_directory("/tmp/" + "x" * 90)
    assert len(str(checked_directory("/tmp/" + "x" * 70))) == 75
