"""Plan -> the text of Slurm's own configuration files; pure functions, keys by version."""

from __future__ import annotations

import re
from collections.abc import Iterable

from slurm.api.unshared import FEATURE
from slurm.model.hostlist import collapse_hostlist
from slurm.model.units import format_duration
from slurm.stack.check import srun_ports
from slurm.stack.plan import SLURMD_PORT, Node, Plan
from slurm.stack.topology import Partition

#: A heading, and the lines below it.
Section = tuple[str, list[str]]

_TURN_AROUND = ",".join(
    ["sched_min_interval=100000", "batch_sched_delay=0", "sched_interval=1", "bf_interval=1"]
)
# More nodes than this are scheduled with Slurm's own, calmer settings.
_FEW_NODES = 64
# Room for nodes that join later.
_MORE_NODES = 64
_NODE_DEFAULTS = re.compile(r"\s*NodeName\s*=\s*DEFAULT\b", re.IGNORECASE)
_OCI_ID = "%n.%u.%j.%s.%t"
_COMMUNICATION = "communicationparameters"
#: The address of this host's name alone: first for slurmctld, then for slurmd, srun and slurmdbd.
_ALONE = "NoCtldInAddrAny,NoInAddrAny"
_DBD_ALONE = "NoInAddrAny"
#: Where hosts are several: the ports of srun in one container, which publishes them.
OWN_PORTS = "/run/srun-ports.conf"


def conf_files(plan: Plan) -> dict[str, str]:
    """The files of the configuration directory by name; slurmdbd.conf has a place of its own."""
    files = {"slurm.conf": slurm_conf(plan)}
    for name, text in (
        ("cgroup.conf", cgroup_conf(plan)),
        ("gres.conf", gres_conf(plan)),
        ("oci.conf", oci_conf(plan)),
    ):
        if text:
            files[name] = text
    return files


def slurm_conf(plan: Plan) -> str:
    """The text of slurm.conf; the user's lines replace ours where they set the same key."""
    extra = _still_alone(plan, plan.topology.conf.slurm, _ALONE)
    # What is said about all nodes must stand before the nodes.
    first = [line for line in extra if _NODE_DEFAULTS.match(line)]
    last = [line for line in extra if line not in first]
    sections = [
        ("Who is who", _identity(plan)),
        ("Where things are", _places(plan)),
        ("Scheduling", _scheduling(plan)),
        ("How jobs are held together", _containment(plan)),
        ("Accounting", _accounting(plan)),
    ]
    kept = [(title, _unless_given(lines, extra)) for title, lines in sections]
    # Partitions of the user's own come instead of ours: two defaults would be ambiguous.
    own = any(_key(line) == "partitionname" for line in extra)
    parts = [] if own else [_partition(plan, p) for p in plan.partitions]
    sets = [f"NodeSet={_set(node)} Feature={node.name}" for node in plan.joined]
    machines = [*first, *map(_node, plan.on_host("")), *sets]
    return _text(
        f"Slurm {plan.version}, cluster {plan.topology.name}: written by `slurm cluster`.",
        [*kept, ("Nodes", machines), ("Partitions", parts), ("From [conf] slurm", last)],
    )


def _text(title: str, sections: Iterable[Section]) -> str:
    parts = [f"# {title}\n"]
    parts += [f"# {head}\n" + "".join(f"{x}\n" for x in lines) for head, lines in sections if lines]
    return "\n".join(parts)


def _unless_given(lines: Iterable[str], extra: Iterable[str]) -> list[str]:
    """Our lines but those whose key the user sets: Slurm would take the first, and complain."""
    given = {_key(line) for line in extra}
    return [line for line in lines if _key(line) not in given]


def _still_alone(plan: Plan, extra: Iterable[str], word: str) -> list[str]:
    """The user's lines: one on how daemons communicate leaves them on loopback, too."""
    if not (plan.native and plan.loopback_alone):
        return list(extra)
    return [_with(line, word) if _key(line) == _COMMUNICATION else line for line in extra]


def _with(line: str, word: str) -> str:
    said, mark, comment = line.partition("#")
    return f"{said.rstrip(' ,')},{word}" + (f" {mark}{comment}" if mark else "")


def _key(line: str) -> str:
    return line.partition("=")[0].strip().lower()


def _identity(plan: Plan) -> list[str]:
    paths = plan.paths
    lines = [
        f"ClusterName={plan.topology.name}",
        *(_controller(plan, name, address) for name, address in plan.controllers),
        f"SlurmctldPort={plan.slurmctld_port}",
        f"SlurmUser={plan.user}",
        f"AuthType=auth/{plan.auth}",
    ]
    if plan.native:
        # The daemons share one account: slurmd must be root to start jobs as their users, and a
        # controller under another name could not read what it shares with them in this directory.
        lines.append(f"SlurmdUser={plan.user}")
        # cred_expire is also how long a requeued job is held back: 6 s instead of 121 s.
        lines.append(f"AuthInfo=cred_expire=5,socket={paths.munge_socket}")
        if plan.loopback_alone:
            # Each daemon and each srun listens at the address of this host's name alone.
            lines.append(f"CommunicationParameters={_ALONE}")
    elif plan.auth == "slurm":
        # Nodes learn users from the credential, not from their own /etc/passwd.
        lines += ["CredType=cred/slurm", "AuthInfo=use_client_ids"]
    return [*lines, *_tokens(plan)]


def _tokens(plan: Plan) -> list[str]:
    if plan.native or not plan.topology.auth.jwt:
        return []
    return ["AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={plan.paths.keys}/jwt_hs256.key"]


def _controller(plan: Plan, name: str, address: str) -> str:
    # Another host reaches it by another address: each container's own hosts file has the right one.
    return f"SlurmctldHost={name}" + ("" if plan.several_hosts else f"({address})")


def _places(plan: Plan) -> list[str]:
    paths = plan.paths
    lines = [
        f"StateSaveLocation={paths.state}",
        f"SlurmdSpoolDir={paths.spool}" + ("/%n" if plan.native else ""),
        f"SlurmctldPidFile={paths.run}/slurmctld.pid",
        f"SlurmdPidFile={paths.run}/slurmd-%n.pid",
        "MailProg=/bin/true",
    ]
    if paths.logs:
        lines.append(f"SlurmctldLogFile={paths.logs}/slurmctld.log")
        lines.append(f"SlurmdLogFile={paths.logs}/slurmd-%n.log")
    if not plan.native:
        low, high = srun_ports(plan.topology)
        ports = f"Include {OWN_PORTS}" if plan.several_hosts else f"SrunPortRange={low}-{high}"
        lines.append(ports)
    return lines


def _scheduling(plan: Plan) -> list[str]:
    lines = [
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"DefMemPerCPU={_memory_per_cpu(plan)}",
        "ReturnToService=2",
        "MpiDefault=none",
        # The nodes offer what their limits allow, not what this machine has.
        "SlurmdParameters=config_overrides",
    ]
    if len(plan.nodes) <= _FEW_NODES:
        lines.append(f"SchedulerParameters={_TURN_AROUND}")
    gres = ["GresTypes=gpu"] if any(node.gpus for node in plan.nodes) else []
    if plan.native:
        # One machine plays all nodes, and may be slow to answer for all of them at once.
        return [*lines, *gres, "KillWait=2", "SlurmctldTimeout=60", "SlurmdTimeout=60"]
    lines += [f"SlurmctldTimeout={plan.topology.controller.takeover}", "SlurmdTimeout=300"]
    lines.append("SlurmctldParameters=enable_configless")
    if plan.since("22.05"):
        lines.append(f"MaxNodeCount={len(plan.nodes) + _MORE_NODES}")
    if plan.several_hosts:
        # The ports of srun differ by container, and no node need hand messages on to another host.
        lines += ["DebugFlags=NO_CONF_HASH", "TreeWidth=65533"]
    lines += gres
    if plan.topology.monitoring.enabled and plan.since("25.11"):
        lines.append("MetricsType=metrics/openmetrics")
    return lines


def _memory_per_cpu(plan: Plan) -> int:
    if plan.native:
        return 100
    return max(1, min(node.memory // node.cpus for node in plan.nodes))


def _containment(plan: Plan) -> list[str]:
    by = "cgroup" if plan.cgroups.plugin else "linuxproc"
    lines = [f"ProctrackType=proctrack/{by}"]
    if plan.cgroups.plugin:
        lines.append("TaskPlugin=task/cgroup")
    gather = "cgroup" if plan.cgroups.plugin else "linux"
    return [*lines, f"JobAcctGatherType=jobacct_gather/{gather}", "JobAcctGatherFrequency=30"]


def _accounting(plan: Plan) -> list[str]:
    if plan.slurmdbd_port is None:
        # Later releases have no plugin of that name: none is what they do without a word.
        old = not plan.since("23.11")
        return ["AccountingStorageType=accounting_storage/none"] if old else []
    lines = [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={plan.slurmdbd_address}",
        f"AccountingStoragePort={plan.slurmdbd_port}",
    ]
    if plan.paths.munge_socket:
        # Not a password: with munge this names the socket for talking to slurmdbd.
        lines.append(f"AccountingStoragePass={plan.paths.munge_socket}")
    if any(node.gpus for node in plan.nodes):
        lines.append("AccountingStorageTRES=gres/gpu")
    if plan.topology.accounts or plan.topology.qos:
        lines.append("AccountingStorageEnforce=associations,limits,qos")
    return lines


def _node(node: Node) -> str:
    words = [
        f"NodeName={node.name}",
        f"NodeAddr={node.address}",
        f"NodeHostname={node.hostname}",
        f"Port={node.port}",
        f"CPUs={node.cpus}",
        f"CoresPerSocket={node.cpus}",
        f"RealMemory={node.memory}",
    ]
    if node.gpus:
        words.append(f"Gres={_gres(node)}")
    if node.features:
        words.append(f"Features={','.join(node.features)}")
    if node.weight != 1:
        words.append(f"Weight={node.weight}")
    return " ".join([*words, "State=UNKNOWN"])


def _gres(node: Node) -> str:
    types = list(dict.fromkeys(gpu.type for gpu in node.gpus))
    counts = {kind: sum(gpu.type == kind for gpu in node.gpus) for kind in types}
    return ",".join(f"gpu:{kind}:{n}" if kind else f"gpu:{n}" for kind, n in counts.items())


def node_words(node: Node) -> list[str]:
    """What a node that joins says about itself, beside its CPUs and memory."""
    words = [f"Feature={','.join([node.name, *node.features])}"]
    if node.port != SLURMD_PORT:
        words.insert(0, f"Port={node.port}")
    if node.gpus:
        words.append(f"Gres={_gres(node)}")
    if node.weight != 1:
        words.append(f"Weight={node.weight}")
    return words


def _set(node: Node) -> str:
    return f"{FEATURE if FEATURE in node.features else 'joined'}_{node.name}"


def _partition(plan: Plan, part: Partition) -> str:
    joined = {node.name: _set(node) for node in plan.joined}
    nodes = "ALL"
    if part.nodes != "ALL":
        # A node that is not there yet is named by its feature.
        here = collapse_hostlist([name for name in part.nodes if name not in joined])
        sets = [joined[name] for name in part.nodes if name in joined]
        nodes = ",".join(filter(None, [here, *sets]))
    words = [f"PartitionName={part.name}", f"Nodes={nodes}"]
    if part.default:
        words.append("Default=YES")
    words.append("MaxTime=" + (format_duration(part.max_time) if part.max_time else "INFINITE"))
    if part.default_time:
        words.append(f"DefaultTime={format_duration(part.default_time)}")
    if part.max_nodes:
        words.append(f"MaxNodes={part.max_nodes}")
    if part.priority != 1:
        words.append(f"PriorityTier={part.priority}")
    if part.qos:
        words.append(f"QOS={part.qos}")
    if part.accounts:
        words.append(f"AllowAccounts={','.join(part.accounts)}")
    return " ".join([*words, "State=UP"])


def slurmdbd_conf(plan: Plan) -> str:
    """The text of slurmdbd.conf; a password is never in it, the entry point adds it."""
    database, paths = plan.topology.database, plan.paths
    lines = [
        f"DbdHost={plan.slurmdbd_host}",
        f"DbdAddr={plan.slurmdbd_address}",
        f"DbdPort={plan.slurmdbd_port}",
        f"SlurmUser={plan.user}",
        f"AuthType=auth/{plan.auth}",
        f"PidFile={paths.run}/slurmdbd.pid",
    ]
    if paths.munge_socket:
        lines.append(f"AuthInfo=socket={paths.munge_socket}")
    if plan.native and plan.loopback_alone:
        # It listens on all addresses otherwise, whatever DbdAddr says.
        lines.append(f"CommunicationParameters={_DBD_ALONE}")
    lines += _tokens(plan)
    if paths.logs:
        lines.append(f"LogFile={paths.logs}/slurmdbd.log")
    storage = [
        "StorageType=accounting_storage/mysql",
        # "localhost" makes the client library use the socket named by MYSQL_UNIX_PORT.
        f"StorageHost={plan.storage_host}",
        f"StorageUser={plan.storage_user}",
        f"StorageLoc={database.name}",
    ]
    if not plan.native:
        storage.insert(2, f"StoragePort={database.port}")
        # Old rows make every upgrade longer.
        storage += [
            f"Purge{what}After={database.keep}" for what in ("Event", "Job", "Step", "Suspend")
        ]
    extra = _still_alone(plan, plan.topology.conf.slurmdbd, _DBD_ALONE)
    return _text(
        f"Accounting of cluster {plan.topology.name}; the password is not in this file.",
        [
            ("The daemon", _unless_given(lines, extra)),
            ("Its database", _unless_given(storage, extra)),
            ("From [conf] slurmdbd", list(extra)),
        ],
    )


def cgroup_conf(plan: Plan) -> str:
    """The text of cgroup.conf, or nothing where no cgroup is used and none need be said."""
    if not plan.cgroups.plugin:
        # Without this word a later slurmd looks for cgroups that it may not have.
        lines = ["CgroupPlugin=disabled"] if plan.since("24.05") else []
    else:
        lines = [f"CgroupPlugin={plan.cgroups.plugin}"] if plan.since("21.08") else []
        if plan.cgroups.mount:
            lines.append(f"CgroupMountpoint={plan.cgroups.mount}")
        if not plan.since("23.11"):
            lines.append("CgroupAutomount=no")
        if plan.cgroups.plugin == "autodetect":
            # There is no systemd in a container.
            lines.append("IgnoreSystemd=yes")
        devices = "yes" if any(node.gpus for node in plan.nodes) else "no"
        lines += ["ConstrainRAMSpace=yes", "ConstrainCores=no", f"ConstrainDevices={devices}"]
    extra = plan.topology.conf.cgroup
    kept = _unless_given(lines, extra)
    if not kept and not extra:
        return ""
    return _text("How jobs are held to what they asked for.", [("Cgroups", [*extra, *kept])])


def gres_conf(plan: Plan) -> str:
    """The text of gres.conf, or nothing where no node has a GPU."""
    lines = []
    for node in plan.nodes:
        if node.detect_gpus:
            lines.append(f"NodeName={node.name} AutoDetect=nvidia")
            continue
        for kind in dict.fromkeys(gpu.type for gpu in node.gpus):
            files = collapse_files([gpu.file for gpu in node.gpus if gpu.type == kind])
            named = f" Type={kind}" if kind else ""
            lines.append(f"NodeName={node.name} Name=gpu{named} File={files}")
    extra = list(plan.topology.conf.gres)
    if not lines and not extra:
        return ""
    return _text("Which GPUs each node has.", [("GPUs", lines), ("From [conf] gres", extra)])


def collapse_files(files: list[str]) -> str:
    """`/dev/nvidia[0-1]` for device files that differ in their number."""
    folder = files[0].rpartition("/")[0]
    return f"{folder}/{collapse_hostlist([file.rpartition('/')[2] for file in files])}"


def oci_conf(plan: Plan) -> str:
    """The text of oci.conf, or nothing; with create and start runc hangs, so it runs at once."""
    runtime = plan.topology.oci.runtime
    if runtime == "none" or plan.native or not plan.since("21.08"):
        return ""
    call = f"{runtime} --root=/run/oci"
    lines = [
        f'RunTimeQuery="{call} state {_OCI_ID}"',
        f'RunTimeRun="{call} run {_OCI_ID} -b %b"',
        f'RunTimeKill="{call} kill -a {_OCI_ID}"',
        f'RunTimeDelete="{call} delete --force {_OCI_ID}"',
    ]
    if plan.since("23.02"):
        # The node's own configuration would lead commands in a container astray.
        lines += [
            f'{key}="^(SLURM_CONF|SLURM_CONF_SERVER)="'
            for key in ("EnvExclude", "RunTimeEnvExclude")
        ]
    return _text("How `--container` runs a bundle.", [(f"OCI by {runtime}", lines)])
