"""What the words mean with which Slurm's commands fail, and what helps; on Python 3.6."""

import re
from typing import Optional, Tuple

_UNREACHABLE = re.compile(
    r"Unable to contact slurm controller"
    r"|Unable to contact slurm database"
    r"|Zero Bytes were transmitted or received"
    r"|Connection refused|Connection reset|Connection timed out|No route to host"
    r"|Transport endpoint is not connected"
    r"|[Ss]ocket timed out|Communication connection failure|Message (send|receive) failure"
    r"|controller in standby mode"
    r"|Unable to resolve|Could not establish a configuration source|DNS SRV lookup failed"
    # What `scontrol requeue`, `hold` and `release` say when the controller is down.
    r"|Unexpected message received"
    # munged is not there (yet): nothing was asked of the controller.
    r"|Failed to access \"?.*munge.*socket|Munge encode failed|Unable to connect to .*munge"
)
_UNKNOWN_JOB = re.compile(r"Invalid job id specified|Job [0-9_+]+ not found|Job not found")


def is_unreachable(stderr: str) -> bool:
    """Whether a command failed because the controller did not answer, so it may be asked again."""
    return _UNREACHABLE.search(stderr) is not None


def hint_without_configuration(stderr: str) -> Optional[str]:
    """What helps where Slurm's commands are installed and no cluster is configured, else None."""
    if "configuration source" not in stderr:
        return None
    return (
        "no slurm.conf was found: set SLURM_CONF to your cluster's, or run without Slurm: "
        'Cluster("embedded"), slurm --cluster embedded'
    )


def is_unknown_job(output: str) -> bool:
    """Whether a command failed because the controller does not know the job, or not any more.

    A signal to a job that has ended is refused with the same words; scancel alone says nothing.
    Give stdout too: of an array element scontrol says it there.
    """
    return _UNKNOWN_JOB.search(output) is not None


# More jobs would be queued than the user may have; later it may say yes.
_FULL = "unable to accept job|Resource temporarily unavailable|MaxJobCount"
_SUBMIT_LIMIT = re.compile(
    "(?i)MaxSubmit|SubmitJobs?Limit|job submit limit|Invalid job array|" + _FULL
)


def is_submit_limit(text: str) -> bool:
    """Whether a submission failed for the number of jobs, so that it may succeed later."""
    return _SUBMIT_LIMIT.search(text) is not None


# Slurm's words, what they mean in ours, and what helps. The first row that fits counts, so the
# precise ones stand above the vague ones.
_REFUSALS = (
    (
        r"invalid partition|partition .* (is )?not (valid|available)",
        "the partition does not exist or is closed to you",
        "choose one that `sinfo -s` lists: partition=...",
    ),
    (
        r"group not permitted to use this partition",
        "the partition is closed to your group",
        "choose another partition (`sinfo -s`), or ask the administrators for access to it",
    ),
    (
        r"invalid account|account/partition combination",
        "the account does not exist, or may not be used by you or with this partition",
        "choose one that `sacctmgr show assoc user=$USER format=account,partition,qos` lists: "
        "account=...",
    ),
    (
        r"(Max|Grp)SubmitJob",
        "the limit on the number of your jobs is reached",
        "submit again when some jobs have ended; `sacctmgr show qos` and "
        "`sacctmgr show assoc user=$USER` list the limits",
    ),
    (
        r"invalid qos",
        "the QOS does not exist or may not be used by you",
        "choose one that `sacctmgr show assoc user=$USER format=qos` lists: qos=...",
    ),
    (
        r"accounting/QOS policy|(QOS|Assoc)(Max|Grp|Min|\w*Limit)",
        "the request is above a limit of your account or QOS",
        "ask for less; `sacctmgr show qos` and `sacctmgr show assoc user=$USER` list the limits",
    ),
    (
        r"time limit is invalid|exceeds? .*time limit|Invalid --time",
        "the time is missing, malformed or above the partition's limit",
        "ask for less: time=...; `sinfo -o '%P %l'` lists the limits",
    ),
    (
        r"memory (specification|required)|Invalid --mem",
        "no node has the memory that was asked for",
        "ask for less: mem=...; `sinfo -o '%P %m'` lists the MiB of the nodes",
    ),
    (
        r"dependenc",
        "a dependency is malformed or names a job that Slurm does not know",
        "name jobs that are still known to `squeue` or `sacct`: dependency=...",
    ),
    (
        r"job array|--array",
        "the array specification is malformed or above the cluster's MaxArraySize",
        "use smaller indexes; `scontrol show config | grep MaxArraySize` tells the limit",
    ),
    (
        r"generic resource|gres|TRES",
        "the generic resource (GPU, ...) does not exist here in that kind or number",
        "choose what `sinfo -o '%P %G'` lists: gpus=... or gres=...",
    ),
    (
        r"feature",
        "no node has the feature that was asked for",
        "choose one that `sinfo -o '%P %f'` lists: constraint=...",
    ),
    (
        r"reservation",
        "the reservation does not exist, is over, or is not open to you",
        "choose one that `scontrol show reservation` lists: reservation=...",
    ),
    (
        r"license",
        "the licence does not exist here in that number",
        "choose what `scontrol show licenses` lists: licenses=...",
    ),
    (
        r"Invalid node name",
        "a node that was named does not exist",
        "choose nodes that `sinfo -N` lists",
    ),
    (
        r"node configuration is not available|node count|more processors|Too many tasks"
        r"|PartitionConfig|partition configuration",
        "no set of nodes can ever satisfy the request",
        "ask for less memory (mem=...), fewer CPUs, nodes or GPUs, or another partition; "
        "`sinfo -o '%P %D %c %m %G'` lists nodes, CPUs, MiB and GPUs",
    ),
    (
        _FULL,
        "the controller's queue is full (MaxJobCount)",
        "submit again when some jobs have ended, or use an array, which waits as one job",
    ),
    (
        r"Protocol authentication error|Invalid authentication|credential",
        "the controller does not accept this machine's or this user's credential",
        "check that munge runs here with the cluster's key: `munge -n | unmunge`",
    ),
    (
        r"permission denied|not permitted|invalid user",
        "the scheduler does not allow it to you",
        "ask the administrators for access, or choose another account or partition",
    ),
    (
        r"unrecognized option|invalid (option|--)|Invalid -",
        "this version of sbatch does not know an option, or not with that value",
        "`sbatch --version` and `sbatch --help` tell what it knows",
    ),
)
_PREFIX = re.compile(r"^(sbatch|srun|scontrol|scancel): (error: |fatal: )?")


def explain_sbatch_error(stderr: str) -> Tuple[str, str]:
    """What sbatch's words mean in short, and what to do; for words we do not know, those words."""
    if is_unreachable(stderr):
        return (
            "the controller did not answer",
            "try again in a minute; `scontrol ping` tells whether it is up",
        )
    for pattern, reason, hint in _REFUSALS:
        if re.search(pattern, stderr, re.IGNORECASE):
            return reason, hint
    lines = [_PREFIX.sub("", line).strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "sbatch failed and gave no reason"
    return last, "`sbatch --test-only SCRIPT` shows the same without submitting"
