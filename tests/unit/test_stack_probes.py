"""Parsers of what Slurm says about a cluster's nodes and partitions; the text is from 22.05."""

from __future__ import annotations

from slurm.stack.probes import in_service, parse_nodes, widest_job

NODES = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=8  CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.37 "
    "AvailableFeatures=fast ActiveFeatures=fast Gres=(null) NodeAddr=127.0.0.1 NodeHostName=box "
    "Port=17001 Version=22.05.8 RealMemory=4000 AllocMem=0 FreeMem=2200 Sockets=1 Boards=1 "
    "State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=main \n"
    "NodeName=n2 CoresPerSocket=8  CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=N/A Gres=(null) "
    "State=DOWN*+DRAIN ThreadsPerCore=1 Reason=Not responding [root@2026-01-01T10:00:00]\n"
)


def test_node_states_are_read_from_scontrol() -> None:
    assert parse_nodes(NODES) == {"n1": "idle", "n2": "down*+drain"}
    assert parse_nodes("No nodes in the system\n") == {}


def test_a_node_whose_last_job_just_ended_is_in_service() -> None:
    assert all(map(in_service, ("idle", "mixed", "idle+completing", "allocated+planned")))
    assert not any(map(in_service, ("down*", "idle+drain", "idle*", "unknown", None)))


def test_the_first_job_takes_the_default_partition_as_wide_as_it_may() -> None:
    assert widest_job("a|2|1-infinite\nmain*|4|1-infinite\n") == ("main", 4)
    assert widest_job("a*|8|1-2\n") == ("a", 2)
    assert widest_job("a|2|1-infinite\nb|4|1-infinite\n") == ("a", 2)
    assert widest_job("slurm_load_partitions: Unable to contact slurm controller\n") is None
