"""The SQLite queue: what the scheduler must know again after it was killed."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm.api.embedded import host, salvage

KEEP_FINISHED_S = 7 * 86400
_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, options TEXT NOT NULL, script_name TEXT NOT NULL,
    cwd TEXT NOT NULL, work_dir TEXT NOT NULL, name TEXT NOT NULL, umask INTEGER NOT NULL,
    submit INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, idx INTEGER, state TEXT NOT NULL,
    reason TEXT NOT NULL, exit_code INTEGER, signal INTEGER, start INTEGER, end INTEGER,
    restarts INTEGER NOT NULL, held INTEGER NOT NULL, ending TEXT NOT NULL, node TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_of_batch ON jobs (batch, idx);
CREATE INDEX IF NOT EXISTS jobs_by_end ON jobs (end);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_VERSION = 1
_JOB_COLUMNS = (
    "id, batch, idx, state, reason, exit_code, signal, start, end, restarts, held, ending, node"
)


@dataclass(frozen=True)
class Batch:
    """One submission: a single job or an array."""

    id: int
    key: str
    options: dict[str, str]
    script_name: str
    cwd: str
    work_dir: str
    name: str
    umask: int
    submit: int


@dataclass
class Job:
    """One job or array element, as it stands now."""

    id: int
    batch: int
    index: int | None
    state: str = "PENDING"
    reason: str = "None"
    exit_code: int | None = None
    signal: int | None = None
    start: int | None = None
    end: int | None = None
    restarts: int = 0
    held: bool = False
    ending: str = ""  # the state it is being brought to: CANCELLED, TIMEOUT or REQUEUED
    node: str = ""
    # Known only while the scheduler lives; found again from the run file.
    pid: int | None = field(default=None, compare=False)
    devices: tuple[int, ...] = field(default=(), compare=False)
    waiting: int = field(default=0, compare=False)  # processes of it that only wait for others
    lent: int = field(default=0, compare=False)  # its CPUs that others may have meanwhile

    @property
    def run(self) -> str:
        """The name of the present attempt's files."""
        return f"{self.id}.{self.restarts}"


class Queue:
    """Batches and jobs on disk. Changes are kept together until `commit`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._db = _open(path)
        self._changed: dict[int, Job] = {}
        self._writing = False
        #: Which queue this is: one that is made after another was lost gives the same ids again.
        self.instance = self._instance()

    def _instance(self) -> str:
        self._db.execute(
            "INSERT OR IGNORE INTO facts VALUES ('instance', ?)", (os.urandom(8).hex(),)
        )
        found = self._db.execute("SELECT value FROM facts WHERE name = 'instance'").fetchone()
        return str(found[0])

    def close(self) -> None:
        """Write what is left and close the file."""
        self.try_commit()
        self._db.close()

    def reserve_ids(self, count: int) -> int:
        """The first of `count` new job ids, never given twice."""
        self._begin()
        self._db.execute(
            "INSERT INTO counters VALUES ('job', ?) ON CONFLICT (name) "
            "DO UPDATE SET value = value + excluded.value",
            (count,),
        )
        row = self._db.execute("SELECT value FROM counters WHERE name = 'job'").fetchone()
        return int(row[0]) - count + 1

    def add(self, batch: Batch, jobs: Iterable[Job]) -> None:
        """Take a new submission."""
        self._begin()
        self._db.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                batch.id, batch.key, json.dumps(batch.options), batch.script_name, batch.cwd,
                batch.work_dir, batch.name, batch.umask, batch.submit,
            ),
        )  # fmt: skip
        self._write(jobs)

    def changed(self, job: Job) -> None:
        """Remember to write this job at the next commit."""
        self._changed[job.id] = job

    def commit(self) -> None:
        """Write all that changed, in one transaction; what fails stays to be written."""
        if self._changed:
            self._begin()
            self._write(self._changed.values())
        if self._writing:
            self._db.execute("COMMIT")
            self._writing = False
        self._changed.clear()

    def try_commit(self) -> bool:
        """Commit; False, with a line in the log, if the disk does not let us."""
        try:
            self.commit()
        except sqlite3.Error as error:
            host.note(f"the queue cannot be written: {error}")
            self.rollback()
            if type(error) is sqlite3.DatabaseError:
                raise  # the file is damaged: the next scheduler begins with what can be read of it
            return False
        return True

    def rollback(self) -> None:
        """Forget a submission that could not be completed; changed jobs stay to be written."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._writing = False

    def batch_with_key(self, key: str) -> int | None:
        """The id that a submission with this key got before."""
        row = self._db.execute("SELECT id FROM batches WHERE key = ?", (key,)).fetchone()
        return None if row is None else int(row[0])

    def batches(self, ids: Sequence[int]) -> Iterator[Batch]:
        """The batches with these ids."""
        for row in self._select("SELECT * FROM batches WHERE id IN", ids):
            try:
                options = json.loads(row[2])
            except ValueError:
                host.note(f"what job {row[0]} asked for cannot be read any more")
                continue
            yield Batch(row[0], row[1], options, *row[3:])

    def unfinished(self) -> list[Job]:
        """All jobs without an end."""
        rows = self._db.execute(f"SELECT {_JOB_COLUMNS} FROM jobs WHERE end IS NULL ORDER BY id")
        return [_job(row) for row in rows]

    def jobs_of(self, batch_ids: Sequence[int]) -> list[Job]:
        """All jobs of these batches, as last committed."""
        query = f"SELECT {_JOB_COLUMNS} FROM jobs WHERE batch IN"
        return [_job(row) for row in self._select(query, batch_ids)]

    def jobs(self, ids: Sequence[int]) -> list[Job]:
        """The jobs with these own ids, as last committed."""
        return [
            _job(row) for row in self._select(f"SELECT {_JOB_COLUMNS} FROM jobs WHERE id IN", ids)
        ]

    def ended_since(self, when: float) -> list[int]:
        """The batches of which a job ended since then."""
        rows = self._db.execute("SELECT DISTINCT batch FROM jobs WHERE end >= ?", (int(when),))
        return [int(row[0]) for row in rows]

    def prune(self, now: float) -> None:
        """Forget jobs that ended long ago."""
        self._begin()
        self._db.execute("DELETE FROM jobs WHERE end < ?", (int(now) - KEEP_FINISHED_S,))
        self._db.execute("DELETE FROM batches WHERE id NOT IN (SELECT batch FROM jobs)")
        self.try_commit()

    def _select(self, query: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for first in range(0, len(ids), 500):
            part = ids[first : first + 500]
            marks = ",".join("?" * len(part))
            yield from self._db.execute(f"{query} ({marks}) ORDER BY id", part)

    def _write(self, jobs: Iterable[Job]) -> None:
        self._db.executemany(
            f"INSERT OR REPLACE INTO jobs ({_JOB_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
            [
                (
                    job.id, job.batch, job.index, job.state, job.reason, job.exit_code, job.signal,
                    job.start, job.end, job.restarts, job.held, job.ending, job.node,
                )
                for job in jobs
            ],
        )  # fmt: skip

    def _begin(self) -> None:
        if not self._writing:
            self._db.execute("BEGIN IMMEDIATE")
            self._writing = True


def _job(row: tuple[Any, ...]) -> Job:
    job = Job(*row)
    job.held = bool(job.held)
    return job


def _text(data: bytes) -> str:
    """A text of the file, also where a disk has changed it."""
    return data.decode("utf-8", "replace")


def _open(path: str) -> sqlite3.Connection:
    """Open the queue; a damaged or unknown one is set aside, for jobs must be able to run."""
    try:
        db = _connect(path)
    except sqlite3.OperationalError:
        raise  # locked, no room, no permission: nothing is wrong with the file
    except sqlite3.DatabaseError:
        pass
    else:
        if not salvage.is_damaged(db):
            return db
        db.close()
    aside = salvage.set_aside(path)
    db = _connect(path)
    db.execute("BEGIN IMMEDIATE")
    salvage.refill(db, aside)
    db.execute("COMMIT")
    return db


def _connect(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    db.text_factory = _text
    try:
        # Nobody else opens it; shared memory in a file would mean SIGBUS on a full disk.
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        # WAL with NORMAL: a killed scheduler loses nothing; only a power cut can, with the jobs.
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"queue of version {version}")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version={_VERSION}")
    except BaseException:  # raised again
        db.close()
        raise
    return db
