"""Topology -> configuration files, compared with the text a person would check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm.errors import StackError
from slurm.stack.conf import cgroup_conf, conf_files, slurm_conf, slurmdbd_conf
from slurm.stack.topology import NodeSpec, Request, Topology, check_request, checked_directory

TWO_NODES = Topology(
    name="lab",
    directory=Path("/srv/lab"),
    host="box",
    user="root",
    nodes=(NodeSpec("n1", 17001), NodeSpec("n2", 17002, cpus=2, memory_mb=900)),
    slurmctld_port=17000,
    slurmdbd_port=17010,
    enforce_memory=True,
)

SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=box(127.0.0.1)
SlurmctldPort=17000
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5,socket=/srv/lab/munge/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=/srv/lab/state
SlurmdSpoolDir=/srv/lab/spool/%n
SlurmctldPidFile=/srv/lab/run/slurmctld.pid
SlurmdPidFile=/srv/lab/run/slurmd-%n.pid
SlurmctldLogFile=/srv/lab/log/slurmctld.log
SlurmdLogFile=/srv/lab/log/slurmd-%n.log
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
ReturnToService=2
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=2
SlurmctldTimeout=60
SlurmdTimeout=60
MpiDefault=none
SlurmdParameters=config_overrides
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=30
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=17010
AccountingStoragePass=/srv/lab/munge/munge.socket
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname=box Port=17001 CPUs=8 CoresPerSocket=8 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname=box Port=17002 CPUs=2 CoresPerSocket=2 RealMemory=900 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""  # noqa: E501 - Slurm's own lines

SLURMDBD_CONF = """\
DbdHost=box
DbdAddr=127.0.0.1
DbdPort=17010
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/srv/lab/munge/munge.socket
LogFile=/srv/lab/log/slurmdbd.log
PidFile=/srv/lab/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""

CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/srv/lab/cgroup
CgroupAutomount=no
ConstrainRAMSpace=yes
ConstrainCores=no
ConstrainDevices=no
"""


def test_two_nodes_with_accounting_and_enforcement_give_these_files() -> None:
    assert slurm_conf(TWO_NODES) == SLURM_CONF
    assert slurmdbd_conf(TWO_NODES) == SLURMDBD_CONF
    assert cgroup_conf(TWO_NODES) == CGROUP_CONF


def test_without_accounting_there_is_no_slurmdbd_and_no_word_of_it() -> None:
    alone = replace(TWO_NODES, slurmdbd_port=None)
    assert "slurmdbd.conf" not in conf_files(alone)
    text = slurm_conf(alone)
    assert "AccountingStorageType=accounting_storage/none" in text
    assert "AccountingStoragePort" not in text


def test_without_cgroups_processes_are_followed_by_linuxproc() -> None:
    unbound = replace(TWO_NODES, enforce_memory=False)
    assert "cgroup.conf" not in conf_files(unbound)
    assert "ProctrackType=proctrack/linuxproc" in slurm_conf(unbound)
    assert "cgroup" not in slurm_conf(unbound)


def test_an_extra_line_replaces_our_default_of_the_same_key() -> None:
    lines = slurm_conf(replace(TWO_NODES, extra_conf=("killwait = 30", "MinJobAge=2"))).splitlines()
    assert "KillWait=2" not in lines
    assert lines[-2:] == ["killwait = 30", "MinJobAge=2"]


def test_partitions_of_the_caller_come_instead_of_ours() -> None:
    text = slurm_conf(replace(TWO_NODES, extra_conf=("PartitionName=a Nodes=n1 Default=YES",)))
    assert text.count("PartitionName=") == 1


def test_defaults_for_all_nodes_stand_before_the_nodes() -> None:
    lines = slurm_conf(
        replace(TWO_NODES, extra_conf=("NodeName=DEFAULT Features=fast", "NodeName=x1 Port=5"))
    ).splitlines()
    defaults = lines.index("NodeName=DEFAULT Features=fast")
    assert lines[defaults + 1].startswith("NodeName=n1 ")
    assert lines[-1] == "NodeName=x1 Port=5"


def test_files_of_the_caller_are_written_as_given_and_cgroup_conf_is_completed() -> None:
    files = conf_files(
        replace(TWO_NODES, files={"oci.conf": "A=1\n", "cgroup.conf": "ConstrainCores=yes\n"})
    )
    assert files["oci.conf"] == "A=1\n"
    lines = files["cgroup.conf"].splitlines()
    assert lines[0] == "ConstrainCores=yes"
    assert "ConstrainCores=no" not in lines
    assert "CgroupMountpoint=/srv/lab/cgroup" in lines


def test_the_same_name_in_two_directories_gives_two_cgroups() -> None:
    other = replace(TWO_NODES, directory=Path("/srv/other"))
    assert TWO_NODES.cgroup != other.cgroup
    assert TWO_NODES.cgroup.startswith("slurm-sdk-lab-")


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
