"""Text that others wrote, made fit to be shown: no character of it moves, hides or turns others."""

import re

# C0 but tab and line feed, C1, marks of direction, and the ends of lines that are none here.
_TRICKS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
_COLOURS = re.compile("(\x1b\\[[0-9;]*m)")


def printable(text: str, instead: str = "\ufffd") -> str:
    """The text with a mark in the place of each character that would not be seen as itself."""
    return _TRICKS.sub(instead, text)


def escaped(json: str) -> str:
    """JSON whose strings hold no character that a terminal obeys; it means the same."""
    # Outside of strings JSON has no character of these but line feeds and tabs.
    return _TRICKS.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


def printable_log(line: str, colour: bool, instead: str = "\ufffd") -> str:
    """A line of a log, with its colours if wanted; of a line that was drawn again, the last."""
    parts = _COLOURS.split(line.rstrip("\r").rpartition("\r")[2])
    words = [printable(part, instead) for part in parts[::2]]
    if not colour or len(parts) == 1:
        return "".join(words)
    painted = [word + paint for word, paint in zip(words, [*parts[1::2], "\x1b[0m"], strict=True)]
    return "".join(painted)
