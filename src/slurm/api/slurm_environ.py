"""The environment in which Slurm's commands run: plain answers, and no word of an enclosing job.

This file is also sent to login nodes and runs on Python 3.6.
"""

from typing import Dict, Iterable, Mapping

_COMMAND_SETTINGS = ("SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_")
_KEPT_IN_JOB = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
_SDK = "SLURM_SDK_"

# SBATCH_* variables whose option is not simply the rest of the name.
_OPTION_OF_VARIABLE = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_DEBUG": "verbose",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_WAIT4SWITCH": "switches",
}
# Options that exclude or undo one another: setting one must also silence the others' variables.
_RIVALS = (
    frozenset(("mem", "mem-per-cpu", "mem-per-gpu")),
    frozenset(("requeue", "no-requeue")),
    frozenset(("core-spec", "thread-spec")),
)
# Never wanted: sbatch would wait for the job, make an array of it, or talk into its answer.
# Nor whom the submitting job trusts: a script says itself whom its own job does.
_NEVER_HONOURED = ("SBATCH_WAIT", "SBATCH_ARRAY_INX", "SBATCH_DEBUG", "SLURM_SDK_GROUP")


def command_env(environ: Mapping[str, str]) -> Dict[str, str]:
    """The environment for every command but sbatch: plain answers, whole lists, epoch seconds."""
    env = {k: v for k, v in environ.items() if not k.startswith(_COMMAND_SETTINGS)}
    env.update(LC_ALL="C", SLURM_BITSTR_LEN="0", SLURM_TIME_FORMAT="%s")
    return env


def submission_env(environ: Mapping[str, str], options_set: Iterable[str]) -> Dict[str, str]:
    """The environment for sbatch, which is also the environment that the job inherits.

    `options_set` names the options that the submission sets ("partition", "cpus_per_task", ...):
    their SBATCH_* variables are dropped, for they would override the #SBATCH lines; the others are
    honoured. Inside a job, that job's own SLURM_* are dropped too. LC_ALL and the time format stay
    the user's, since the job would see ours.
    """
    silenced = {name.replace("_", "-") for name in options_set}
    for rivals in _RIVALS:
        if silenced & rivals:
            silenced |= rivals
    inside = "SLURM_JOB_ID" in environ or "SLURM_JOBID" in environ
    return {
        name: value
        for name, value in environ.items()
        if not (inside and _belongs_to_a_job(name))
        and not (name.startswith("SBATCH_") and sbatch_option(name) in silenced)
        and name not in _NEVER_HONOURED
    }


def honoured_variables(environ: Mapping[str, str], options_set: Iterable[str]) -> Dict[str, str]:
    """The SBATCH_* variables that will act on a submission, for a dry-run to show."""
    env = submission_env(environ, options_set)
    return {name: value for name, value in env.items() if name.startswith("SBATCH_")}


def sbatch_option(variable: str) -> str:
    """The long option, with dashes, that an SBATCH_* variable stands for."""
    plain = variable[len("SBATCH_") :].lower().replace("_", "-")
    return _OPTION_OF_VARIABLE.get(variable, plain)


def _belongs_to_a_job(name: str) -> bool:
    """Whether a variable describes the job we are in, and must not leak into another."""
    if name.startswith(("SLURM_", "SLURMD_", "SBATCH_CPU_BIND", "SBATCH_MEM_BIND", "SRUN_")):
        return name not in _KEPT_IN_JOB and not name.startswith(_SDK)
    return False
