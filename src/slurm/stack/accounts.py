"""Plan -> the sacctmgr commands that make QOS, accounts and users what the topology says."""

from __future__ import annotations

from slurm.model.units import format_duration
from slurm.stack.plan import Plan
from slurm.stack.topology import Account, Qos

Command = list[str]


def accounting_commands(plan: Plan) -> list[Command]:
    """The words of each command behind `sacctmgr`; each may be given again and again."""
    topology = plan.topology
    wanted = topology.qos or topology.accounts or any(user.admin for user in plan.users)
    if plan.slurmdbd_port is None or not wanted:
        return []
    gpus = any(node.gpus for node in plan.nodes)
    return [
        *(command for qos in topology.qos for command in _qos(qos, gpus)),
        *(command for account in topology.accounts for command in _account(account)),
        *_users(plan),
    ]


def _qos(qos: Qos, gpus: bool) -> list[Command]:
    # -1 takes a limit away that was set before.
    limits = [f"cpu={qos.max_cpus or -1}", *([f"gres/gpu={qos.max_gpus or -1}"] if gpus else [])]
    words = [
        f"Priority={qos.priority}",
        f"MaxWall={format_duration(qos.max_time) if qos.max_time else -1}",
        f"MaxJobsPerUser={qos.max_jobs or -1}",
        f"MaxSubmitJobsPerUser={qos.max_submit or -1}",
        f"MaxTRESPerUser={','.join(limits)}",
    ]
    if qos.preempts:
        words.append(f"Preempt={','.join(qos.preempts)}")
    return [["add", "qos", qos.name], ["modify", "qos", qos.name, "set", *words]]


def _account(account: Account) -> list[Command]:
    words = [f"Fairshare={account.shares}"]
    if account.qos:
        words.append(f"QOS={','.join(account.qos)}")
    return [
        ["add", "account", account.name, f"Parent={account.parent}", *words],
        ["modify", "account", account.name, "set", *words],
    ]


def _users(plan: Plan) -> list[Command]:
    accounts = plan.topology.accounts
    commands: list[Command] = []
    for user in plan.users:
        homes = [a.name for a in accounts if user.name in a.users] or ["root"]
        if accounts and homes == ["root"] and not user.admin:
            continue  # not in any account: not let in
        commands += [["add", "user", user.name, f"Account={home}"] for home in homes]
        if user.admin:
            commands.append(["modify", "user", user.name, "set", "AdminLevel=Administrator"])
    return commands
