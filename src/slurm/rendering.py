"""Turns a Submission into the text of an sbatch script: a pure function, readable in its result."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from signal import Signals
from typing import Any

from slurm import rundir
from slurm.errors import OptionError
from slurm.launch import ranks_per_node, several_ranks, torchrun_flags
from slurm.model.options import sbatch_flags
from slurm.model.packs import Pack
from slurm.model.parts import Part
from slurm.prelude import PRELUDE

#: A workflow's arguments to its children must be pickled alike in each attempt; see the runner.
_FIXED_SEED = '[ -n "${PYTHONHASHSEED:-}" ] || export PYTHONHASHSEED=0 SLURM_SDK_SEED=1'

#: The signal that warns a job before its time limit; the script passes it to the runner.
WARNING_SIGNAL = "USR2"


@dataclass(frozen=True)
class Environment:
    """How Python starts on the node; packaging decides it, `.slurm_environment.json` records it."""

    #: The interpreter, as it is called where the function runs.
    python: str
    kind: str = "none"
    why: str = ""
    path: tuple[str, ...] = ()
    #: Lines of shell before everything of the user's.
    setup: tuple[str, ...] = ()
    #: What the code that was packaged is known by; part of cache keys.
    digest: str = ""
    #: What must lie below the base directory before a job may be submitted.
    needs: tuple[str, ...] = ()
    #: Words of shell, quoted already, that start Python: a container's runtime and its arguments.
    launch: tuple[str, ...] = ()
    #: Flags of srun, in the same form; where there are some, srun starts also a single process.
    srun: tuple[str, ...] = ()
    #: A Python of the node itself, for small jobs that need nothing packaged; else `python`.
    outside: str = ""
    #: The folder of the captured code that the job imports, as the node sees it.
    captured: str = ""
    #: What else is worth knowing: the wheel's name, the git state, the image.
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bare_python(self) -> str:
        """The Python for what runs on the node beside the function."""
        return self.outside or self.python


@dataclass(frozen=True)
class Submission:
    """Everything the script says; two equal submissions render to the same text."""

    run: str
    base: str
    name: str
    sdk: str
    workdir: str
    environment: Environment
    options: Mapping[str, object] = field(default_factory=dict)
    dependency: str | None = None
    array: Part | None = None
    throttle: int | None = None
    pack: Pack | None = None
    #: Whether a pilot runs the script as a step of its allocation.
    step: bool = False
    #: Whether the function submits other tasks.
    workflow: bool = False
    #: The group whose members' results its jobs may read.
    group: int | None = None

    @property
    def part(self) -> int:
        """Which part of a long map this is; 0 for everything else."""
        return 0 if self.array is None else self.array.number

    @property
    def relative(self) -> str:
        """The run as seen from the base directory: how event lines name it."""
        return self.run[len(self.base) :].lstrip("/")

    @property
    def ranks(self) -> bool:
        """Whether the job has several processes, which srun has to start."""
        return several_ranks(self.options)


def render_job_script(job: Submission) -> str:
    """The sbatch script of a submission."""
    blocks = [
        ["#!/bin/bash", *_directives(job)],
        _identity(job),
        [_prelude(job)],
        _setup(job),
        _start(job),
        _teardown(job),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


# ---- quoting ------------------------------------------------------------------------------------


def shell_quote(text: str) -> str:
    """One word for bash, whatever it contains; the only quoting function for shell text."""
    if "\0" in text:
        raise OptionError(f"{text!r} contains a NUL byte, which no shell can hold")
    return shlex.quote(text)


def directive(flag: str, value: str | None) -> str:
    """One `#SBATCH` line; sbatch takes backslashes and quotes away again inside double quotes."""
    if value is None:
        return f"#SBATCH --{flag}"
    if re.search(r"[\n\r\0]", value):
        raise OptionError(
            f"{flag}={value!r} contains a line break, which would end the #SBATCH line",
            hint=f"give {flag} on one line",
        )
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./\[\]^~*&|()<>?!{};-]*", value) and value:
        return f"#SBATCH --{flag}={value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'#SBATCH --{flag}="{escaped}"'


# ---- the parts of the script --------------------------------------------------------------------


def _directives(job: Submission) -> list[str]:
    # The work directory is the run directory: every answer of Slurm names it, and that is how a
    # job is known to be ours. The script goes to the function's own directory by itself.
    lines = [directive("job-name", job.name), directive("chdir", job.run)]
    flags = dict(sbatch_flags(job.options))
    is_array = job.array is not None
    flags.setdefault("output", log_path(job.run, rundir.stdout_pattern(is_array)))
    flags.setdefault("error", log_path(job.run, rundir.stderr_pattern(is_array)))
    if job.array is not None:
        throttle = f"%{job.throttle}" if job.throttle else ""
        flags["array"] = f"0-{job.array.size - 1}{throttle}"
    flags["open-mode"] = "append"
    if "requeue" not in flags and "no-requeue" not in flags:
        flags["no-requeue"] = None
    # Only the batch shell is told (B:): our script passes it on to the function.
    signal = flags.get("signal") or f"{WARNING_SIGNAL}@{warning_seconds(job.options)}"
    flags["signal"] = "B:" + signal.removeprefix("B:").removeprefix("R:")
    dependency = ",".join(filter(None, [flags.pop("dependency", None), job.dependency]))
    if dependency:
        flags["dependency"] = dependency
        flags["kill-on-invalid-dep"] = "yes"
    flags.pop("job-name", None)
    return lines + [directive(flag, value) for flag, value in flags.items()]


def log_path(run: str, pattern: str) -> str:
    """Where the scheduler opens a log: it also expands patterns in the directory around it."""
    if "\\" in run:
        # A backslash switches all patterns off; the script opens its logs by itself.
        return "/dev/null"
    return f"{run.replace('%', '%%')}/{pattern}" if "%" in run else pattern


def warning_signal(options: Mapping[str, object]) -> str:
    """The name of the signal that comes before the time limit, without SIG."""
    given = str(options.get("signal") or WARNING_SIGNAL).rpartition(":")[2].partition("@")[0]
    if given.isdigit():
        return Signals(int(given)).name.removeprefix("SIG")
    return given.upper().removeprefix("SIG")


def warning_seconds(options: Mapping[str, object]) -> int:
    """How long before the time limit a job is warned: a minute, less for short jobs."""
    limit = options.get("time")
    return 60 if not isinstance(limit, int) else max(1, min(60, limit // 10))


def _identity(job: Submission) -> list[str]:
    values = {
        "SLURM_SDK_BASE": job.base,
        "SLURM_SDK_RUN": job.run,
        "SLURM_SDK_NAME": job.relative,
        "SLURM_SDK_PART": str(job.part),
        "SLURM_SDK_OFFSET": str(job.array.offset if job.array else 0),
        "SLURM_SDK_ROOT": job.sdk,
        "SLURM_SDK_WARNING": warning_signal(job.options),
        "SLURM_SDK_TWICE": "yes" if job.options.get("requeue") else "no",
        "SLURM_SDK_AGAIN": "",
    }
    if job.group is not None:
        values["SLURM_SDK_GROUP"] = str(job.group)
    return [f"export {name}={shell_quote(value)}" for name, value in values.items()] + _logs(job)


def _prelude(job: Submission) -> str:
    """What every script does first; what it writes the group may read where the run is shared."""
    return PRELUDE if job.group is None else PRELUDE.replace("\numask 077\n", "\numask 027\n", 1)


def _logs(job: Submission) -> list[str]:
    """Open the logs here where no #SBATCH line can name them; see `log_path`."""
    if "\\" not in job.run:
        return []
    who = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
    streams = [(">>", "output", "out"), ("2>>", "error", "err")]
    own = [
        f'{sign}"$SLURM_SDK_RUN/{rundir.LOGS}/{who}.{suffix}"'
        for sign, option, suffix in streams
        if not job.options.get(option)
    ]
    return ["exec " + " ".join(own)] if own else []


def _setup(job: Submission) -> list[str]:
    given = job.options
    lines = [f"cd -- {shell_quote(job.workdir)}", "sdk_check $? 'cd to the working directory'"]
    if job.ranks:
        # Those of a job that this one was submitted from would mislead every rank.
        lines.append("unset RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT")
    lines.append("export PYTHONUNBUFFERED=1")
    threads = "${SLURM_CPUS_PER_TASK:-1}" if job.pack is None else str(job.pack.threads)
    lines.append(f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-{threads}}}"')
    lines += _modules(_texts(given.get("modules")))
    if given.get("conda"):
        lines += _conda(str(given["conda"]))
    if given.get("venv"):
        activate = shell_quote(f"{given['venv']}/bin/activate")
        lines += [f". {activate}", "sdk_check $? 'activating the virtual environment'"]
    lines += _exports(given.get("env"))
    for line in job.environment.setup:
        lines += [line, "sdk_check $? 'packaging'"]
    if job.workflow:
        lines.append(_FIXED_SEED)
    for number, line in enumerate(_texts(given.get("setup")), 1):
        lines += [line, f"sdk_check $? 'setup line {number}'"]
    return lines


def _modules(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    lines = [
        "if ! type module >/dev/null 2>&1; then",
        "  for sdk_name in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh; do",
        '    [ -r "$sdk_name" ] && . "$sdk_name" && break',
        "  done",
        "fi",
    ]
    for name in names:
        lines += [
            f"module load {shell_quote(name)}",
            f"sdk_check $? {shell_quote(f'module load {name}')}",
        ]
    return lines


def _conda(name: str) -> list[str]:
    return [
        'sdk_conda=$("${CONDA_EXE:-conda}" info --base)',
        "sdk_check $? 'finding conda'",
        '. "$sdk_conda/etc/profile.d/conda.sh"',
        f"conda activate {shell_quote(name)}",
        "sdk_check $? 'activating the conda environment'",
    ]


def _exports(env: object) -> list[str]:
    pairs = env.items() if isinstance(env, Mapping) else ()
    return [f"export {name}={shell_quote(str(value))}" for name, value in pairs]


def _start(job: Submission) -> list[str]:
    words = _python_words(job)
    srun = ["srun", *job.environment.srun]
    lines = []
    if job.step:
        # The pilot says what part of its allocation this is. The ranks agree on where they meet.
        lines += ["export SLURM_SDK_RANKS=1"] if job.ranks else []
        label = _label(job) if job.ranks else []
        words = [*srun, "$SLURM_STEP_FLAGS", "--kill-on-bad-exit=1", *label, *words]
    elif job.ranks:
        lines += _rendezvous()
        flags = torchrun_flags(job.options) if _torchrun(job) else _cpus_flag(job)
        more = [shell_quote(word) for word in _texts(job.options.get("srun_args"))]
        words = [*srun, "--kill-on-bad-exit=1", *_label(job), *flags, *more, *words]
    elif job.environment.srun:
        words = [*srun, "--nodes=1", "--ntasks=1", *_cpus_flag(job), *words]
    # The warning is ignored until the runner has its handler: it would kill Python. The child
    # is in the background because a trap does not run while bash waits for a foreground child.
    lines += [
        "set +eu",
        "sdk_arm",
        "sdk_phase=run",
        f"( umask $sdk_umask; trap '' {warning_signal(job.options)}; exec {' '.join(words)} ) &",
        "sdk_child=$!",
        "sdk_wait",
        "sdk_child=''",
    ]
    return lines + (_MEMORY if job.ranks or job.step else [])


_MEMORY = [
    "# Of ranks that were killed for memory only srun tells: Slurm calls the job itself FAILED.",
    'if [ "$sdk_code" -ne 0 ] && [ -f "/proc/$$/fd/2" ]; then',
    "  sdk_says='^(srun|slurmstepd)[^:]*: error: .*(oom.kill event|Out Of Memory)'",
    '  tail -c 8192 "/proc/$$/fd/2" | grep -Eqs "$sdk_says" && sdk_oom=\' oom=1\'',
    "fi",
]


def _torchrun(job: Submission) -> bool:
    return job.options.get("launch") == "torchrun"


def _python_words(job: Submission) -> list[str]:
    """What starts the function: the runner, or once per node what starts the ranks there."""
    torchrun = _torchrun(job) and (job.ranks or job.step)
    program = f"{job.sdk}/slurm/runner/{'torchrun' if torchrun else '__main__'}.py"
    python = [*job.environment.launch, shell_quote(job.environment.python)]
    words = [*python, shell_quote(program), '"$SLURM_SDK_RUN"']
    if job.pack is not None:
        words += [str(job.pack.size), str(job.pack.items), str(job.pack.workers)]
    return [*words, str(ranks_per_node(job.options))] if torchrun else words


def _label(job: Submission) -> list[str]:
    """Each line of the log says which rank printed it; of torchrun srun knows the nodes only."""
    # Who has words of his own for srun may send each rank's lines to a file of their own.
    return [] if _torchrun(job) or job.options.get("srun_args") else ["--label"]


def _cpus_flag(job: Submission) -> list[str]:
    # srun does not take cpus-per-task over from sbatch since Slurm 22.05.
    count = job.options.get("cpus_per_task")
    return [f"--cpus-per-task={count}"] if count else []


def _rendezvous() -> list[str]:
    return [
        "# Ranks meet at the first node, on a port nobody listens on there.",
        "sdk_port=$((20000 + sdk_job % 20000))",
        "while (: < /dev/tcp/127.0.0.1/$sdk_port) 2>/dev/null; do",
        "  sdk_port=$((sdk_port + 1))",
        "done",
        "sdk_first=${SLURMD_NODENAME:-$sdk_host}",
        'getent hosts "$sdk_first" >/dev/null 2>&1 || sdk_first=$sdk_host',
        'export MASTER_ADDR="${MASTER_ADDR:-$sdk_first}" MASTER_PORT="${MASTER_PORT:-$sdk_port}"',
        "export SLURM_SDK_RANKS=1",
    ]


def _teardown(job: Submission) -> list[str]:
    lines = list(_texts(job.options.get("teardown")))
    # The script ends with the run's status, whatever teardown says: sdk_exit takes $sdk_code.
    return (
        ["sdk_phase=teardown", *lines, "sdk_phase=run", 'exit "$sdk_code"']
        if lines
        else ['exit "$sdk_code"']
    )


def _texts(value: object) -> Sequence[str]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    assert isinstance(value, Sequence)
    return [str(v) for v in value]
