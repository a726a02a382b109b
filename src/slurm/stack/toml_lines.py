"""Where each key of a TOML text stands: tomllib tells values, and an error needs a line."""

from __future__ import annotations

import re

#: The way to a value: names of keys, and numbers of list items.
Way = tuple[str | int, ...]

_KEY = re.compile(r"""[ \t]*(?:"((?:[^"\\\n]|\\.)*)"|'([^'\n]*)'|([A-Za-z0-9_-]+))[ \t]*""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})|'
    r"'''.*?'''(?:'{0,2})|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'",
    re.DOTALL,
)
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[^,\]}\n#]*")


def key_lines(text: str) -> dict[Way, int]:
    """The line (from 1) of every table, key and list item of a text that tomllib could read."""
    return _Scan(text).lines


class _Scan:
    """One pass over the text; each method leaves `at` behind what it read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counts: dict[Way, int] = {}
        self.lines: dict[Way, int] = {(): 1}
        table: Way = ()
        self._skip()
        while self._at < len(text):
            start = self._at
            if text.startswith("[[", start):
                table = self._header(2)
            elif text.startswith("[", start):
                table = self._header(1)
            else:
                self._pair(table)
            self._skip()
            if self._at == start:
                return  # not TOML after all: what was found so far is still right

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None  # the pattern matches the empty text
        self._at = found.end()

    def _note(self, way: Way) -> None:
        self.lines.setdefault(way, self._text.count("\n", 0, self._at) + 1)

    def _dotted(self) -> tuple[str, ...]:
        parts: list[str] = []
        while found := _KEY.match(self._text, self._at):
            parts.append(next(part for part in found.groups() if part is not None))
            self._at = found.end()
            if not self._text.startswith(".", self._at):
                break
            self._at += 1
        return tuple(parts)

    def _header(self, brackets: int) -> Way:
        begin = self._at
        self._at += brackets
        parts = self._dotted()
        end, self._at = self._at + brackets, begin
        way: Way = ()
        for part in parts[:-1]:
            way = (*way, part)
            self._note(way)
            if way in self._counts:  # a header below [[x]] belongs to the last x
                way = (*way, self._counts[way])
        way = (*way, *parts[-1:])
        self._note(way)
        if brackets == 2:
            self._counts[way] = self._counts.get(way, -1) + 1
            way = (*way, self._counts[way])
            self._note(way)
        self._at = end
        return way

    def _pair(self, table: Way) -> None:
        begin = self._at
        parts = self._dotted()
        end, self._at = self._at, begin
        way = table
        for part in parts:
            way = (*way, part)
            self._note(way)
        self._at = end
        if self._text.startswith("=", self._at):
            self._at += 1
            self._value(way)

    def _value(self, way: Way) -> None:
        self._skip()
        opening = self._text[self._at : self._at + 1]
        if opening in ("[", "{"):
            self._at += 1
            self._items(way, "]" if opening == "[" else "}")
            return
        found = _STRING.match(self._text, self._at) or _BARE.match(self._text, self._at)
        assert found is not None  # the second pattern matches the empty text
        self._at = found.end()

    def _items(self, way: Way, closing: str) -> None:
        number = 0
        self._skip()
        while self._at < len(self._text) and self._text[self._at] != closing:
            start = self._at
            if closing == "]":
                self._note((*way, number))
                self._value((*way, number))
                number += 1
            else:
                self._pair(way)
            self._skip()
            if self._text.startswith(",", self._at):
                self._at += 1
                self._skip()
            if self._at == start:
                return
        self._at += 1
