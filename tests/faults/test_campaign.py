"""Small workloads with random faults: each item has one outcome, runs once, and nothing is left."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from breaking import BreakableSlurm
from campaign_plan import draw
from campaign_rules import executions, violations
from campaign_run import Trial

RUNS = int(os.environ.get("CAMPAIGN_RUNS", "200"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "1"))
#: Seeds that failed once: they run first.
KEPT = [
    int(line.split()[0])
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]
SEEDS = list(dict.fromkeys([*(KEPT if RUNS > 1 else []), *range(SEED, SEED + RUNS)]))


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_item_has_one_outcome_whatever_breaks(
    slurm: BreakableSlurm, seed: int, record_property: Callable[[str, object], None]
) -> None:
    plan = draw(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-", dir="/tmp") as place:
        trial = Trial(plan, slurm, Path(place))
        seen = trial.run()
    print(*seen.said, *seen.marks, *seen.judged, seen.client_error, sep="\n")  # if it fails
    wrong = violations(plan, seen)
    if wrong:
        print(*trial.daemons_said(), sep="\n")
    kinds = Counter(text.partition(" ")[0] for text in seen.outcomes.values())
    refused = Counter(row["refused"] for row in seen.said if "refused" in row)
    record_property(
        "campaign",
        {
            "seed": seed,
            "plan": str(plan),
            "hit": trial.hit,
            "missed": len(plan.faults) - len(trial.hit),
            "outcomes": dict(kinds),
            "refused": dict(refused),
            "open": sum(row.get("told") == "open" for row in seen.said),
            "ghosts": trial.after.ghosts,
            "executions": len(executions(seen.marks)),
            "seconds": round(time.monotonic() - began, 1),
            "wrong": wrong,
        },
    )
    repeat = f"repeat it: make faults CAMPAIGN_SEED={seed} CAMPAIGN_RUNS=1"
    assert not wrong, "\n".join([f"seed {seed}: {plan}", *wrong, repeat])
