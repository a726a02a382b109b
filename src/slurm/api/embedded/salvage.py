"""What can still be read of a damaged queue: the file is set aside, its readable rows are kept."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable

from slurm.api.embedded import host

Row = tuple[object, ...]

#: The tables of a queue, in the order in which they are filled again.
_TABLES = ("counters", "facts", "batches", "jobs")


def is_damaged(db: sqlite3.Connection) -> bool:
    """Whether some page of the file is not what SQLite wrote."""
    try:
        return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.OperationalError:
        raise  # locked, no room, no permission: nothing is wrong with the file
    except sqlite3.DatabaseError:
        return True


def set_aside(path: str) -> str:
    """Move the queue out of the way, with what belongs to it; its new name."""
    aside = f"{path}.{time.time_ns() // 1_000_000}.damaged"
    os.replace(path, aside)
    for ending in ("-wal", "-shm"):
        if os.path.exists(path + ending):
            os.replace(path + ending, aside + ending)
    return aside


def refill(db: sqlite3.Connection, aside: str) -> None:
    """Copy what can be read of the damaged queue into a new one."""
    kept = {}
    for table in _TABLES:
        rows = _readable(aside, table)
        with contextlib.suppress(sqlite3.DatabaseError):  # a row of another form is no row of ours
            kept[table] = _insert(db, table, rows)
    # A job is nothing without its submission, and a submission without jobs never ends.
    db.execute("DELETE FROM jobs WHERE batch NOT IN (SELECT id FROM batches)")
    db.execute("DELETE FROM batches WHERE id NOT IN (SELECT batch FROM jobs)")
    if not kept.get("counters") or not kept.get("facts"):
        # Nobody can say which ids were given: the new queue is another one, and says so.
        db.execute("DELETE FROM facts")
    db.execute(
        "INSERT INTO counters SELECT 'job', COALESCE(MAX(id), 0) FROM "
        "(SELECT id FROM jobs UNION ALL SELECT id FROM batches) WHERE true "
        "ON CONFLICT (name) DO UPDATE SET value = MAX(value, excluded.value)"
    )
    found = db.execute("SELECT COUNT(*) FROM jobs").fetchone()[0]
    host.note(f"the queue was damaged: {found} jobs of it could be read; the file is {aside}")


def _insert(db: sqlite3.Connection, table: str, rows: Iterable[Row]) -> int:
    count = 0
    for row in rows:
        marks = ",".join("?" * len(row))
        with contextlib.suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
            db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)
            count += 1
    return count


def _readable(path: str, table: str) -> list[Row]:
    """The rows up to the first damage from the front, and from the back."""
    found: dict[Row, None] = {}
    for order in ("ASC", "DESC"):
        _collect(
            path, f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid {order}", found.setdefault
        )
    return list(found)


def _collect(path: str, query: str, take: Callable[[Row], object]) -> None:
    with contextlib.suppress(sqlite3.DatabaseError, UnicodeDecodeError):
        db = sqlite3.connect(path, isolation_level=None, timeout=10)
        try:
            for row in db.execute(query):
                take(row)
        finally:
            db.close()
