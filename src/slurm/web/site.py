"""The site: what all pages share, the collector's last word, what was seen before, and look-ups."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm.api.slurm_site import parse_config, show_config_command
from slurm.errors import SlurmError
from slurm.monitor.collector import Collector, View
from slurm.monitor.events import Event
from slurm.monitor.snapshot import Snapshot
from slurm.monitor.source import rest_of
from slurm.web.groups import Group, grouped
from slurm.web.history import History, past_jobs
from slurm.web.kept import Kept, Shares
from slurm.web.logfiles import Opener
from slurm.web.sessions import Session

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: Look-ups of single jobs and runs, of all viewers together: at once, and a second. In shares.
QUESTIONS = (40.0, 1.0)
#: Rendered pages that are kept for other viewers.
PAGES = 64
#: Seconds until Slurm's settings are asked for once more: when they are known, and before.
ASK_AGAIN, ASK_SOON = 120.0, 5.0


@dataclass(frozen=True)
class Scene:
    """What a page is made of: one moment of the cluster, as one viewer may see it."""

    view: View
    snapshot: Snapshot
    groups: Mapping[str, Group]
    #: Grows with every snapshot.
    version: int
    session: Session

    @property
    def now(self) -> float:
        """The controller's time now, by the time since it told its own."""
        told = self.snapshot.controller.now or self.snapshot.taken
        return told + (self.view.age if self.view.snapshot is not None else 0)

    @property
    def trouble(self) -> str:
        """Why the data are old; "" while all is well."""
        return self.view.health.problem if self.view.health.in_a_row else ""


@dataclass(frozen=True)
class Rules:
    """What the one who started the dashboard allows."""

    read_only: bool = False
    #: Everybody comes with a Slurm token, and is only served what that user may see.
    per_user: bool = False


@dataclass
class Site:
    """The pages' common ground; `start` begins to listen to the collector."""

    collector: Collector
    cluster: Cluster
    opener: Opener
    #: What acts on jobs: `cluster` only looks. None where nobody may.
    acting: Callable[[], Cluster] | None = None
    rules: Rules = field(default_factory=Rules)
    history: History = field(default_factory=History)
    #: Answers of the scheduler and of run directories about one thing.
    answers: Kept = field(default_factory=lambda: Kept(300, Shares(*QUESTIONS)))
    pages: Kept = field(default_factory=lambda: Kept(PAGES))
    logs: Kept = field(default_factory=lambda: Kept(PAGES))
    #: The cluster's name, and what users may not see of each other (`PrivateData`): None until
    #: Slurm has said so, and then it may be anything.
    name: str = ""
    private: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Nothing is known yet."""
        self._groups: dict[str, Group] = {}
        self._version = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._soon = threading.Lock()

    # ---- what the collector tells ---------------------------------------------------------------

    def start(self) -> None:
        """Listen to the collector, and let it begin."""
        self.collector.listen(self._heard)
        threading.Thread(target=self._keep_asking, name="settings", daemon=True).start()
        self.collector.start()

    def _heard(self, snapshot: Snapshot, events: Sequence[Event]) -> None:
        self.history.heard(snapshot, events)
        self._groups = grouped(snapshot.rows.values(), self.history.ended, self._groups)
        self._version += 1
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the server is going down
                self._loop.call_soon_threadsafe(self._wake)

    def _keep_asking(self) -> None:
        """Ask for the settings, now and again: they may change, and the controller may be away."""
        past = True
        while True:
            with contextlib.suppress(SlurmError, ValueError):
                past = self._ask(past)
            time.sleep(ASK_AGAIN if self.private is not None else ASK_SOON)

    def _ask(self, past: bool) -> bool:
        """Ask once; with `past` also for what was before. Whether the past is still wanted."""
        backend = self.cluster.backend
        if backend.kind == "embedded":
            self.name, self.private = "embedded", frozenset()
            return False
        rest = rest_of(backend)
        if rest is not None:
            self.name = rest("cluster_name")
            return False
        question = past_jobs(time.time())
        commands = [show_config_command(), *([question.command] if past else [])]
        told = [text if code == 0 else "" for code, text, _ in backend.look(commands, 60)]
        settings = parse_config(told[0]) if told else {}
        if "ClusterName" not in settings:
            return past
        self.name = settings["ClusterName"]
        words = settings.get("PrivateData", "").lower().split(",")
        self.private = frozenset(word.strip() for word in words)
        if len(told) > 1:
            self.history.add_past(*question.read(told[1]))
        # A cluster without accounting has no past.
        return False

    # ---- what pages see -------------------------------------------------------------------------

    def scene(self, session: Session) -> Scene:
        """The cluster as one viewer may see it; asks nobody."""
        view = self.collector.view()
        snapshot = view.snapshot or Snapshot(time.time())
        groups: Mapping[str, Group] = self._groups
        scene = Scene(view, snapshot, groups, self._version, session)
        return self._own_part(scene) if self.hides("jobs", session) else scene

    def hides(self, what: str, session: Session) -> bool:
        """Whether Slurm keeps something from other users (`PrivateData`), or has not said so."""
        return bool(session.user) and (self.private is None or what in self.private)

    def _own_part(self, scene: Scene) -> Scene:
        user = scene.session.user
        rows = {text: row for text, row in scene.snapshot.rows.items() if row.user == user}
        groups = {base: one for base, one in scene.groups.items() if one.row.user == user}
        return replace(scene, snapshot=replace(scene.snapshot, rows=rows), groups=groups)

    # ---- waking those who watch -----------------------------------------------------------------

    def attach(self) -> None:
        """Remember the loop that the streams run in."""
        self._loop = asyncio.get_running_loop()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def changed(self, seconds: float) -> None:
        """Return when there is a new snapshot, or after a while."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def look_again(self) -> None:
        """Collect once more, soon, after somebody changed something; many wishes are one."""
        if self._soon.acquire(blocking=False):
            threading.Thread(target=self._collect, name="again", daemon=True).start()

    def _collect(self) -> None:
        try:
            time.sleep(0.5)  # the controller takes a moment to act
            self.answers.forget()
            self.collector.collect()
        finally:
            self._soon.release()
