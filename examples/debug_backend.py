"""The debug backend runs a call in this process at the first result(), so that pdb works."""

import os

from slurm import Cluster, JobContext, task


@task(time="10min", env={"MODE": "debug"})
def inspect(ctx: JobContext, n: int) -> tuple[int, int, str | None]:
    # breakpoint()  # would stop here, in your terminal
    return n + 1, os.getpid(), os.environ.get("MODE")


@task
def broken() -> None:
    raise RuntimeError("with its own frames: post-mortem debugging works")


if __name__ == "__main__":
    with Cluster(backend_type="debug"):
        job = inspect(1)
        print("before:", job.state)
        value, process, mode = job.result()
        print("value:", value, "- in this process:", process == os.getpid(), "- MODE:", mode)
        try:
            broken().result()
        except RuntimeError as error:
            assert error.__traceback__ is not None
            print("raised:", error)
