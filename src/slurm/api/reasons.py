"""What Slurm can say about why a job waits: the job, its limits and their use, the queue, nodes.

Commands and parsers; `facts` asks only for what the job's reason is about. Runs on Python 3.6.
"""

import re
from typing import Any, Callable, Dict, List, Set, Tuple, TypeVar

from slurm.api import slurm_site as site
from slurm.api.slurm_commands import job_records
from slurm.api.slurm_rows import Question, squeue

#: Runs one command; gives what it printed, "" when it failed.
Ask = Callable[[List[str]], str]
T = TypeVar("T")

_PAIR = re.compile(r"([A-Za-z][A-Za-z/]*)=(\S*)")
_USED = re.compile(r"([^()]*)\(([^()]*)\)\Z")
#: Accounts lie inside of accounts; none is nested deeper than this for us.
_DEPTH = 6


def facts(ask: Ask, job_id: str) -> Dict[str, Any]:
    """All that the job's reason is about; an empty `job` where Slurm does not know the job."""
    # Of an array all: how many of it run says why the others wait.
    jobs = _asked(ask, job_records(job_id.partition("_")[0]))
    waiting = [job for job in jobs if job.get("JobState") == "PENDING"]
    job = (waiting or jobs or [{}])[0]
    found = {"job": job, "running": sum(j.get("JobState") == "RUNNING" for j in jobs)}  # type: Dict[str, Any]
    if not waiting:
        return found
    reason = job.get("Reason", "")
    partition = job.get("Partition", "").partition(",")[0]
    found["queue"] = _asked(ask, waiting_in(partition))
    found["partition"] = parse_one(ask(["scontrol", "-o", "show", "partition", partition]))
    if re.match("QOS|Assoc|Max", reason):
        found["limits"] = _limits(ask, job)
    if reason.startswith("Licenses"):
        found["licenses"] = [parse_one(t) for t in _lines(ask(["scontrol", "-o", "show", "lic"]))]
    if re.search("Reserv|reserved|ReqNode", reason):
        found["reservations"] = [
            parse_one(text) for text in _lines(ask(["scontrol", "-o", "show", "reservation"]))
        ]
    if re.match("Resources|Priority|ReqNode|Nodes|BadConstraints", reason):
        nodes = site.parse_nodes(ask(site.show_nodes_command()))
        found["nodes"] = [dict(n._asdict()) for n in nodes if partition in n.partitions]
    if reason.startswith("Dependency"):
        found["upstream"] = _upstream(ask, job.get("Dependency", ""))
    return found


def _asked(ask: Ask, question: Question[T]) -> T:
    return question.read(ask(question.command))


def _lines(text: str) -> List[str]:
    return [line for line in text.splitlines() if "=" in line]


def parse_one(text: str) -> Dict[str, str]:
    """A record that stands in one line."""
    return dict(_PAIR.findall(text))


# ---- the queue ----------------------------------------------------------------------------------


_QUEUE_FIELDS = ("JobArrayID", "PriorityLong", "UserName", "Reason", "NumNodes", "NumCPUs")


def waiting_in(partition: str, mark: str = "") -> Question[List[List[str]]]:
    """Ask for all that waits in a partition, the first in line first, in rows.

    Each row is id, priority, user, reason, nodes and CPUs.
    """
    options = ["-a", "-t", "PD", "-p", partition, "-S", "-p,i"]
    return squeue(_QUEUE_FIELDS, options, list, mark)


# ---- limits -------------------------------------------------------------------------------------


def _limits(ask: Ask, job: Dict[str, str]) -> List[Dict[str, Any]]:
    """The records of the job's QOS, of its partition's, and of its accounts, with their use."""
    who = job.get("UserId", "")
    user = who.partition("(")[0]
    account = job.get("Account", "")
    found = []  # type: List[Dict[str, Any]]
    about = ["scontrol", "-o", "show", "assoc_mgr"]
    text = ask([*about, "flags=qos"])
    found += parse_limits(text, "QOS", account, who)
    for _ in range(_DEPTH):
        text = ask([*about, "flags=assoc", "accounts=" + account])
        rows = parse_limits(text, "ClusterName", account, who)
        found += [row for row in rows if row["user"] in ("", user)]
        above = next((row["parent"] for row in rows if not row["user"]), "")
        if not above or above == account:
            break
        account = above
    return found


def budget(ask: Ask, user: str, account: str) -> List[Dict[str, Any]]:
    """The limits of a user's account, or of the default one, and of its QOS, with their use."""
    if not account:
        told = ask(["sacctmgr", "-n", "-P", "show", "user", user, "format=DefaultAccount"])
        account = told.strip().partition("\n")[0]
    return _limits(ask, {"UserId": user, "Account": account}) if account else []


def parse_limits(text: str, first: str, account: str, user: str) -> List[Dict[str, Any]]:
    """The records of `scontrol show assoc_mgr`: each limit as [value, used], used None if untold.

    Of the parts of a QOS that speak of one account or one user, those of this account and user
    are taken; the user may be given as `ada` or as `ada(1000)`.
    """
    found = []
    for line in text.splitlines():
        if not line.startswith(first + "="):
            continue
        head, _, rest = line.partition(" Account Limits=")
        accounts, _, users = rest.partition(" User Limits=")
        fields = dict(_PAIR.findall(head))
        limits = _values(head)
        limits.update(_values(_block(accounts, account)))
        limits.update(_values(_block(users, user)))
        found.append(
            {
                "kind": "qos" if first == "QOS" else "assoc",
                "name": (fields.get("QOS") or fields.get("Account") or "").partition("(")[0],
                "user": fields.get("UserName", "").partition("(")[0],
                "parent": fields.get("ParentAccount", "").partition("(")[0],
                "limits": limits,
            }
        )
    return found


def _block(text: str, name: str) -> str:
    """The part in braces that stands behind a name.

    Slurm 22.05 calls a user `1000`, 24.11 `ada(1000)`.
    """
    wanted = _names(name)
    for found in re.finditer(r"(\S+)=\{([^}]*)\}", text):
        if wanted & _names(found.group(1)):
            return found.group(2)
    return ""


def _names(name: str) -> Set[str]:
    """`ada(1000)` as the name and the number."""
    return {part for part in name.rstrip(")").split("(") if part}


def _values(text: str) -> Dict[str, List[Any]]:
    """`GrpTRES=cpu=2(1),mem=N(50) MaxWallPJ=5` as {"GrpTRES/cpu": ["2", "1"], "MaxWallPJ": ...}."""
    found = {}  # type: Dict[str, List[Any]]
    for name, value in _PAIR.findall(text):
        if not name.startswith(("Grp", "Max", "Min")) or not value:
            continue
        for part in value.split(","):
            what, equals, amount = part.rpartition("=")
            used = _USED.match(amount)
            limit, spent = used.groups() if used else (amount, None)
            if limit not in ("N", ""):
                found[f"{name}/{what}" if equals else name] = [limit, spent]
    return found


# ---- what it waits for --------------------------------------------------------------------------


def _upstream(ask: Ask, dependency: str) -> List[Tuple[str, str, str]]:
    """The jobs that a dependency names: (id, what Slurm says of the condition, state)."""
    named = re.findall(r"(\d+(?:_[\d*]+)?)(?:\((\w+)\))?", dependency)
    found = []
    for job, condition in named[:5]:
        records = _asked(ask, job_records(job.rstrip("*").rstrip("_")))
        states = sorted({record["JobState"] for record in records})
        found.append((job, condition, ", ".join(states)))
    return found
