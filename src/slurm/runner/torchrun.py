"""Starts the ranks of one node under torchrun; without torch it starts them by itself.

srun starts this program once per node. Each rank then runs the runner, which records its outcome.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List

#: `python -m` would import from the working directory first, where files of others may lie.
_TORCHRUN = (
    "import sys; sys.path = [p for p in sys.path if p]; "
    "from torch.distributed.run import main; main()"
)
#: How long the other ranks of a node may go on after one has failed.
PATIENCE = 10.0


def main(argv: List[str]) -> int:
    """`torchrun.py RUN RANKS`: start so many ranks of the run on this node."""
    run, each = argv[1], int(argv[2])
    runner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    env = os.environ
    if "MASTER_ADDR" not in env or "MASTER_PORT" not in env:
        from slurm.runner.ranks import meet

        host, port = meet(env)
        env["MASTER_ADDR"], env["MASTER_PORT"] = host, str(port)
    env["SLURM_SDK_LAUNCH"] = "torchrun"
    if importlib.util.find_spec("torch") is None:
        return _start([sys.executable, runner, run], each)
    words = [
        f"--nnodes={env.get('SLURM_NNODES', '1')}",
        f"--node_rank={env.get('SLURM_NODEID', '0')}",
        f"--nproc_per_node={each}",
        f"--master_addr={env['MASTER_ADDR']}",
        f"--master_port={env['MASTER_PORT']}",
    ]
    command = [sys.executable, "-c", _TORCHRUN, *words, runner, run]
    return _wait([subprocess.Popen(command)])


def rank_variables(environ: Dict[str, str], local: int, each: int) -> Dict[str, str]:
    """What torchrun would tell the rank with this number on its node."""
    node, nodes = int(environ.get("SLURM_NODEID") or 0), int(environ.get("SLURM_NNODES") or 1)
    return {
        "RANK": str(node * each + local),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(nodes * each),
        "LOCAL_WORLD_SIZE": str(each),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(nodes),
        "TORCHELASTIC_RUN_ID": environ.get("SLURM_JOB_ID", "0"),
    }


def _start(command: List[str], each: int) -> int:
    variables = [rank_variables(dict(os.environ), local, each) for local in range(each)]
    return _wait([subprocess.Popen(command, env=dict(os.environ, **own)) for own in variables])


def _wait(processes: "List[subprocess.Popen[bytes]]") -> int:
    """Pass signals on, end all when one fails; the exit code is that of the first failure."""

    def forward(signum: int, _: Any) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signum)

    for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), forward)
    code, kill_at = 0, float("inf")
    while any(process.poll() is None for process in processes):
        ended = [process.returncode for process in processes if process.returncode]
        if ended and not code:
            code = _shell_code(ended[0])
            kill_at = time.monotonic() + PATIENCE
            forward(signal.SIGTERM, None)
        if time.monotonic() > kill_at:
            forward(signal.SIGKILL, None)
        time.sleep(0.02)
    return code or max(_shell_code(process.returncode) for process in processes)


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.path[0] = os.path.abspath(__file__).rsplit("/", 3)[0]
    sys.exit(main(sys.argv))
