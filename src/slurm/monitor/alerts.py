"""The alert rules for Prometheus that we ship; tests/monitor tries each with promtool."""

from __future__ import annotations

from pathlib import Path

#: The name of the file where Prometheus looks for rules.
FILE_NAME = "slurm-alerts.yml"


def alert_rules() -> str:
    """The text of the rules file."""
    return (Path(__file__).parent / "files" / FILE_NAME).read_text(encoding="utf-8")
