"""JobContext: what a function can ask about the job it runs in."""

from __future__ import annotations

import os
import time

from slurm import rundir

# What only some of its answers need is imported there: a job waits for every import of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class JobContext:
    """The job as seen from inside; a parameter annotated with this class receives it.

    ```python
    @task(time="2h")
    def train(lr: float, ctx: JobContext) -> float:
        while not ctx.should_stop:
            ...
    ```
    """

    def __init__(self, environ: Mapping[str, str], run: str) -> None:
        self._env = environ
        self._run = run
        self._stop_signal: int | None = None

    @classmethod
    def from_environment(cls) -> JobContext:
        """The context of this process, from the variables that the scheduler set."""
        run = os.environ.get("SLURM_SDK_RUN") or os.getcwd()
        return cls(dict(os.environ), run)

    def _int(self, *names: str, default: int = 0) -> int:
        for name in names:
            text = self._env.get(name, "")
            if text.isdigit():
                return int(text)
        return default

    # ---- who ------------------------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """The id of this job; for an element of an array the element's own (`SLURM_JOB_ID`)."""
        return self._env.get("SLURM_JOB_ID", "0")

    @property
    def step_id(self) -> str | None:
        """The id of the step, None in the batch script itself."""
        return self._env.get("SLURM_STEP_ID")

    @property
    def job_name(self) -> str:
        """The job's name."""
        return self._env.get("SLURM_JOB_NAME", "")

    @property
    def array_job_id(self) -> str | None:
        """The id of the array this job is an element of, else None."""
        return self._env.get("SLURM_ARRAY_JOB_ID")

    @property
    def array_index(self) -> int | None:
        """The index of the item of a map that this job works on, else None."""
        text = self._env.get("SLURM_ARRAY_TASK_ID")
        return int(text) + self._int("SLURM_SDK_OFFSET") if text else None

    @property
    def attempt(self) -> int:
        """0 on the first run; one more after each requeue."""
        return self._int("SLURM_RESTART_COUNT")

    # ---- where ----------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This process among all of the job, from 0."""
        return self._int("RANK", "SLURM_PROCID")

    @property
    def local_rank(self) -> int:
        """This process among those on its node, from 0."""
        return self._int("LOCAL_RANK", "SLURM_LOCALID")

    @property
    def node_rank(self) -> int:
        """This node among those of the job, from 0."""
        return self._int("SLURM_NODEID")

    @property
    def world_size(self) -> int:
        """How many processes run this function."""
        return self._int("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", default=1)

    @property
    def nodes(self) -> int:
        """How many nodes the job has."""
        return self._int("SLURM_JOB_NUM_NODES", "SLURM_NNODES", default=1)

    @property
    def num_nodes(self) -> int:
        """The same as `nodes`."""
        return self.nodes

    @property
    def hostnames(self) -> list[str]:
        """The names of the job's nodes, in Slurm's order."""
        from slurm.model.hostlist import expand_hostlist

        listed = self._env.get("SLURM_JOB_NODELIST") or self._env.get("SLURM_NODELIST")
        return expand_hostlist(listed) if listed else [os.uname().nodename]

    @property
    def master_addr(self) -> str:
        """The first node: where the ranks of a distributed job meet."""
        return self._env.get("MASTER_ADDR") or self.hostnames[0]

    @property
    def master_port(self) -> int:
        """A port of the first node that was free when the job began."""
        return self._int("MASTER_PORT", default=29500)

    def torch_distributed_env(self) -> dict[str, str]:
        """The variables that `torch.distributed` reads, also for a job of one process.

        `os.environ.update(ctx.torch_distributed_env())` comes before `init_process_group()`.
        """
        if not self._env.get("MASTER_PORT"):
            from slurm.runner.ranks import free_port, reachable_name

            # Nobody else has to find this place: it is a world of one process.
            meeting = {"MASTER_ADDR": reachable_name("localhost"), "MASTER_PORT": str(free_port())}
            self._env = {**self._env, **meeting}
        return {
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "NODE_RANK": str(self.node_rank),
        }

    @property
    def local_world_size(self) -> int:
        """How many of the job's processes run on this node."""
        from slurm.runner.steps import parse_counts

        given = self._int("LOCAL_WORLD_SIZE")
        counts = parse_counts(self._env.get("SLURM_STEP_TASKS_PER_NODE", ""))
        return given or (counts[self.node_rank] if self.node_rank < len(counts) else 1)

    # ---- what it has ----------------------------------------------------------------------------

    @property
    def cpus(self) -> int:
        """The CPUs of this process."""
        return self._int("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", default=1)

    @property
    def gpus(self) -> list[str]:
        """The GPUs this process can see, as CUDA names them."""
        names = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
        text = next((self._env[name] for name in names if name in self._env), "")
        # Two ways to say "none": CUDA's own, and that of older Slurm.
        return [part for part in text.split(",") if part not in ("", "-1", "NoDevFiles")]

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs the job has on this node."""
        text = self._env.get("SLURM_GPUS_ON_NODE", "")
        return int(text) if text.isdigit() else len(self.gpus)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables when the context was made."""
        return dict(self._env)

    @property
    def output_dir(self) -> Path:
        """A directory of this call's own in the run directory, made on first use."""
        return self._own_folder(rundir.OUTPUT)

    @property
    def checkpoint_dir(self) -> Path:
        """A directory of this call's own that survives requeue and retry, made on first use."""
        return self._own_folder(rundir.CHECKPOINT)

    def _own_folder(self, kind: str) -> Path:
        from pathlib import Path

        folder = os.path.join(self._run, kind, str(self.array_index or 0))
        rundir.make_private_folder(self._run)
        rundir.make_run_folder(folder)
        return Path(folder)

    # ---- how long -------------------------------------------------------------------------------

    def time_left(self) -> float | None:
        """Seconds until the time limit; None where there is none or nobody can tell."""
        end = self._int("SLURM_JOB_END_TIME")
        if end:
            return end - time.time()
        return self._ask_time_left()

    def _ask_time_left(self) -> float | None:
        # Slurm before 23.02 does not tell the job its end; one question, then it is known.
        import subprocess

        from slurm.api import door
        from slurm.errors import OptionError
        from slurm.model.units import parse_duration

        try:
            words = ["squeue", "-h", "-j", self.job_id, "-o", "%L"]
            answer = door.run(words, 30, dict(os.environ)).stdout.decode().strip()
            left = parse_duration(answer)
        except (OSError, subprocess.SubprocessError, OptionError):
            return None
        if left is None:
            return None
        self._env = {**self._env, "SLURM_JOB_END_TIME": str(int(time.time()) + left)}
        return float(left)

    @property
    def should_stop(self) -> bool:
        """True once the scheduler has warned: the time limit is near, or the job is preempted."""
        return self._stop_signal is not None

    @property
    def stop_signal(self) -> str | None:
        """The name of the signal that set `should_stop`, such as `SIGUSR2` or `SIGTERM`."""
        if self._stop_signal is None:
            return None
        from signal import Signals

        return Signals(self._stop_signal).name

    def request_stop(self, number: int) -> None:
        """Set `should_stop`; called by the runner's signal handler, and useful in tests."""
        self._stop_signal = number

    def __repr__(self) -> str:
        return f"<JobContext job {self.job_id} rank {self.rank} of {self.world_size}>"
