"""Why a job waits or why it failed, in English: pure tables, for the command line and dashboards.

`explain_pending` takes what the agent's verb `explain` gives, `explain_failure` what is known about
a job that has ended; both give a `Why`.
"""

from __future__ import annotations

from slurm.why.failed import Ended, explain_failure
from slurm.why.model import Fix, Limit, Why
from slurm.why.pending import explain_pending

__all__ = ["Ended", "Fix", "Limit", "Why", "explain_failure", "explain_pending"]
