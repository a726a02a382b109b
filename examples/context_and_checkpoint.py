"""JobContext: a function that stops in time when warned, and one that goes on after a requeue."""

import signal
import sys
import time

from slurm import Cluster, JobContext, task


@task(time="10min")
def train(ctx: JobContext, steps: int) -> str:
    """The parameter makes the function responsible: signals only set `should_stop`."""
    for step in range(steps):
        if ctx.should_stop:  # the time limit is near: what is returned in time is the result
            (ctx.output_dir / "model.txt").write_text("weights so far")
            return f"stopped by {ctx.stop_signal}"
        time.sleep(0.1)
        print(f"step {step + 1}", flush=True)
    return "finished"


@task(time="10min", requeue=True)
def count(steps: int) -> str:
    """Without the parameter SIGTERM ends the function at once; the next attempt goes on."""
    ctx = JobContext.from_environment()
    saved = ctx.checkpoint_dir / "done.txt"  # the same directory in every attempt
    begin = int(saved.read_text()) if saved.exists() else 0
    for done in range(begin + 1, steps + 1):
        time.sleep(0.1 if ctx.attempt == 0 else 0)  # slow, until it is requeued
        saved.write_text(str(done))
        print(f"step {done}", flush=True)
    return f"attempt {ctx.attempt} went on after step 5 or later: {begin >= 5}"


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        job = train(steps=1000)  # ctx is not passed: the annotation asks for it
        for line in job.log_lines(follow=True):
            if line == "step 5":
                job.signal(signal.SIGUSR2)  # what the scheduler sends before the time limit
                break
        print("near the limit:", job.result(timeout=120))

        job = count(steps=500)
        for line in job.log_lines(follow=True):
            if line == "step 5":
                job.requeue()  # as Slurm does when a job is preempted or its node is lost
                break
        print("after a requeue:", job.result(timeout=120))
