"""TorchDistributedEnvironment: where the tasks of a job meet, in the variables that torch reads."""

from __future__ import annotations

import os
import random

from slurm.submitit.core.job_environment import JobEnvironment


class TorchDistributedEnvironment:
    """Who this task is among those of its job, and where they meet.

    All tasks find the same port without talking: it comes from the job's id.
    """

    def __init__(self) -> None:
        self._job_env = env = JobEnvironment()
        self.master_addr = env.hostnames[0]
        self.master_port = self._get_master_port()
        self.rank = env.global_rank
        self.world_size = env.num_tasks
        self.local_rank = env.local_rank
        self.local_world_size = max(1, env.num_tasks // env.num_nodes)

    def _get_master_port(self) -> int:
        given = os.environ.get("MASTER_PORT")
        if given:
            return int(given)
        return random.Random(self._job_env.job_id).randint(20_000, 60_000)

    def export(
        self, set_cuda_visible_devices: bool = True, overwrite: bool = False
    ) -> TorchDistributedEnvironment:
        """Set the variables; those that are set already stay, unless `overwrite`."""
        values = {
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }
        if set_cuda_visible_devices:
            values["CUDA_VISIBLE_DEVICES"] = str(self.local_rank)
        for name, value in values.items():
            if overwrite or name not in os.environ:
                os.environ[name] = value
        return self
