"""The ssh backend: each verb goes to the agent on a login node, over one connection that heals."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from slurm import errors, locks
from slurm.api import frames, openssh, starting
from slurm.api.agent_error import AgentError
from slurm.api.backend import Backend, Wanted, as_error
from slurm.api.link import Link, LinkLost
from slurm.api.openssh import SshSettings

#: How long a verb waits for a connection that was there before and is lost.
PATIENCE = 120.0
#: The pauses between attempts to connect again; each is taken at random from its upper half.
BACK_OFF = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 15.0)
#: How long the agent holds the request for news.
HOLD = 25.0
#: Large values come in pieces of this size, so that others get a turn between them.
PIECE = 4 << 20

#: Verbs that would do harm if carried out twice: the agent remembers that it did them.
_ONCE = frozenset(("order_step", "append_calls", "tell_pilot", "request", "run"))

#: Verbs whose calls may need files that were not sent yet.
_WITH_FILES = frozenset(("submit", "resume", "append_calls", "order_step"))


class SshBackend(Backend):
    """A cluster behind ssh. One process of ssh and one agent serve all threads of this process."""

    kind = "ssh"
    pushes = True

    def __init__(self, how: SshSettings, base: str, trust_group: bool = False) -> None:
        self.how = how
        self.base = base
        self.trust_group = trust_group
        self.target = f"ssh:{how.hostname}:{' '.join(how.words)}:{how.python}:{base}"
        self.target += ":group" if trust_group else ""
        #: How often a connection was made; what a test can watch.
        self.connections = 0
        self.patience = PATIENCE
        #: Files of calls, by hash and name: those to be sent, and those that are there.
        self.wanted_files: dict[tuple[str, str], str] = {}
        self.files_there: set[tuple[str, str]] = set()
        self._reset()
        _made.add(self)

    def _reset(self) -> None:
        self._connecting = locks.lock("ssh.connecting")
        self._link: Link | None = None
        self._hello: dict[str, Any] | None = None
        self._following: _Following | None = None
        self._modules: dict[tuple[str, str], Any] = {}
        self._versions: dict[str, Any] = {}
        self._sdk_sent = False

    # ---- one verb -------------------------------------------------------------------------------

    def call(self, verb: str, *args: Any) -> Any:
        """Carry out a verb; a connection that is lost meanwhile is made again, and the verb too."""
        if self.wanted_files and verb in _WITH_FILES:
            from slurm.files import send_wanted

            send_wanted(self)
        if verb in _ONCE:
            verb, args = "once", (os.urandom(16).hex(), verb, list(args))
        deadline = time.monotonic() + self.patience
        again = False
        for attempt in range(1_000_000):
            link = self._connected(deadline)
            try:
                if again and verb == "submit":
                    # It may have been submitted: what was accepted is looked up first.
                    found = link.ask("resume", *args)
                    return [job for _, job in sorted(found)]
                return link.ask(verb, *args)
            except LinkLost as lost:
                again = True
                if time.monotonic() >= deadline:
                    raise self._gone(str(lost)) from None
                _pause(attempt, deadline)
        raise AssertionError

    def _gone(self, why: str) -> errors.ConnectionLost:
        return errors.ConnectionLost(
            f"the connection to {self.how.name} is lost ({why}), and did not come back within "
            f"{self.patience:.0f} s",
            hint="jobs that were submitted are not affected; call it again when the network is "
            "back, or attach to the run from anywhere",
        )

    # ---- the connection -------------------------------------------------------------------------

    def _connected(self, deadline: float) -> Link:
        with self._connecting:
            link = self._link
            if link is not None and not link.lost:
                return link
            for attempt in range(1_000_000):
                try:
                    return self._connect()
                except errors.ConnectError as error:
                    healing = self.connections and isinstance(error, openssh.PASSING)
                    if not healing or time.monotonic() >= deadline:
                        raise
                    _pause(attempt + 1, deadline)
            raise AssertionError

    def _connect(self) -> Link:
        control = self.control()
        if control is not None and self._link is not None and self._link.stalled:
            # The control process may believe in a connection that is gone: a new one is made.
            _run(openssh.control_words(self.how, control, "exit"))
        try:
            return self._open(control)
        except errors.ConnectionLost:
            # Without a word from ssh: a control process that has lost its own connection.
            if control is None or not os.path.exists(control):
                raise
            _run(openssh.control_words(self.how, control, "exit"))
            return self._open(control)

    def control(self) -> str | None:
        """Our own control socket; None where the user's configuration has one for this host."""
        if sys.platform == "win32":
            return None
        shown = _run(["ssh", "-G", *self.how.words, "--", self.how.hostname])
        configured = dict(line.partition(" ")[::2] for line in shown.lower().splitlines())
        on = configured.get("controlmaster", "false") != "false"
        if on and configured.get("controlpath", "none") != "none":
            return None
        return openssh.control_path(self.how)

    def _open(self, control: str | None) -> Link:
        from slurm.packaging.sdk import sdk_hash

        try:
            link = Link(openssh.ssh_command(self.how, control))
        except OSError as error:
            raise errors.ConnectError(
                f"ssh cannot be started: {error.strerror}", hint="install OpenSSH's client"
            ) from error
        version = list(sys.version_info[:3])
        hello = (self.base, sdk_hash(), version, frames.PROTOCOL, self.trust_group)
        try:
            found = link.ask_within(self.how.connect_timeout + 40, "hello", *hello)
        except LinkLost:
            code = link.wait_ended(2)
            raise openssh.explain_failure(self.how, code, link.said(), link.gave_up) from None
        except AgentError as error:
            if error.kind == "rundir":
                raise as_error(error) from None
            raise errors.ProtocolError(error.message, evidence=error.evidence) from None
        self._hello = _checked(found)
        self._sdk_sent = self._sdk_sent or bool(found["sdk"])
        self._link = link
        self.connections += 1
        return link

    def forget(self) -> None:
        """In a forked child: the connection is the parent's."""
        if self._link is not None:
            self._link.forget()
        self._reset()

    def close(self) -> None:
        """End the connection; the next verb makes a new one."""
        link, self._link = self._link, None
        if link is not None:
            link.close("closed")

    # ---- verbs that are answered by what is known already ---------------------------------------

    def facts(self) -> dict[str, Any]:
        """What the agent said when the connection was made."""
        if self._hello is None:
            self._connected(time.monotonic() + self.patience)
        assert self._hello is not None
        return self._hello

    def hello(self) -> dict[str, Any]:
        """The base directory there, the kind of scheduler, the host."""
        return self.facts()

    def path_there(self, path: str) -> str:
        """A path on the cluster: `~` is the home there, and a relative one counts from it."""
        import posixpath

        home = str(self.facts()["home"])
        bare = path[2:] if path.startswith("~/") else "" if path == "~" else path
        return posixpath.normpath(posixpath.join(home, bare))

    def put_sdk(self, name: str, files: dict[str, bytes], again: bool = False) -> None:
        """Send the SDK, where the cluster does not have it (`again`: not any more)."""
        problem = self.facts()["problem"]
        if problem:
            raise errors.RunDirError(
                f"{problem} on {self.how.hostname}",
                hint="choose a directory that you can write there: Cluster(job_base_dir=...)",
            )
        if again or not self._sdk_sent:
            self._call("put_sdk", name, files)
            self._sdk_sent = True

    def read_value(self, run: str, name: str) -> bytes:
        """The bytes of a large value, in pieces."""
        pieces: list[bytes] = []
        offset = 0
        while True:
            piece = self._call("read_value", run, name, offset, PIECE)
            pieces.append(piece)
            offset += len(piece)
            if len(piece) < PIECE:
                return b"".join(pieces)

    def read_when(self, run: str, name: str, offset: int, hold: float) -> bytes:
        """Bytes of a file from `offset` on as soon as there are some, at most `hold` s later."""
        data: bytes = self._call("read_when", run, name, offset, hold)
        return data

    def python_version(self, python: str) -> tuple[str, tuple[int, int]] | None:
        """The path and version of an interpreter there; None where it does not start."""
        if python not in self._versions:
            self._versions[python] = self._call("python_version", python)
        found = self._versions[python]
        return None if found is None else (str(found[0]), (int(found[1][0]), int(found[1][1])))

    def find_python(self, version: tuple[int, int]) -> str | None:
        """A Python of this version there."""
        key = "{}.{}".format(*version)
        if key not in self._versions:
            self._versions[key] = self._call("find_python", version)["same"]
        found = self._versions[key]
        return None if found is None else str(found[0])

    def find_module(self, python: str, module: str) -> tuple[str, str] | None:
        """Where a Python there would import a module from, and the hash of the file."""
        key = (python, module)
        if key not in self._modules:
            self._modules[key] = self._call("find_modules", python, [module]).get(module)
        found = self._modules[key]
        return None if found is None else (str(found[0]), str(found[1]))

    # ---- news -----------------------------------------------------------------------------------

    def follow(
        self,
        wanted: Mapping[str, Wanted],
        attended: bool,
        told: Callable[[], None],
    ) -> list[tuple[str, dict[str, Any]]]:
        """Say which runs are watched, and take what the agent has told of them since.

        It does not wait: `told` is called when there is news.
        """
        if not wanted:
            return []
        link = self._connected(time.monotonic() + self.patience)
        state = self._following
        if state is None or state.link is not link:
            # A new agent knows nothing: all runs are named again, with how far they were read.
            state = self._following = _Following(link)
        try:
            news = state.collect()
        except LinkLost:
            told()
            return []
        if state.waiters:
            link.check()
        watch = state.changed(wanted)
        if watch or attended != state.attended or not state.waiters:
            drop = [run for run in state.told if run not in wanted]
            state.number += 1
            args = (state.number, watch, drop, attended, HOLD)
            with contextlib.suppress(LinkLost):
                state.waiters.append(link.start("follow", args, told))
                state.told = {run: (want.parts, want.eager) for run, want in wanted.items()}
                state.attended = attended
        return news


class _Following:
    """What the agent of one connection was told to watch."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.told: dict[str, tuple[bool, bool]] = {}
        # A newer request takes the place of one that waits, whose answer may be under way.
        self.waiters: list[Any] = []
        self.attended: bool | None = None
        self.number = 0

    def collect(self) -> list[tuple[str, dict[str, Any]]]:
        """All news that came, in the order in which it was sent."""
        news: list[tuple[str, dict[str, Any]]] = []
        while self.waiters and self.waiters[0].done.is_set():
            news += self.link.result(self.waiters.pop(0))["runs"].items()
        return news

    def changed(self, wanted: Mapping[str, Wanted]) -> dict[str, tuple[Any, bool, bool]]:
        """What the agent does not know yet."""
        watch: dict[str, tuple[Any, bool, bool]] = {}
        for run, want in wanted.items():
            known = self.told.get(run)
            if known is None or want.again:
                watch[run] = (want.seen, want.parts, want.eager)
            elif known != (want.parts, want.eager):
                watch[run] = (None, want.parts, want.eager)
        return watch


def _pause(attempt: int, deadline: float) -> None:
    upper = BACK_OFF[min(attempt, len(BACK_OFF) - 1)]
    wait = upper * random.uniform(0.5, 1.0)
    time.sleep(max(0.0, min(wait, deadline - time.monotonic())))


def _checked(hello: Any) -> dict[str, Any]:
    """What the agent says of itself, once it is clear that it has said that."""
    words = ("base", "scheduler", "host", "user", "home", "executable")
    if not isinstance(hello, dict) or not all(isinstance(hello.get(w), str) for w in words):
        raise errors.ProtocolError(
            f"the agent's greeting cannot be read: {str(hello)[:200]!r}",
            hint="something else than the agent answers there",
        )
    return {"problem": None, "sdk": False, **hello}


def _run(command: list[str]) -> str:
    """What a short command of ssh prints; nothing where it fails, for the next step will tell."""
    try:
        done = starting.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=15,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return str(done.stdout.decode("utf-8", "replace"))


# ---- one per target -----------------------------------------------------------------------------

_backends: dict[tuple[str, bool], SshBackend] = {}
_made: WeakSet[SshBackend] = WeakSet()
_lock = locks.lock("ssh.connections")


def ssh_backend(
    how: SshSettings, base: str, looking: bool = False, trust_group: bool = False
) -> SshBackend:
    """The backend for a host and a base directory; clusters with the same ones share it."""
    backend = SshBackend(how, base, trust_group)
    with _lock:
        return _backends.setdefault((backend.target, looking), backend)


def _forget_after_fork() -> None:
    """Before the child has a second thread: two that find an old connection would both use it."""
    for backend in list(_made):
        backend.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
