"""What this job uses while it runs: memory, CPU time and GPUs, from the kernel and nvidia-smi.

The kernel's own peaks count where it keeps them (cgroup `memory.peak`, `VmHWM`); what it does not
keep is looked at now and then by a thread. The numbers travel in the header of the result record.
"""

from __future__ import annotations

import _thread  # all that is needed of `threading`, which is slow to import
import os
import time

from slurm.runner.memory import group_folders, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

#: Seconds between two looks: the first ones are near, for most jobs are short.
FIRST_LOOK, LONGEST_PAUSE = 0.05, 5.0
#: A look at the GPUs starts a program: it is worth it for a job that has begun to compute.
FIRST_GPU_LOOK, GPU_PAUSE = 1.0, 10.0
_GPU_FIELDS = "index,utilization.gpu,memory.used,memory.total"


class Usage:
    """Watches this process, its children and its control group until `report` is called."""

    def __init__(self) -> None:
        self._begin = time.time()
        self._group = _group()
        self._memory = self._anon = self._cache = 0
        self._gpus = {}  # type: Dict[str, List[Tuple[float, float, float]]]
        self._gpu_pause = FIRST_GPU_LOOK
        self._gpu_at = self._begin + FIRST_GPU_LOOK
        self._alive = _thread.allocate_lock()

    def __enter__(self) -> Usage:
        self._alive.acquire()
        _thread.start_new_thread(self._run, ())
        return self

    def __exit__(self, *_: object) -> None:
        self._alive.release()

    def _run(self) -> None:
        pause = FIRST_LOOK
        while not self._alive.acquire(timeout=pause):
            pause = min(pause * 1.5, LONGEST_PAUSE)
            self.look()

    def look(self) -> None:
        """Take in what is used at this moment."""
        self._memory = max(self._memory, tree_memory(os.getpid()))
        if self._group:
            anon, cache = group_memory(read_text(self._group + "/memory.stat"))
            self._anon = max(self._anon, anon)
            self._cache = max(self._cache, cache)
        if time.time() >= self._gpu_at and _has_gpus():
            self._gpu_at = time.time() + self._gpu_pause
            self._gpu_pause = min(self._gpu_pause * 2, GPU_PAUSE)
            for index, busy, used, total in read_gpus():
                self._gpus.setdefault(index, []).append((busy, used, total))

    def report(self) -> Dict[str, Any]:
        """The numbers: bytes and seconds. Of the group all processes of the job on this node."""
        self.look()
        mine = status_value(read_text("/proc/self/status"), "VmHWM") or _own_peak()
        found = {
            "wall": round(_lifetime() or time.time() - self._begin, 3),
            "cpu": round(_cpu_seconds(), 3),
            "memory": max(mine, self._memory),
            "cpus": _cpus(os.environ),
            "host": os.uname().nodename,
        }  # type: Dict[str, Any]
        peak = _peak(self._group) if self._group else 0
        if peak:
            # What the kernel saw at most holds file caches too, which it gives up when asked: it
            # is the better number only where there were hardly any.
            exact = peak - self._cache if self._cache * 10 < peak else 0
            found["group_memory"] = max(self._anon, exact, mine)
        if self._gpus:
            found["gpus"] = [
                {
                    "index": index,
                    "busy": round(sum(row[0] for row in rows) / len(rows), 1),
                    "memory": int(max(row[1] for row in rows)) << 20,
                    "total": int(rows[0][2]) << 20,
                }
                for index, rows in sorted(self._gpus.items())
            ]
        return found


def _group() -> str:
    """The control group of this job here; of a step of an allocation that of the step."""
    folders = group_folders(read_text("/proc/self/cgroup"))
    if os.environ.get("SLURM_STEP_ORDER"):
        folders = [one for one in folders if os.path.basename(one).startswith("step_")] or folders
    return folders[-1] if folders else ""


def _cpus(environ: Any) -> int:
    """The CPUs that this process has to itself: of one rank among many its own share."""
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        alone = environ.get("SLURM_NTASKS", "1") == "1"
        if environ.get(name, "").isdigit() and (alone or name == "SLURM_CPUS_PER_TASK"):
            return int(environ[name])
    return 1


# ---- memory -------------------------------------------------------------------------------------


def status_value(text: str, name: str) -> int:
    """A line of /proc/PID/status in bytes; 0 where it is missing."""
    for line in text.splitlines():
        if line.startswith(name + ":"):
            words = line.split()
            return int(words[1]) * 1024 if len(words) > 1 and words[1].isdigit() else 0
    return 0


def _own_peak() -> int:
    """The same where there is no /proc: macOS counts in bytes."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def tree(pid: int) -> List[int]:
    """A process and all below it that live."""
    found = [pid]
    for one in found:
        try:
            threads = os.listdir(f"/proc/{one}/task")
        except OSError:
            continue
        for thread in threads:
            found += [
                int(word) for word in read_text(f"/proc/{one}/task/{thread}/children").split()
            ]
    return found


def tree_memory(pid: int) -> int:
    """The memory that a process and all below it hold now; what they share counts once."""
    own, shared = 0, 0
    for one in tree(pid):
        text = read_text(f"/proc/{one}/status")
        own += status_value(text, "RssAnon")
        shared = max(shared, status_value(text, "RssFile") + status_value(text, "RssShmem"))
    return own + shared


def group_memory(text: str) -> Tuple[int, int]:
    """Memory of its own and file caches, out of a control group's `memory.stat`, v1 or v2."""
    values = {}  # type: Dict[str, int]
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdigit():
            values[name] = int(number)
    if "total_rss" in values:
        shared = values.get("total_shmem", 0)
        return values["total_rss"] + shared, max(0, values.get("total_cache", 0) - shared)
    shared = values.get("shmem", 0)
    return values.get("anon", 0) + shared, max(0, values.get("file", 0) - shared)


def _peak(folder: str) -> int:
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        text = read_text(folder + "/" + name).strip()
        if text.isdigit():
            return int(text)
    return 0


# ---- CPU ----------------------------------------------------------------------------------------


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its children, those that are over and those that run."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    return total + sum(_process_cpu(pid) for pid in tree(os.getpid())[1:])


def _lifetime() -> float:
    """Seconds since this process began, imports and all; 0 where there is no /proc."""
    words = read_text("/proc/self/stat").rpartition(")")[2].split()
    uptime = read_text("/proc/uptime").split()
    if len(words) < 20 or not uptime:
        return 0.0
    return float(uptime[0]) - int(words[19]) / os.sysconf("SC_CLK_TCK")


def _process_cpu(pid: int) -> float:
    """CPU seconds of a process that runs, with those of its children that are over."""
    # The name of a program stands in brackets and may hold anything.
    words = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(words) < 15:
        return 0.0
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(int(word) for word in words[11:15]) / ticks


# ---- GPUs ---------------------------------------------------------------------------------------


def _has_gpus() -> bool:
    names = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL")
    return any(os.environ.get(name, "") not in ("", "NoDevFiles", "-1") for name in names)


def read_gpus(program: str = "nvidia-smi") -> List[Tuple[str, float, float, float]]:
    """Index, busy per cent, MiB in use and MiB of each GPU that this job sees; none without one."""
    import subprocess  # slow to import, and only where there are GPUs

    asked = [program, f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible:
        asked.insert(1, f"--id={visible}")
    try:
        done = subprocess.run(
            asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=GPU_PAUSE
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(done.stdout.decode("utf-8", "replace"))


def parse_gpus(text: str) -> List[Tuple[str, float, float, float]]:
    """The rows of nvidia-smi; a GPU that cannot tell its use (MIG) counts as idle."""
    found = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 4 and words[0].isdigit():
            numbers = [_number(word) for word in words[1:]]
            found.append((words[0], *numbers))
    return found  # type: ignore[return-value]


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return 0.0
