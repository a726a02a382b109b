"""`slurm top`: jobs, arrays, nodes and logs on the whole screen."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from slurm.cli.ended import Ended
from slurm.cli.frame import COMMON, Common, within
from slurm.errors import OptionError, UsageError
from slurm.extras import needs_extra
from slurm.inside import terminal


def top(
    *,
    interval: Annotated[
        float,
        Parameter(help="Seconds between two looks at the queue.", validator=within(0.1, 10**6)),
    ] = 10.0,
    common: Common = COMMON,
) -> Ended:
    """Show jobs, arrays, nodes and logs on the whole screen, and cancel jobs there.

    Needs the extra `tui`. Keys are shown at the bottom; cancelling asks first.
    """
    if interval < 2:
        raise OptionError(
            f"--interval {interval:g} is too short: the scheduler serves everybody",
            hint="2 seconds or more",
        )
    with needs_extra("tui", "slurm top", "slurm queue and slurm nodes work without it"):
        from slurm.cli.top_app import Top
    if not terminal():
        raise UsageError("slurm top needs a terminal", hint="slurm queue --json is for programs")
    Top(common.look(), interval, common.connect).run()
    return Ended()
