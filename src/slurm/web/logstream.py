"""A job's log as it grows: its end first, then each new piece while somebody looks."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from slurm.errors import SlurmError
from slurm.model.printable import printable
from slurm.model.states import parse_state
from slurm.web.details import Detail, detail, read_log
from slurm.web.logfiles import MOST, Piece
from slurm.web.sessions import Session, refusal
from slurm.web.site import Site

#: Bytes of the end that are shown first, and seconds between two looks.
TAIL, PAUSE = 64 << 10, 1.0
#: Looks that find nothing new after the job's end, before the stream ends.
QUIET = 4
# Colours and cursor movements of terminals.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def plain(words: str) -> str:
    """Text without a terminal's commands, in which each character is seen as itself."""
    lines = _ESCAPES.sub("", words).replace("\r\n", "\n").split("\r")
    return "\r".join(map(printable, lines))  # the page itself draws progress bars


async def log_events(
    site: Site, session: Session, job_id: str, stream: str
) -> AsyncIterator[tuple[str, Any]]:
    """`text` with what is new, `refused` with a reason, `end` when nothing more will come."""
    offset, quiet = -TAIL, 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while quiet < QUIET:
        try:
            found, piece = await asyncio.to_thread(
                partial(_read, site, session, job_id, stream, offset)
            )
        except SlurmError as error:
            waits = await asyncio.to_thread(partial(_waits, site, session, job_id))
            yield "refused", {"reason": _not_yet() if waits else refusal(error)}
            await asyncio.sleep(PAUSE * 3)
            quiet += 0 if waits else 1
            continue
        begins = offset < 0 or piece.start != offset
        offset = piece.start + len(piece.data)
        if piece.data or begins:
            if begins:
                decoder.reset()
            text = plain(decoder.decode(piece.data))
            yield "text", {"text": text, "anew": begins, "cut": begins and piece.start > 0}
        over = parse_state(found.state).phase == "finished"
        quiet = quiet + 1 if over and not piece.data else 0
        # A long log comes in pieces, one right after the other.
        await asyncio.sleep(0 if len(piece.data) >= MOST else PAUSE)
    yield "end", {}


def _not_yet() -> str:
    return "It has not started, so there is no log yet."


def _read(
    site: Site, session: Session, job_id: str, stream: str, offset: int
) -> tuple[Detail, Piece]:
    scene = site.scene(session)
    found = detail(site, scene, job_id)
    limit = TAIL if offset < 0 else MOST
    read = partial(read_log, site, scene, found, stream, offset, limit)
    # Viewers who have seen the same share one look.
    return found, site.logs.get((job_id, stream, offset, session.user), PAUSE * 0.8, read)


def _waits(site: Site, session: Session, job_id: str) -> bool:
    found = detail(site, site.scene(session), job_id)
    return parse_state(found.state).phase == "pending"
