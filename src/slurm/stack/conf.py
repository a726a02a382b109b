"""Topology -> the text of slurm.conf, slurmdbd.conf and cgroup.conf; pure functions."""

from __future__ import annotations

import re

from slurm.stack.topology import Topology

_TURN_AROUND = ",".join(
    ["sched_min_interval=100000", "batch_sched_delay=0", "sched_interval=1", "bf_interval=1"]
)

_NODE_DEFAULTS = re.compile(r"\s*NodeName\s*=\s*DEFAULT\b", re.IGNORECASE)


def conf_files(topology: Topology) -> dict[str, str]:
    """Every file of the configuration directory by name, the caller's own files included."""
    files = {**topology.files, "slurm.conf": slurm_conf(topology)}
    if topology.enforce_memory:
        files["cgroup.conf"] = cgroup_conf(topology)
    if topology.accounting:
        files["slurmdbd.conf"] = slurmdbd_conf(topology)
    return files


def slurm_conf(topology: Topology) -> str:
    """The text of slurm.conf; the caller's lines replace ours where they set the same key."""
    lines = [
        *_identity(topology),
        *_places(topology),
        *_scheduling(),
        *_containment(topology),
        *_accounting(topology),
    ]
    given = {_key(line) for line in topology.extra_conf}
    # Slurm takes the first value of a repeated key and complains: a default must give way.
    kept = [line for line in lines if _key(line) not in given]
    # What is said about all nodes must stand before the nodes.
    first = [line for line in topology.extra_conf if _NODE_DEFAULTS.match(line)]
    last = [line for line in topology.extra_conf if line not in first]
    return "\n".join([*kept, *first, *_machines(topology, given), *last, ""])


def _key(line: str) -> str:
    return line.partition("=")[0].strip().lower()


def _identity(topology: Topology) -> list[str]:
    return [
        f"ClusterName={topology.name}",
        f"SlurmctldHost={topology.host}(127.0.0.1)",
        f"SlurmctldPort={topology.slurmctld_port}",
        # The daemons share one account: slurmd must be root to start jobs as their users, and a
        # controller under another name could not read what it shares with them in this directory.
        f"SlurmUser={topology.user}",
        f"SlurmdUser={topology.user}",
        "AuthType=auth/munge",
        # cred_expire is also how long a requeued job is held back: 6 s instead of 121 s.
        f"AuthInfo=cred_expire=5,socket={topology.munge_socket}",
        # Listen on the loopback address alone.
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
    ]


def _places(topology: Topology) -> list[str]:
    top = topology.directory
    return [
        f"StateSaveLocation={top}/state",
        f"SlurmdSpoolDir={top}/spool/%n",
        f"SlurmctldPidFile={top}/run/slurmctld.pid",
        f"SlurmdPidFile={top}/run/slurmd-%n.pid",
        f"SlurmctldLogFile={top}/log/slurmctld.log",
        f"SlurmdLogFile={top}/log/slurmd-%n.log",
        "MailProg=/bin/true",
    ]


def _scheduling() -> list[str]:
    return [
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=100",
        "ReturnToService=2",
        f"SchedulerParameters={_TURN_AROUND}",
        "KillWait=2",
        # One machine plays all nodes, and may be slow to answer for all of them at once.
        "SlurmctldTimeout=60",
        "SlurmdTimeout=60",
        "MpiDefault=none",
        # The nodes claim more than this machine has; without this they come up INVAL.
        "SlurmdParameters=config_overrides",
    ]


def _containment(topology: Topology) -> list[str]:
    if topology.enforce_memory:
        return [
            "ProctrackType=proctrack/cgroup",
            "TaskPlugin=task/cgroup",
            "JobAcctGatherType=jobacct_gather/cgroup",
            "JobAcctGatherFrequency=30",
        ]
    return [
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=30",
    ]


def _accounting(topology: Topology) -> list[str]:
    if not topology.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={topology.slurmdbd_port}",
        # Not a password: with munge this names the socket for talking to slurmdbd.
        f"AccountingStoragePass={topology.munge_socket}",
    ]


def _machines(topology: Topology, given: set[str]) -> list[str]:
    nodes = [
        f"NodeName={node.name} NodeAddr=127.0.0.1 NodeHostname={topology.host} Port={node.port} "
        f"CPUs={node.cpus} CoresPerSocket={node.cpus} RealMemory={node.memory_mb} State=UNKNOWN"
        for node in topology.nodes
    ]
    # Partitions of the caller's own come instead of ours: two defaults would be ambiguous.
    if "partitionname" in given:
        return nodes
    return [*nodes, "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]


def slurmdbd_conf(topology: Topology) -> str:
    """The text of slurmdbd.conf; the database is reached by its socket, so there is no password."""
    top = topology.directory
    lines = [
        f"DbdHost={topology.host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={topology.slurmdbd_port}",
        f"SlurmUser={topology.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={topology.munge_socket}",
        f"LogFile={top}/log/slurmdbd.log",
        f"PidFile={top}/run/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        # "localhost" makes the client library use the socket named by MYSQL_UNIX_PORT.
        "StorageHost=localhost",
        f"StorageUser={topology.user}",
        "StorageLoc=slurm_acct_db",
    ]
    return "\n".join([*lines, ""])


def cgroup_conf(topology: Topology) -> str:
    """The text of cgroup.conf for cgroup v1; lines of the caller's own cgroup.conf come first."""
    given = topology.files.get("cgroup.conf", "").splitlines()
    lines = [
        "CgroupPlugin=cgroup/v1",
        # Links to this cluster's own part of each hierarchy: two clusters would otherwise share
        # directories, for Slurm names them by node and job id only.
        f"CgroupMountpoint={topology.directory}/cgroup",
        "CgroupAutomount=no",
        "ConstrainRAMSpace=yes",
        "ConstrainCores=no",
        "ConstrainDevices=no",
    ]
    keys = {_key(line) for line in given}
    return "\n".join([*given, *(line for line in lines if _key(line) not in keys), ""])
