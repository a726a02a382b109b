"""The guard of a part of a run: a small job that judges what failed, and submits it again."""

import os
import sys
import time
from typing import Any

#: How long a guard tries: the scheduler has to say of all jobs of its part that they are over.
PATIENCE = 480.0
#: A lost node's job may go back into the queue; so long it is given to do so.
CALM = 3.0


def main(argv: list) -> int:  # type: ignore[type-arg]  # a Python 3.8 may run this
    """Judge the part that this job guards, and submit again what is due."""
    from slurm.api import retries
    from slurm.api.agent_error import AgentError

    agent = agent_here()
    run = os.path.relpath(argv[1], agent.base)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if retries.judge(agent, run, argv[2], CALM) is not None:
                return 0
            why = "the part is not over"
        except AgentError as error:
            # A limit of jobs, or a controller that does not answer: it may go better soon.
            why = "\n".join([str(error), *error.evidence])
        time.sleep(2)
    sys.stderr.write(f"slurm-sdk: {why}\n")
    return 1


def is_retried_for_memory(run: str) -> bool:
    """Whether this job would be submitted again, should it say that its memory was used up."""
    from slurm.api import retries, retry_rules

    policy = retries.read_policy(run)
    made = retry_rules.retries_of(os.environ.get("SLURM_SDK_PART", "0"))
    failure = retry_rules.Failure("oom", (), "")
    return policy is not None and retry_rules.letter_for(policy["rules"], failure, made) is not None


def agent_here() -> Any:
    """The agent for the scheduler that this job runs under."""
    from slurm.api.agent import Agent
    from slurm.runner.advance import scheduler

    return Agent(scheduler(), os.environ["SLURM_SDK_BASE"])


if __name__ == "__main__":
    sys.path[0] = __file__.rsplit("/", 3)[0]
    sys.exit(main(sys.argv))
