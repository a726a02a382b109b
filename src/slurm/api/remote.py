"""The agent at the other end of a connection: reads requests, serves each, sends the answers.

It is streamed into the login node's Python 3.6 or newer and lives as long as its input does.
"""

import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from slurm.api import frames, places, pythons, store, transfer
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.api.pushes import Watched
from slurm.api.slurm_scheduler import SlurmScheduler

#: So many verbs that run commands or read files are served at once; waiting ones do not count.
AT_ONCE = 8
#: How long the end of the input waits for what has begun.
FINISH = 150.0

#: The verbs of the agent that a client may ask for.
VERBS = frozenset(
    (
        "submit", "resume", "recall", "advance", "order_step", "append_calls", "tell_pilot",
        "stop_parts", "find_job", "status", "request", "stop_workflow", "cancel_below", "family",
        "list", "find_run", "changes", "read_run", "cache_lookup", "cache_clear", "read_value",
        "read", "read_own", "has_sdk", "put_sdk", "prepare_base", "retry", "stop_retry",
        "accounting", "run",
        "container_runtimes", "runs", "run_states", "explain", "run_sizes", "remove_runs", "usage",
        "check", "budget", "look",
    )
)  # fmt: skip
#: Those that must not be carried out by two senders at the same time.
ALONE = frozenset(("submit", "resume", "recall"))


class Conversation:
    """One client: its requests, each served by a thread of its own, and the way back to it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._writing = threading.Lock()
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._busy = 0
        self._agent: Optional[Agent] = None
        self._watched: Optional[Watched] = None
        self._own: Dict[str, Callable[..., Any]] = {
            "follow": self._follow,
            "read_when": self._read_when,
        }

    def take(self, message: Dict[str, Any]) -> None:
        """Serve one request; its answer goes out when it is there."""
        number, verb = message.get("id"), message.get("verb")
        args = message.get("args")
        if not isinstance(number, int) or not isinstance(verb, str) or not isinstance(args, list):
            raise frames.BadFrame("a request without number, verb or arguments")
        if verb == "ping":
            self._send({"id": number, "ok": time.time()})
            return
        if verb == "hello":
            # All else needs to know where the base is.
            self._serve(number, self._hello, args)
            return
        waits = verb in self._own
        with self._lock:
            self._busy += 0 if waits else 1
        thread = threading.Thread(target=self._run, args=(number, verb, args, waits))
        thread.daemon = True
        thread.start()

    def finish(self) -> None:
        """Wait until what has begun is over: a submission is not left half-way."""
        until = time.time() + FINISH
        while self._busy and time.time() < until:
            time.sleep(0.02)

    def _run(self, number: int, verb: str, args: List[Any], waits: bool) -> None:
        if waits:
            self._serve(number, self._own[verb], args)
            return
        try:
            with self._room:
                self._serve(number, self._find(verb), args)
        finally:
            with self._lock:
                self._busy -= 1

    def _find(self, verb: str) -> Callable[..., Any]:
        agent = self._agent
        if agent is None:
            return _refuse("the first request must be hello")
        if verb in ALONE:
            return lambda run, *rest: places.alone(
                agent.base, run, lambda: getattr(agent, verb)(run, *rest)
            )
        if verb in VERBS:
            return getattr(agent, verb)  # type: ignore[no-any-return]
        other = pythons.VERBS.get(verb) or transfer.VERBS.get(verb)
        if other is not None:
            return other
        if verb in store.VERBS:
            return lambda *rest: store.VERBS[verb](agent, *rest)
        if verb == "once":
            return lambda token, name, rest: places.once(
                agent.base, token, lambda: self._find(name)(*rest)
            )
        return _refuse(f"there is no verb {verb!r}")

    def _serve(self, number: int, function: Callable[..., Any], args: List[Any]) -> None:
        try:
            answer = {"id": number, "ok": function(*args)}
        except AgentError as error:
            told = [error.kind, error.message, error.evidence, error.hint]
            answer = {"id": number, "error": told}
        except Exception as error:  # noqa: BLE001 - the client must learn of any surprise
            text = f"the agent failed: {type(error).__name__}: {error}"
            answer = {"id": number, "error": ["agent", text, _where(), None]}
        self._send(answer)

    def _send(self, answer: Dict[str, Any]) -> None:
        try:
            data = frames.encode(answer)
        except (frames.BadFrame, TypeError, ValueError) as error:
            problem: List[Any] = ["agent", f"the answer cannot be sent: {error}", [], None]
            data = frames.encode({"id": answer["id"], "error": problem})
        with self._writing:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                pass  # the client is gone; the end of the input says so, too

    # ---- verbs of the connection itself ---------------------------------------------------------

    def _hello(
        self, base: str, sdk: str, python: List[int], protocol: int, trust_group: bool = False
    ) -> Dict[str, Any]:
        """Where things are here, asked once per connection."""
        if protocol != frames.PROTOCOL:
            raise AgentError("agent", f"protocol {protocol} is not known here")
        places.find_slurm()
        agent = Agent(SlurmScheduler(), base, None, trust_group)
        self._agent = agent
        answer = dict(agent.hello())
        try:
            agent.prepare_base()
            self._watched = Watched(agent)
            problem = None
        except AgentError as error:
            problem = error.message
        answer["problem"] = problem
        answer["sdk"] = agent.has_sdk(sdk)
        answer["home"] = os.path.expanduser("~")
        answer["executable"] = sys.executable
        answer["agent_python"] = list(sys.version_info[:3])
        answer["python"] = pythons.find(python)
        answer["pid"] = os.getpid()
        return answer

    def _follow(self, *args: Any) -> Any:
        if self._watched is None:
            raise AgentError("rundir", "the base directory cannot be used")
        return self._watched.follow(*args)

    def _read_when(
        self, run: str, name: str, offset: int, hold: float, inside: bool = False
    ) -> bytes:
        """Bytes of a file from `offset` on, as soon as there are some."""
        if self._agent is None:
            raise AgentError("agent", "the first request must be hello")
        until = time.time() + min(hold, 30.0)
        pause = 0.02
        while True:
            data = self._agent.read(run, name, offset, inside=inside)
            if data or time.time() >= until:
                return data
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)


def _refuse(text: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> None:
        raise AgentError("agent", text)

    return refuse


def _where() -> List[str]:
    """The last lines of the traceback of what is being handled."""
    import traceback

    return traceback.format_exc().splitlines()[-6:]


def main(stream: Any, marker: str) -> None:
    """Serve the client at the other end of standard input and output until it is gone."""
    sys.setswitchinterval(0.001)
    fd = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    # Whatever prints must not get between the frames, nor wait for a reader.
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.umask(0o077)
    os.chdir(os.path.expanduser("~") if os.path.isdir(os.path.expanduser("~")) else "/")
    os.write(fd, ("\n" + marker + "\n").encode())
    conversation = Conversation(fd)
    try:
        while True:
            conversation.take(frames.read(stream))
    except (EOFError, OSError):
        pass
    except frames.BadFrame as error:
        conversation._send({"id": -1, "error": ["protocol", str(error), [], None]})
    conversation.finish()
    # Threads that hold a request would keep the process.
    os._exit(0)
