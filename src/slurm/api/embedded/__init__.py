"""A scheduler for one user on one host, for where there is no Slurm: same scripts, same variables.

`EmbeddedScheduler` (client.py) asks a small process (daemon.py) over a socket. The process is
started on demand, keeps its queue in SQLite (queue.py), decides (engine.py, scheduler.py), starts
each job under a supervisor that outlives it (supervisor.py), and leaves when it is idle. Within a
job, srun.py stands in srun's place.
"""

from slurm.api.embedded.client import EmbeddedScheduler

__all__ = ["EmbeddedScheduler"]
