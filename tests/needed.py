"""A test whose program is missing fails and names it, with the package: nothing is skipped."""

from __future__ import annotations

import os

import pytest

from slurm import programs


def need(*names: str, root: bool = False) -> None:
    """Fail unless these programs of the table are here, and this is root where it must be."""
    lacking = [programs.named(name) for name in names if programs.find(name) is None]
    if lacking:
        fix = programs.install_command(lacking)
        pytest.fail("\n".join([*programs.said(lacking), f"fix: {fix}"]), pytrace=False)
    if root and os.geteuid() != 0:
        pytest.fail("these tests start daemons and containers: run them as root", pytrace=False)
