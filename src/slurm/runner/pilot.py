"""The pilot of an allocation: it takes orders out of its inbox and runs each as a step."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from slurm import rundir
from slurm.context import JobContext
from slurm.runner import inbox, steps

#: How often the inbox is read: quickly after an order or an end, then less and less.
FASTEST, SLOWEST = 0.02, 1.0
#: How long a step that was told to end may take before it is killed: as long as Slurm gives.
PATIENCE = float(os.environ.get("SLURM_SDK_EMBEDDED_KILL_WAIT") or 30.0)
#: A death by a signal is reported after this: the whole allocation may be what is ending.
SECOND_THOUGHT = 1.0

_OOM = re.compile(rb"oom[-_ ]kill event|Out Of Memory", re.IGNORECASE)


class Step:
    """One order, or one element of an order for a map, and what became of it."""

    def __init__(self, number: int, order: Dict[str, Any], element: Optional[int]) -> None:
        self.number = number
        self.order = order
        self.element = element
        self.shape = steps.shape_of(order)
        self.place = None  # type: Optional[steps.Place]
        self.process = None  # type: Optional[subprocess.Popen[bytes]]
        self.state = ""
        self.stop_as = ""
        self.kill_at = float("inf")
        self.limit_at = float("inf")
        self.ended_at = None  # type: Optional[float]

    @property
    def name(self) -> str:
        """`4`, or `4_7` for an element of a map."""
        return str(self.number) if self.element is None else f"{self.number}_{self.element}"


class Pilot:
    """Runs the steps that are ordered, as many at once as the allocation has room for."""

    def __init__(self, run: str, base: str, job: str, context: Optional[JobContext] = None) -> None:
        self._folder = inbox.inbox_folder(run, job)
        self._notes = os.path.join(self._folder, rundir.STEPS)
        self._base = base
        self._job = job
        self._context = context
        self._inside = bool(os.environ.get("SLURM_STEP_ID"))
        self._room = steps.room_of(os.environ)
        self._known = 0
        self._waiting = []  # type: List[Step]
        self._running = []  # type: List[Step]
        self._states = {}  # type: Dict[str, str]
        self._left = {}  # type: Dict[int, int]
        self._told = set()  # type: set[str]
        self._changed = threading.Event()
        self._active_at = self._heard_at = time.monotonic()
        self._beat = ""
        self._warned = False
        self.closed = False
        self.count = 0
        rundir.make_run_folder(self._folder)

    def serve(self, idle: float) -> Dict[str, int]:
        """Work until the client closes the allocation, or is silent for `idle` seconds."""
        while not self._over(idle):
            self._read()
            self._collect()
            self._start()
            quiet = time.monotonic() - self._active_at
            self._changed.wait(min(max(quiet / 20, FASTEST), SLOWEST))
            self._changed.clear()
        ends = list(self._states.values())
        return {"steps": self.count, "failed": sum(state != "COMPLETED" for state in ends)}

    def _over(self, idle: float) -> bool:
        if self._stopping():
            self._stop_all()
            return True
        if self._waiting or self._running:
            return False
        if self.closed:
            # Orders that came just before the word are carried out, too.
            return not inbox.read_inbox(self._folder, self._known)[0]
        return time.monotonic() - max(self._heard_at, self._active_at) > idle

    def _stopping(self) -> bool:
        context = self._context
        if context is None or not context.should_stop:
            return False
        if context.stop_signal == "SIGTERM":
            return True
        if not self._warned:
            self._warned = True
            for step in self._running:
                self._signal(step, getattr(signal, str(context.stop_signal)))
        return False

    def _stop_all(self) -> None:
        """The job is being ended: give the steps the time that it has itself."""
        for step in self._running:
            self._signal(step, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        for step in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert step.process is not None
                step.process.wait(max(0.0, deadline - time.monotonic()))

    # ---- the inbox ------------------------------------------------------------------------------

    def _read(self) -> None:
        orders, words = inbox.read_inbox(self._folder, self._known)
        for number, order in orders:
            self._known = number
            count = order.get("count")
            elements = [None] if count is None else list(range(count))  # type: List[Optional[int]]
            self._left[number] = len(elements)
            self._waiting += [Step(number, order, element) for element in elements]
            self._active_at = time.monotonic()
        for word in words:
            self._listen(word)

    def _listen(self, word: str) -> None:
        if word == inbox.BEAT:
            with open(os.path.join(self._folder, word)) as f:
                text = f.read()
            if text != self._beat:
                self._beat, self._heard_at = text, time.monotonic()
        elif word not in self._told:
            kind, _, rest = word.partition("-")
            if kind in (inbox.CLOSE, inbox.CANCEL, inbox.SIGNAL):
                self._told.add(word)
                self._heard_at = self._active_at = time.monotonic()
            if kind == inbox.CLOSE:
                self.closed = True
            elif kind == inbox.CANCEL:
                self._cancel(rest)
            elif kind == inbox.SIGNAL:
                name, number = rest.split("-")[:2]
                for step in self._named(self._running, name):
                    self._signal(step, int(number))

    @staticmethod
    def _named(among: List[Step], name: str) -> List[Step]:
        return [step for step in among if name in (step.name, str(step.number))]

    def _cancel(self, name: str) -> None:
        for step in self._named(self._waiting, name):
            self._waiting.remove(step)
            self._note_end(step, "CANCELLED", 0)
        for step in self._named(self._running, name):
            self._stop(step, "CANCELLED")

    def _stop(self, step: Step, state: str) -> None:
        if not step.stop_as:
            step.stop_as = state
            step.kill_at = time.monotonic() + PATIENCE
            self._signal(step, signal.SIGTERM)

    def _signal(self, step: Step, number: int) -> None:
        if step.process is not None and step.process.poll() is None:
            step.process.send_signal(number)

    # ---- starting -------------------------------------------------------------------------------

    def _start(self) -> None:
        for step in list(self._waiting):
            condition = steps.dependency_state(
                step.order.get("dependency"), self._states, step.element
            )
            if condition == steps.NEVER:
                self._waiting.remove(step)
                self._note_end(step, "CANCELLED", 0, "DependencyNeverSatisfied")
                continue
            if condition == steps.OPEN or self._throttled(step):
                continue
            if not self._room.could_ever_hold(step.shape):
                self._refuse(step)
                continue
            place = self._room.find(step.shape)
            if place is None:
                # First come, first served: a wide step is not overtaken for ever by narrow ones.
                return
            self._waiting.remove(step)
            self._launch(step, place)

    def _throttled(self, step: Step) -> bool:
        most = step.order.get("throttle")
        mine = sum(other.number == step.number for other in self._running)
        return most is not None and mine >= int(most)

    def _refuse(self, step: Step) -> None:
        shape = step.shape
        nodes = f"{shape.nodes} node(s) and " if shape.nodes else ""
        text = (
            f"slurm-sdk: the step asks for {nodes}{shape.tasks} rank(s) with {shape.cpus} CPU(s) "
            f"each; the allocation has {self._room}\n"
        )
        for log in self._logs(step)[1:]:
            log.write(text.encode())
            log.close()
        self._waiting.remove(step)
        self._note_end(step, "FAILED", 1, "PartitionConfig")

    def _launch(self, step: Step, place: steps.Place) -> None:
        self._room.take(place)
        step.place = place
        flags = steps.srun_flags(step.order, place, self._room.named(place), self._inside)
        environ = steps.step_environment(
            os.environ, step.number, step.shape.cpus, flags, step.element
        )
        run = os.path.join(self._base, str(step.order["run"]))
        out, err = self._logs(step)
        with out, err:
            step.process = subprocess.Popen(
                ["bash", os.path.join(run, rundir.SCRIPT)],
                env=environ,
                cwd=run,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self.count += 1
        self._running.append(step)
        self._active_at = time.monotonic()
        if step.order.get("time"):
            step.limit_at = self._active_at + float(step.order["time"])
        self._states[step.name] = "RUNNING"
        self._states.setdefault(str(step.number), "RUNNING")
        self._note("begin", step, nodes=",".join(self._room.names[n] for n in place.nodes))
        threading.Thread(target=self._await, args=(step.process,), daemon=True).start()

    def _await(self, process: "subprocess.Popen[bytes]") -> None:
        # Only a look: the main loop collects the exit code itself.
        with contextlib.suppress(OSError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self._changed.set()

    def _logs(self, step: Step) -> Tuple[Any, Any]:
        run = os.path.join(self._base, str(step.order["run"]))
        bare = f"{self._job}.{step.number}"
        marks = {
            "%j": bare if step.element is None else f"{bare}_{step.element}",
            "%A": bare,
            "%a": "" if step.element is None else str(step.element),
            "%x": str(step.order.get("name", "")),
            "%%": "%",
        }
        names = [
            re.sub("%[jAax%]", lambda found: marks[found.group()], str(step.order[stream]))
            for stream in ("output", "error")
        ]
        return tuple(open(os.path.join(run, name), "ab") for name in names)  # type: ignore[return-value]

    # ---- ends -----------------------------------------------------------------------------------

    def _collect(self) -> None:
        now = time.monotonic()
        for step in list(self._running):
            assert step.process is not None
            if step.process.poll() is None:
                if now >= step.limit_at:
                    self._stop(step, "TIMEOUT")
                if now >= step.kill_at:
                    step.kill_at = now + 1.0
                    self._kill(step.process)
                continue
            code = step.process.returncode
            step.ended_at = step.ended_at or now
            killed = code < 0 or code > 128
            if killed and not step.stop_as and now - step.ended_at < SECOND_THOUGHT:
                continue
            self._running.remove(step)
            assert step.place is not None
            self._room.give_back(step.place)
            self._active_at = now
            self._note_end(step, self._end_state(step, code), code)

    @staticmethod
    def _kill(process: "subprocess.Popen[bytes]") -> None:
        """Kill what a step's script has started, so that it can say so; then the script itself."""
        below = descendants(process.pid)
        for pid in below or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _end_state(self, step: Step, code: int) -> str:
        if code == 0:
            return "COMPLETED"
        if step.stop_as:
            return step.stop_as
        run = os.path.join(self._base, str(step.order["run"]))
        try:
            out, err = self._logs(step)
            out.close()
            with err, open(err.name, "rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 4096))
                if _OOM.search(log.read()):
                    return "OUT_OF_MEMORY"
        except OSError as error:
            sys.stderr.write(f"slurm-sdk: no log of {run}: {error}\n")
        return "FAILED"

    def _note_end(self, step: Step, state: str, code: int, reason: str = "") -> None:
        step.state = self._states[step.name] = state
        if step.element is not None:
            self._note_whole(step, state)
        self._note("end", step, state=state, code=code, reason=reason)
        if step.process is None:
            self._report(step, code)

    def _report(self, step: Step, code: int) -> None:
        """Write the exit event of a step whose script never ran: its client looks for one."""
        run = str(step.order["run"])
        who = rundir.Identity(f"{self._job}.{step.number}", step.element or 0, 0, 0)
        fields = {"run": run, "phase": "start", "code": code, "signal": 0, "elapsed": 0}
        line = rundir.format_event("exit", who, **dict(fields, time=int(time.time())))
        rundir.append_event(os.path.join(self._base, run), line)
        day = time.strftime("%Y%m%d")
        path = os.path.join(self._base, rundir.BASE_EVENTS, f"{rundir.host_token()}-{day}")
        rundir.append(path, line.encode() + b"\n", sync=False)

    def _note_whole(self, step: Step, state: str) -> None:
        """An order for a map is over when all elements are, and has succeeded when all have."""
        number = str(step.number)
        self._left[step.number] -= 1
        if self._left[step.number] == 0:
            mine = [s for name, s in self._states.items() if name.startswith(number + "_")]
            good = all(s == "COMPLETED" for s in mine)
            self._states[number] = "COMPLETED" if good else "FAILED"
        else:
            self._states.setdefault(number, "RUNNING")

    def _note(self, kind: str, step: Step, **fields: Any) -> None:
        who = rundir.Identity(step.name, 0, 0, 0)
        given = {name: value for name, value in fields.items() if value != ""}
        line = rundir.format_event(kind, who, **dict(given, time=int(time.time())))
        rundir.append(self._notes, line.encode() + b"\n", sync=False)


def descendants(pid: int) -> List[int]:
    """The processes that a process has started, and those that they have."""
    parents = {}  # type: Dict[int, List[int]]
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{name}/stat") as f:
                    # The name in parentheses may contain anything, also parentheses.
                    parent = int(f.read().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(name))
    found, left = [], [pid]  # type: List[int], List[int]
    while left:
        below = parents.get(left.pop(), [])
        found += below
        left += below
    return found


def serve(idle: float, token: str, ctx: JobContext) -> Dict[str, int]:
    """The function of a job that is nothing but an allocation.

    The token is another one each time: a workflow that begins anew must not take an old one.
    """
    run, base = os.environ["SLURM_SDK_RUN"], os.environ["SLURM_SDK_BASE"]
    return Pilot(run, base, os.environ["SLURM_JOB_ID"], ctx).serve(idle)
