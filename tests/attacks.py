"""One line for each attack that was tried: what --attacks prints instead of dots."""

from __future__ import annotations

import re
from collections import Counter

import pytest

#: What became of an attack, by the outcome of its test.
_WORDS = {"passed": "refused", "skipped": "NOT TRIED", "failed": "GOT IN"}


def what(item: pytest.Item) -> str:
    """What is tried: the marker's own words, else the test's name as a sentence."""
    marker = item.get_closest_marker("attack")
    if marker is not None and marker.args:
        return str(marker.args[0])
    name = getattr(item, "originalname", None) or item.name
    return re.sub(r" (is|are) refused$", "", re.sub("^test_", "", name).replace("_", " "))


def note(items: list[pytest.Item]) -> None:
    """Write on each test what it tries and in how many ways: reports carry it to who prints."""
    attacks = [item for item in items if item.get_closest_marker("attack")]
    ways = Counter(item.nodeid.partition("[")[0] for item in attacks)
    for item in attacks:
        test = item.nodeid.partition("[")[0]
        item.user_properties.append(("attack", (test, ways[test], what(item))))


class Lines:
    """Prints a line as soon as all ways of an attack were tried."""

    def __init__(self, config: pytest.Config, first: int) -> None:
        self._config = config
        self._number = first
        self._tried: dict[str, list[str]] = {}
        self._seen: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the outcome of a phase of a test: one that fails to begin failed."""
        attack = dict(report.user_properties).get("attack")
        if attack is None:
            return
        if report.outcome != "passed" or report.when == "call":
            self._seen.setdefault(report.nodeid, report.outcome)
            if report.outcome == "failed":
                self._seen[report.nodeid] = "failed"
        if report.when == "teardown":
            test, ways, sentence = attack
            outcomes = self._tried.setdefault(test, [])
            outcomes.append(self._seen.pop(report.nodeid))
            if len(outcomes) == ways:
                self._print(sentence, outcomes)

    def _print(self, sentence: str, outcomes: list[str]) -> None:
        worst = next(word for word in ("failed", "skipped", "passed") if word in outcomes)
        ways = f" ({len(outcomes)} ways)" if len(outcomes) > 1 else ""
        writer = self._config.get_terminal_writer()
        writer.line(f"attack {self._number}: {sentence}{ways} -> {_WORDS[worst]}")
        writer.flush()
        self._number += 1

    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str] | None:
        """No dots between the lines; failures are shown at the end, as always."""
        return (report.outcome, "", "") if report.outcome == "passed" else None
