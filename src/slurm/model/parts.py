"""How a long map is cut into arrays that the scheduler accepts, and how many go out at once."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """One Slurm array of a map: its elements are 0 to size - 1, its items begin at `offset`."""

    number: int
    offset: int
    size: int


class Cut(NamedTuple):
    """The parts of a map, and how many of them are submitted at once."""

    parts: tuple[Part, ...]
    at_once: int
    why: str


def cut_map(
    count: int,
    *,
    max_array_size: int | None = None,
    max_submitted: int | None = None,
    one_by_one: bool = False,
) -> Cut:
    """Cut `count` items into parts.

    `max_array_size` caps an element's number, so a part has that many elements at most. Where only
    `max_submitted` jobs may be queued, parts are at most half of that, and two go out at once: one
    runs while the next waits. One place is left for the small job that submits what follows.
    `one_by_one` is for maps with a throttle that has to hold over all parts.
    """
    size, why = count, "one array holds all items"
    if max_array_size is not None and size > max_array_size:
        size, why = max_array_size, f"MaxArraySize is {max_array_size}"
    window = count
    if max_submitted is not None and count >= max_submitted:
        window = max(1, max_submitted - 1)
        if size > max(1, window // 2):
            size = max(1, window // 2)
        why = f"at most {max_submitted} jobs may be queued"
    offsets = range(0, count, max(1, size))
    parts = tuple(Part(n, o, min(size, count - o)) for n, o in enumerate(offsets))
    at_once = len(parts) if window >= count else max(1, window // size)
    if one_by_one and len(parts) > 1 and at_once == len(parts):
        why += "; the throttle holds over all parts, so one follows the other"
    return Cut(parts, at_once, why)
