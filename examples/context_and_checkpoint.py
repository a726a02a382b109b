"""JobContext: a function that stops in time when warned, and goes on from its checkpoint."""

import signal
import sys
import time

from slurm import Cluster, JobContext, task


@task(time="10min", requeue=True)
def train(ctx: JobContext, steps: int) -> str:
    saved = ctx.checkpoint_dir / "done.txt"  # the same directory in every attempt
    done = int(saved.read_text()) if saved.exists() else 0
    print(f"attempt {ctx.attempt} begins after {done} steps", flush=True)
    while done < steps:
        if ctx.stop_signal == "SIGTERM":  # preempted or requeued: the next attempt goes on
            raise InterruptedError("stopped by the scheduler")
        if ctx.should_stop:  # the time limit is near: what is returned is the result
            return f"stopped by {ctx.stop_signal}"
        time.sleep(0.1)
        done += 1
        saved.write_text(str(done))
        print(f"step {done}", flush=True)
    (ctx.output_dir / "model.txt").write_text("weights")
    return f"finished in attempt {ctx.attempt}"


with Cluster(*sys.argv[1:]):
    warned = train(steps=1000)  # ctx is not passed: the annotation asks for it
    for line in warned.tail(follow=True):
        if line == "step 5":
            warned.signal(signal.SIGUSR2)  # what the scheduler sends before the time limit
            break
    print("near the limit:", warned.result(timeout=120))

    again = train(steps=20)
    for line in again.tail(follow=True):
        if line == "step 5":
            again.requeue()  # as Slurm does when a job is preempted
            break
    print("after a requeue:", again.result(timeout=120))
    begins = [line for line in again.stdout().splitlines() if "begins" in line]
    print("from the start again:", begins[-1].endswith(" 0 steps"))
