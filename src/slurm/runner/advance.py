"""The small job between the parts of a long map: it submits the part whose turn has come."""

import os
import sys
import time

#: Ways in which the scheduler fails that pass, how long that is waited for, and in which steps.
PASSING, PATIENCE, PAUSE = ("timeout", "unreachable", "limit"), 480.0, 2.0


def main(argv: list) -> int:  # type: ignore[type-arg]  # a Python 3.8 may run this
    """Submit the part of a run whose turn this job has waited for."""
    from slurm.api.agent import Agent
    from slurm.api.agent_error import AgentError

    base = os.environ["SLURM_SDK_BASE"]
    run, turn = os.path.relpath(argv[1], base), int(argv[2])
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            job = Agent(scheduler(), base).advance(run, turn)
            break
        except AgentError as error:
            if error.kind not in PASSING or time.monotonic() > deadline:
                sys.stderr.write("slurm-sdk: {}\n{}\n".format(error, "\n".join(error.evidence)))
                return 1
        time.sleep(PAUSE)
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
