"""Who may look: one-time links that become sessions, and Slurm's own tokens for several users."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm.api.slurm_environ import command_env
from slurm.errors import CommandRefused, SlurmError
from slurm.model.printable import printable
from slurm.web.kept import Bucket

#: Seconds that a link works, and that a session lasts.
LINK_LIFE = 900.0
SESSION_LIFE = 7 * 86400.0
#: More sessions than this end the oldest.
MOST_SESSIONS = 4000
#: The same of one user.
MOST_OF_ONE = 20
#: Requests of one session: at once, and a second.
BURST, RATE = 120.0, 20.0
#: Tokens that one address may try: at once, and a second. Each costs a question to Slurm.
TRIES = (10.0, 0.5)
#: Addresses that are remembered.
MOST_ADDRESSES = 4096
#: Streams of one session, each a page or a log that is open.
STREAMS = 24


#: Of what a token is made: nothing else is handed to a command.
_TOKEN = re.compile(r"[A-Za-z0-9._=-]+\Z")
_USER = re.compile(r"\w[\w.@+$\\-]*\Z")


@dataclass
class Session:
    """One browser that was let in."""

    id: str
    #: Goes with every request that changes something.
    csrf: str
    ends: float
    #: Whose token it is; "" where all is done with the rights of the dashboard's own user.
    user: str = ""
    #: Slurm's token, for the commands that this user asks for; kept in memory only.
    jwt: str = field(default="", repr=False)
    bucket: Bucket = field(default_factory=lambda: Bucket(BURST, RATE), repr=False)
    streams: int = 0


class Sessions:
    """The sessions and the links that lead to new ones; nothing of it is ever written down."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[str, float] = {}
        self._open: dict[str, Session] = {}
        self._tries: OrderedDict[str, Bucket] = OrderedDict()

    def link(self) -> str:
        """A token that lets one browser in, once."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._links[token] = self._clock() + LINK_LIFE
        return token

    def redeem(self, token: str) -> Session | None:
        """The session of a one-time token; None where it is wrong, old or used up."""
        with self._lock:
            given = token.encode("utf-8", "replace")
            same = (t for t in self._links if secrets.compare_digest(t.encode(), given))
            found = next(same, None)
            until = self._links.pop(found) if found is not None else 0.0
        return self.open() if until > self._clock() else None

    def open(self, user: str = "", jwt: str = "", seconds: float = SESSION_LIFE) -> Session:
        """A new session."""
        ends = self._clock() + min(seconds, SESSION_LIFE)
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), ends, user, jwt)
        with self._lock:
            self._open[session.id] = session
            # One user who logs in again and again ends sessions of that user alone.
            own = [one.id for one in self._open.values() if one.user == user]
            for id in own[: -MOST_OF_ONE if user else -MOST_SESSIONS]:
                del self._open[id]
            while len(self._open) > MOST_SESSIONS:
                del self._open[next(iter(self._open))]
        return session

    def find(self, id: str) -> Session | None:
        """The session of a cookie."""
        with self._lock:
            session = self._open.get(id)
            if session is not None and session.ends < self._clock():
                del self._open[id]
                return None
            return session

    def may_try(self, peer: str) -> bool:
        """Whether an address may try one more token now; one that floods harms itself alone."""
        with self._lock:
            bucket = self._tries.setdefault(peer, Bucket(*TRIES, self._clock))
            self._tries.move_to_end(peer)
            while len(self._tries) > MOST_ADDRESSES:
                self._tries.popitem(last=False)
            return bucket.take()

    def close(self, session: Session) -> None:
        """End a session."""
        with self._lock:
            self._open.pop(session.id, None)


def claims(jwt: str) -> Mapping[str, object]:
    """What a token says of itself; believed only once Slurm has accepted it."""
    try:
        part = jwt.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, RecursionError, binascii.Error):
        return {}
    return found if isinstance(found, dict) else {}


def run_as(jwt: str, command: list[str], timeout: float = 30.0) -> tuple[int, str, str]:
    """Run a command of Slurm with a user's token, which stands in its environment alone."""
    env = {**command_env(os.environ), "SLURM_JWT": jwt}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout, env=env
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandRefused(f"{command[0]} did not answer: {error}") from error
    return done.returncode, done.stdout, done.stderr


def user_of(jwt: str) -> tuple[str, float]:
    """The user of a token and the seconds that it is valid for, once Slurm has accepted it."""
    said = claims(jwt)
    user, ends = said.get("sun") or said.get("username"), said.get("exp")
    if (
        not isinstance(user, str)
        or not _USER.match(user)
        or not isinstance(ends, (int, float))
        or not _TOKEN.match(jwt)
    ):
        raise CommandRefused("this is not a token of Slurm", hint="scontrol token prints one")
    code, _, words = run_as(jwt, ["squeue", "-h", "-t", "RUNNING", "-u", user, "-o", "%i"])
    if code != 0:
        lines = [line for line in words.splitlines() if line.strip()]
        raise CommandRefused(
            "Slurm does not accept this token",
            hint="make a new one: scontrol token",
            evidence=lines[-1:],
        )
    return user, max(0.0, ends - time.time())


def refusal(error: SlurmError) -> str:
    """The sentence of an error for a page."""
    fix = f" {error.hint[0].upper()}{error.hint[1:]}." if error.hint else ""
    return printable(f"{error.message}.{fix}")
