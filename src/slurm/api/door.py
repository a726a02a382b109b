"""Slurm's commands for a process in a container, which has none: its job's script runs them.

The script reads names from a pipe in the door's folder, and starts this file for each, outside of
the container. What is to be run, and the answer, go through two more pipes of that name: a secret
in the variables of a submission lies in no file. On Python 3.6.
"""

import errno
import json
import os
import select
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

#: Names the folder, in a container.
VARIABLE = "SLURM_SDK_DOOR"
#: How long the other side may take to open a pipe.
PATIENCE = 30.0
#: Variables of a submission that come from the container; all others are the node's own.
_OURS = ("SLURM", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_")


class Done(NamedTuple):
    """How a command ended."""

    code: int
    stdout: bytes
    stderr: bytes


def run(command: List[str], timeout: float, env: Dict[str, str], cwd: Optional[str] = None) -> Done:
    """Run a command: through the door where there is one, else here.

    OSError where it cannot be started, `subprocess.TimeoutExpired` where it takes too long.
    """
    folder = os.environ.get(VARIABLE)
    if folder:
        return _through(folder, command, timeout, env, cwd)
    from slurm.api import starting  # in a container this file is a program of its own

    done = starting.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        timeout=timeout,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def environment() -> Dict[str, str]:
    """The variables of this process; in a container those of the node, and Slurm's and ours."""
    folder = os.environ.get(VARIABLE)
    if not folder or not os.path.isdir(folder):
        return dict(os.environ)
    told = _through(folder, ["env", "-0"], PATIENCE, {}, None).stdout
    pairs = [pair.partition("=") for pair in os.fsdecode(told).split("\0") if "=" in pair]
    found = {name: value for name, _, value in pairs if not name.startswith(_OURS)}
    found.update((k, v) for k, v in os.environ.items() if k.startswith(_OURS) and k != VARIABLE)
    return found


def _through(
    folder: str, command: List[str], timeout: float, env: Dict[str, str], cwd: Optional[str]
) -> Done:
    until = time.time() + timeout + PATIENCE
    name = os.path.join(folder, f"{os.getpid()}-{os.urandom(4).hex()}")
    # Of the container's own variables (PATH, HOME, ...) none may reach a command of the node.
    own = {k: v for k, v in env.items() if k.startswith(_OURS) or os.environ.get(k) != v}
    own.pop(VARIABLE, None)
    ask = json.dumps({"command": command, "env": own, "cwd": cwd, "timeout": timeout})
    os.mkfifo(name + ".ask", 0o600)
    os.mkfifo(name + ".answer", 0o600)
    answer = os.open(name + ".answer", os.O_RDONLY | os.O_NONBLOCK)
    try:
        _write(os.path.join(folder, "names"), os.path.basename(name) + "\n", until)
        _write(name + ".ask", ask, until)
        told = json.loads(_read(answer, until).decode())
    finally:
        os.close(answer)
        os.unlink(name + ".ask")
        os.unlink(name + ".answer")
    if "error" in told:
        raise OSError(told["errno"], told["error"])
    if told["code"] is None:
        raise subprocess.TimeoutExpired(command, timeout)
    return Done(told["code"], bytes.fromhex(told["stdout"]), bytes.fromhex(told["stderr"]))


def _write(path: str, text: str, until: float) -> None:
    """Write to a pipe as soon as somebody reads from it."""
    opened = time.time()
    while True:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or time.time() > min(until, opened + PATIENCE):
                raise OSError(error.errno, "nobody answers outside of the container") from None
            time.sleep(0.005)
    os.set_blocking(fd, True)
    with os.fdopen(fd, "w") as pipe:
        pipe.write(text)


def _read(fd: int, until: float) -> bytes:
    data = b""
    while True:
        ready = select.select([fd], [], [], max(0.0, until - time.time()))[0]
        if not ready:
            raise OSError(errno.ETIMEDOUT, "no answer from outside of the container")
        block = os.read(fd, 1 << 16)
        if not block:
            return data
        data += block


def serve(folder: str, name: str) -> None:
    """Outside of the container: run what was asked for, and answer."""
    path = os.path.join(folder, name)
    with open(path + ".ask") as pipe:
        asked = json.load(pipe)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    cwd = asked["cwd"] if asked["cwd"] and os.path.isdir(asked["cwd"]) else None
    told: Dict[str, Any] = {}
    try:
        done = run(asked["command"], asked["timeout"], dict(kept, **asked["env"]), cwd)
        told = {"code": done.code, "stdout": done.stdout.hex(), "stderr": done.stderr.hex()}
    except subprocess.TimeoutExpired:
        told = {"code": None}
    except OSError as error:
        told = {"errno": error.errno, "error": str(error.strerror)}
    with open(path + ".answer", "w") as pipe:
        json.dump(told, pipe)


if __name__ == "__main__":
    os.environ.pop(VARIABLE, None)
    serve(sys.argv[1], sys.argv[2])
