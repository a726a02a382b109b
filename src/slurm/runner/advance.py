"""The small job between the parts of a long map: it submits the part whose turn has come."""

import os
import sys


def main(argv: list) -> int:  # type: ignore[type-arg]  # a Python 3.8 may run this
    """Submit the next part of the run."""
    from slurm.api.agent import Agent
    from slurm.api.agent_error import AgentError

    base = os.environ["SLURM_SDK_BASE"]
    try:
        job = Agent(scheduler(), base).advance(os.path.relpath(argv[1], base))
    except AgentError as error:
        sys.stderr.write("slurm-sdk: {}\n{}\n".format(error, "\n".join(error.evidence)))
        return 1
    sys.stderr.write(f"slurm-sdk: submitted job {job}\n")
    return 0


def scheduler() -> object:
    """The scheduler that this job runs under."""
    if os.environ.get("SLURM_CLUSTER_NAME") == "embedded":
        from slurm.api.embedded import EmbeddedScheduler

        return EmbeddedScheduler()
    from slurm.api.slurm_scheduler import SlurmScheduler

    return SlurmScheduler()


if __name__ == "__main__":
    sys.path[0] = __file__.rsplit("/", 3)[0]
    sys.exit(main(sys.argv))
