"""JobCancelled, apart from the other errors because `concurrent.futures` is slow to import."""

from __future__ import annotations

import concurrent.futures

from slurm.errors import JobError


class JobCancelled(JobError, concurrent.futures.CancelledError):
    """The job was cancelled, by this client or by somebody else."""

    code = "SLURM-E302"
