"""Stands in srun's place within a job of the embedded scheduler: starts the ranks on this host.

Run as a program of its own, without the rest of this package: it is on the way of every job with
several ranks, and must start fast. Unlike Slurm it lets a step have more ranks than the job has
CPUs: on a laptop they share them.
"""

from __future__ import annotations

import os
import signal
import sys
import time

# Options and how many values they take: 1, 0, or "?" for an optional one (only with "=").
OPTIONS: dict[str, int | str] = {
    "ntasks": 1, "nodes": 1, "ntasks-per-node": 1, "cpus-per-task": 1, "kill-on-bad-exit": "?",
    "export": 1, "output": 1, "error": 1, "input": 1, "open-mode": 1, "label": 0, "unbuffered": 0,
    "overlap": 0, "exact": 0, "exclusive": "?", "mpi": 1, "gpus": 1, "gpus-per-task": 1,
    "gpus-per-node": 1, "gres": 1, "jobid": 1, "job-name": 1, "chdir": 1, "wait": 1, "time": 1,
    "mem": 1, "mem-per-cpu": 1, "cpu-bind": 1, "gpu-bind": 1, "mem-bind": 1, "distribution": 1,
    "quiet": 0, "verbose": 0, "nodelist": 1, "exclude": 1, "partition": 1, "relative": 1,
    "overcommit": 0, "hint": 1, "threads-per-core": 1, "signal": 1, "no-kill": 0,
}  # fmt: skip
SHORT = {
    "n": "ntasks", "N": "nodes", "c": "cpus-per-task", "K": "kill-on-bad-exit", "o": "output",
    "e": "error", "i": "input", "l": "label", "u": "unbuffered", "G": "gpus", "J": "job-name",
    "D": "chdir", "W": "wait", "t": "time", "m": "distribution", "Q": "quiet", "v": "verbose",
    "w": "nodelist", "x": "exclude", "p": "partition", "r": "relative", "O": "overcommit",
    "k": "no-kill",
}  # fmt: skip
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCONT")


class Misuse(Exception):
    """A command line that this srun does not understand."""


def parse_command_line(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options by their long names, and the program with its arguments."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = {"job-id": "jobid"}.get(name, name)
        else:
            name, value = SHORT.get(word[1], word[1]), word[2:]
            equals = value
        if name not in OPTIONS:
            raise Misuse(
                f"unrecognized option '{word}': the embedded scheduler's srun knows "
                + ", ".join(f"--{known}" for known in OPTIONS)
            )
        if OPTIONS[name] == 1 and not equals:
            if not rest:
                raise Misuse(f"option '{word}' requires an argument")
            value = rest.pop(0)
        options[name] = value
    if not rest:
        raise Misuse("no command given to execute")
    return options, rest


def number(options: dict[str, str], name: str, variable: str | None, default: int) -> int:
    """An option's value, else the job's own, else the default."""
    text = options.get(name, os.environ.get(variable, "") if variable else "") or str(default)
    text = text.rpartition(":")[2] if name.startswith("gpus") else text.partition("-")[0]
    if not text.isdigit():
        raise Misuse(f"invalid number {text!r} for --{name}")
    return int(text)


def spread(tasks: int, nodes: int, per_node: int) -> list[tuple[int, int]]:
    """The (node, local) number of each rank, in blocks."""
    counts = [tasks // nodes + (node < tasks % nodes) for node in range(nodes)]
    if per_node and per_node * nodes >= tasks:
        counts = [max(0, min(per_node, tasks - per_node * node)) for node in range(nodes)]
    return [(node, local) for node, count in enumerate(counts) for local in range(count)]


class Step:
    """One srun: its layout, its environment and its ranks."""

    def __init__(self, options: dict[str, str], program: list[str]) -> None:
        self.options = options
        self.program = program
        job_nodes = number({}, "nodes", "SLURM_NNODES", 1)
        self.nodes = number(options, "nodes", "SLURM_NNODES", 1)
        per_node = number(options, "ntasks-per-node", "SLURM_NTASKS_PER_NODE", 0)
        default = self.nodes * max(per_node, 1)
        self.tasks = number(options, "ntasks", "SLURM_NTASKS", default)
        if self.tasks < 1 or self.nodes < 1:
            raise Misuse("--ntasks and --nodes must be 1 or more")
        if self.nodes > job_nodes:
            raise Misuse(f"the job has {job_nodes} node(s), --nodes={self.nodes} was asked for")
        self.nodes = min(self.nodes, self.tasks)
        self.layout = spread(self.tasks, self.nodes, per_node)
        self.kill_on_bad_exit = options.get("kill-on-bad-exit", "0") not in {"0", "no"}
        self.job = os.environ.get("SLURM_JOB_ID", "")
        self.number = self._claim_number()
        self.ranks: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        self.label_pipes: dict[int, tuple[int, int]] = {}
        self.label_rests: dict[int, bytes] = {}

    def _claim_number(self) -> int:
        """The next step number of this attempt: a file that only one step can make."""
        run, _, directory = os.environ.get("SLURM_SDK_EMBEDDED_RUN", "").partition("@")
        if not directory or "." not in run:
            raise Misuse("this srun works only within a job of the embedded scheduler")
        if self.options.get("jobid", self.job) != self.job:
            raise Misuse(f"--jobid={self.options['jobid']} is not this job ({self.job})")
        batch = os.environ.get("SLURM_ARRAY_JOB_ID", self.job)
        folder = os.path.join(directory, "jobs", batch, f"steps.{run}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        taken = 0
        while True:
            path = os.path.join(folder, str(taken))
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                taken += 1
                continue
            os.write(descriptor, str(os.getpid()).encode())
            os.close(descriptor)
            return taken

    def environment(self) -> dict[str, str]:
        """What all ranks share."""
        host = os.environ.get("SLURMD_NODENAME", "localhost")
        result = exported(dict(os.environ), self.options.get("export", "ALL"))
        counts = [sum(node == n for node, _ in self.layout) for n in range(self.nodes)]
        listed = ",".join([host] * self.nodes)
        per_node = ",".join(map(str, counts))
        if len(set(counts)) == 1 and self.nodes > 1:
            per_node = f"{counts[0]}(x{self.nodes})"
        result.update(
            SLURM_NTASKS=str(self.tasks),
            SLURM_NPROCS=str(self.tasks),
            SLURM_STEP_ID=str(self.number),
            SLURM_STEPID=str(self.number),
            SLURM_STEP_NUM_TASKS=str(self.tasks),
            SLURM_STEP_NUM_NODES=str(self.nodes),
            SLURM_STEP_NODELIST=listed,
            SLURM_STEP_TASKS_PER_NODE=per_node,
            SLURM_TASKS_PER_NODE=per_node,
            SLURM_NNODES=str(self.nodes),
            SLURM_SRUN_COMM_HOST="127.0.0.1",
            SLURM_LAUNCH_NODE_IPADDR="127.0.0.1",
            SLURM_UMASK=f"{_umask():04o}",
        )
        if "cpus-per-task" in self.options:
            result["SLURM_CPUS_PER_TASK"] = self.options["cpus-per-task"]
        return result

    def rank_environment(self, rank: int, shared: dict[str, str]) -> dict[str, str]:
        """What one rank sees."""
        node, local = self.layout[rank]
        result = dict(
            shared,
            SLURM_PROCID=str(rank),
            SLURM_LOCALID=str(local),
            SLURM_NODEID=str(node),
            SLURM_GTIDS=",".join(str(r) for r, (n, _) in enumerate(self.layout) if n == node),
        )
        devices = [d for d in os.environ.get("SLURM_JOB_GPUS", "").split(",") if d]
        each = number(self.options, "gpus-per-task", "SLURM_GPUS_PER_TASK", 0)
        if each and devices:
            if (rank + 1) * each > len(devices):
                raise Misuse(
                    f"{self.tasks} tasks with {each} GPU(s) each need more than the job's "
                    f"{len(devices)}"
                )
            mine = ",".join(devices[rank * each : (rank + 1) * each])
            result.update(CUDA_VISIBLE_DEVICES=mine, SLURM_STEP_GPUS=mine)
        return result

    def start(self) -> None:
        """Start all ranks, each in a process group of its own."""
        shared = self.environment()
        environments = [self.rank_environment(rank, shared) for rank in range(self.tasks)]
        program = find_program(self.program[0], shared.get("PATH", os.defpath))
        # Held back until every rank can hear them.
        forwarded = [getattr(signal, name) for name in FORWARDED]
        signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
        for rank, environ in enumerate(environments):
            streams = self._streams(rank, environ)
            pid = os.fork()
            if pid == 0:
                self._become_rank(program, environ, streams)
            self.ranks[pid] = rank
            for stream in set(streams) - {0, 1, 2}:
                os.close(stream)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)

    def _become_rank(self, program: str, environ: dict[str, str], streams: list[int]) -> None:
        try:
            os.setpgid(0, 0)
            for name in (*FORWARDED, "SIGCHLD", "SIGPIPE", "SIGXFSZ"):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.closerange(3, 4096)
            if "chdir" in self.options:
                os.chdir(self.options["chdir"])
            environ["SLURM_TASK_PID"] = str(os.getpid())
            os.execve(program, self.program, environ)
        except OSError as error:
            os.write(2, f"slurmstepd: error: execve(): {program}: {error.strerror}\n".encode())
        finally:
            os._exit(2)

    def _streams(self, rank: int, environ: dict[str, str]) -> list[int]:
        """stdin, stdout and stderr of a rank."""
        streams = [0, 1, 2]
        if self.options.get("input") == "none":
            streams[0] = os.open(os.devnull, os.O_RDONLY)
        for target, name in ((1, "output"), (2, "error")):
            pattern = self.options.get(name)
            if pattern == "none":
                streams[target] = os.open(os.devnull, os.O_WRONLY)
            elif pattern and pattern != "all":
                streams[target] = _open_log(self._fill(pattern, rank, environ), self.options)
            elif target == 2 and self.options.get("output"):
                streams[2] = streams[1]
            elif "label" in self.options:
                reader, streams[target] = os.pipe()
                self.label_pipes[reader] = (rank, target)
        return streams

    def _fill(self, pattern: str, rank: int, environ: dict[str, str]) -> str:
        array = os.environ.get("SLURM_ARRAY_JOB_ID", self.job)
        fields = {
            "t": str(rank), "n": str(self.layout[rank][0]), "s": str(self.number), "j": self.job,
            "J": f"{self.job}.{self.number}", "A": array,
            "a": os.environ.get("SLURM_ARRAY_TASK_ID", "4294967294"),
            "N": environ.get("SLURMD_NODENAME", ""), "u": environ.get("SLURM_JOB_USER", ""),
            "x": environ.get("SLURM_JOB_NAME", ""),
        }  # fmt: skip
        pieces = pattern.split("%%")
        for key, value in fields.items():
            pieces = [piece.replace(f"%{key}", value) for piece in pieces]
            for width in range(1, 10):
                pieces = [p.replace(f"%{width}{key}", value.zfill(width)) for p in pieces]
        return "%".join(pieces)

    def forward(self, signum: int, _frame: object = None) -> None:
        """Pass a signal on to every rank that still runs."""
        for pid in list(self.ranks):
            if pid not in self.codes:
                try:
                    os.killpg(pid, signum)
                except ProcessLookupError:
                    # A rank that has not made its group yet, or is just gone.
                    _kill(pid, signum)

    def wait(self) -> int:
        """Wait for all ranks; gives the highest exit code."""
        stopped_at = 0.0
        while len(self.codes) < len(self.ranks):
            pid, status = os.waitpid(-1, os.WNOHANG if self.label_pipes or stopped_at else 0)
            if not pid:
                self._copy_labels(0.05)
                if stopped_at and time.monotonic() - stopped_at > 5:
                    self.forward(signal.SIGKILL)
                continue
            if pid not in self.ranks:
                continue
            code = os.waitstatus_to_exitcode(status)
            self.codes[pid] = code if code >= 0 else 128 - code
            if code:
                self._say(pid, code)
                if self.kill_on_bad_exit and not stopped_at:
                    stopped_at = time.monotonic()
                    self.forward(signal.SIGTERM)
                    self.forward(signal.SIGCONT)
        deadline = time.monotonic() + 1
        while self.label_pipes and time.monotonic() < deadline:
            self._copy_labels(0.05)
        return max(self.codes.values(), default=0)

    def _say(self, pid: int, code: int) -> None:
        host = os.environ.get("SLURMD_NODENAME", "localhost")
        how = f"Exited with exit code {code}" if code > 0 else signal.Signals(-code).name
        sys.stderr.write(f"srun: error: {host}: task {self.ranks[pid]}: {how}\n")
        sys.stderr.flush()

    def _copy_labels(self, seconds: float) -> None:
        """Copy what ranks wrote, each line behind its rank's number."""
        if not self.label_pipes:
            time.sleep(seconds)
            return
        import select

        readable, _, _ = select.select(list(self.label_pipes), [], [], seconds)
        width = len(str(self.tasks - 1))
        for reader in readable:
            rank, target = self.label_pipes[reader]
            data = os.read(reader, 65536)
            # A line may come in pieces: only a whole one gets its label.
            *lines, rest = (self.label_rests.pop(reader, b"") + data).split(b"\n")
            if not data:
                os.close(reader)
                del self.label_pipes[reader]
                lines += [rest] if rest else []
            elif rest:
                self.label_rests[reader] = rest
            label = f"{rank:>{width}}: ".encode()
            os.write(target, b"".join(label + line + b"\n" for line in lines))


def exported(environ: dict[str, str], export: str) -> dict[str, str]:
    """What `--export` lets through; `SLURM_*` always passes."""
    words = [word for word in export.split(",") if word]
    kept = environ
    if "ALL" not in words:
        names = {"PATH", "HOME", "USER", *words}
        kept = {n: v for n, v in environ.items() if n in names or n.startswith("SLURM")}
    return kept | dict(word.split("=", 1) for word in words if "=" in word)


def find_program(name: str, path: str) -> str:
    """Where a program lies, as a shell would find it."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise Misuse(f"{name}: command not found")


def _open_log(path: str, options: dict[str, str]) -> int:
    truncate = not options.get("open-mode", "").startswith("a")
    # Ranks may share one file: all append, and only the first one empties it.
    fresh = truncate and path not in _opened
    _opened.add(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0)
    return os.open(path, flags, 0o666)


_opened: set[str] = set()


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def main(words: list[str]) -> int:
    """Run one step; gives srun's exit code."""
    try:
        options, program = parse_command_line(words)
        step = Step(options, program)
        for name in FORWARDED:
            signal.signal(getattr(signal, name), step.forward)
        step.start()
    except Misuse as problem:
        sys.stderr.write(f"srun: error: {problem}\n")
        return 1
    except OSError as problem:
        sys.stderr.write(f"srun: error: {problem}\n")
        return 1
    return step.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
