"""Unseen: something that a call can read and that has no content we could compare."""

from __future__ import annotations


class Unseen(Exception):
    """What cannot be seen, and where it was found."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where

    def within(self, place: str) -> None:
        """Say in what it was found: called on the way out, from the inside to the outside."""
        self.where = f"{place}{self.where}"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what
