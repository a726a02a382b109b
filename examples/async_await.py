"""Jobs are awaitable: an event loop waits for many of them without threads of its own."""

import asyncio
import sys
import time

from slurm import Cluster, task


@task(time="10min")
def double(n: int) -> int:
    time.sleep(0.2)
    return 2 * n


@task
async def fetch(n: int) -> str:
    """An async function is a task like any other: the job runs it to its end."""
    await asyncio.sleep(0.1)
    return f"item {n}"


async def main() -> None:
    with Cluster(*sys.argv[1:]):
        jobs = [double(n) for n in range(5)]
        print("gathered:", await asyncio.gather(*jobs))
        print("awaited:", await fetch(7))
        slow = double(21)
        try:
            await asyncio.wait_for(slow, timeout=0.001)
        except asyncio.TimeoutError:
            print("the waiter gave up; the job goes on:", not slow.cancelled())
        print("later:", await slow)


if __name__ == "__main__":
    asyncio.run(main())
