"""The exporter on a real, loaded Slurm: it serves what Slurm says, and what is documented."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import Prometheus, Served, commands_follow_collections, exporting, until
from slurm.monitor.dashboards import DASHBOARDS, dashboard_files
from slurm.monitor.families import FAMILIES, TOPICS

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

pytestmark = pytest.mark.xdist_group("monitor")

QUERIES = [
    pytest.param(query.expr, id=f"{dashboard.uid}: {panel.title} {n}")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for n, query in enumerate(panel.queries)
]


def _filled_in(expr: str) -> str:
    """A panel's query as Grafana sends it."""
    for name, value in (("$cluster", ".*"), ("$partition", ".*"), ("$__rate_interval", "1m")):
        expr = expr.replace(name, value)
    return expr


def test_every_panel_of_every_dashboard_has_data(prometheus: Prometheus) -> None:
    empty = []
    for case in QUERIES:
        found = prometheus.query(_filled_in(str(case.values[0])))
        if not any(not math.isnan(float(row["value"][1])) for row in found):
            empty.append((case.id, found))
    assert not empty


def test_numbers_are_those_of_slurm(served: Served) -> None:
    assert served.value('slurm_sdk_jobs{state="running",partition="main"}') == 1
    # The waiting array of a thousand is one row, and a thousand jobs.
    assert served.value('slurm_sdk_jobs_pending{reason="BeginTime",partition="main"}') == 1000
    assert served.value('slurm_sdk_jobs_pending{reason="JobHeldUser",partition="main"}') == 1
    assert served.value('slurm_sdk_jobs_gpus{state="running",partition="main"}') == 1
    assert served.value('slurm_sdk_node_memory_bytes{node="n1",kind="total"}') == 4000 << 20
    gpus = 'slurm_sdk_partition_gres{partition="main",name="gpu",type="a100",kind='
    assert served.value(gpus + '"total"}') == 8
    assert served.value(gpus + '"allocated"}') == 1
    assert served.value('slurm_sdk_license{license="matlab",kind="used"}') == 2
    assert served.value('slurm_sdk_nodes_flag{flag="drain"}') == 1
    assert served.value("slurm_sdk_nodes_usable") == 3
    # Names are no labels, and none of them makes a row or spoils one.
    assert served.value('slurm_sdk_unreadable_rows{command="squeue"}') == 0
    reason = r'slurm_sdk_node_reason_info{node="n4",reason="a \"bad\" disk\\"}'
    assert served.value(reason) == 1


def test_both_formats_are_read_by_promtool(served: Served) -> None:
    plain = served.scrape("text/plain")
    # promtool speaks the older format; it also finds names and units that are bad style.
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=plain, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    newer = served.scrape()
    assert newer.endswith("# EOF\n")
    assert "# EOF" not in plain


def test_all_that_is_served_is_documented_and_all_documented_is_served(served: Served) -> None:
    with exporting("--per-job", "5") as one:
        until("snapshot", lambda: one.value("slurm_sdk_up") == 1)
        # A young controller has no mean before the first cycle of its scheduler.
        until("a cycle", lambda: one.value("slurm_sdk_scheduler_main_mean_depth") is not None)
        text = one.scrape()
    names = set(re.findall(r"^# TYPE slurm_sdk_(\S+) ", text, re.MULTILINE))
    docs = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `slurm_sdk_(\w+?)(?:_total)?`", docs, re.MULTILINE))
    assert names - documented == set()
    # Backfill has a mean only after its first cycle.
    assert documented - names - {"scheduler_backfill_mean_cycle_seconds"} == set()
    assert documented == set(FAMILIES)
    assert text.count("job_cpus{job_id=") <= 5
    assert all(topic.title in docs for topic in TOPICS)


def test_two_hundred_scrapes_cost_slurm_no_command(served: Served) -> None:
    begin = served.value("slurm_sdk_collections_total") or 0
    texts: list[str] = []

    def scrape() -> None:
        for _ in range(50):
            texts.append(served.scrape())

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(texts) == 200
    # However many scrapes there were.
    assert commands_follow_collections(served)
    assert (served.value("slurm_sdk_collections_total") or 0) - begin < 100


def test_the_exporter_needs_nothing_but_python(watched_cluster: RunningCluster) -> None:
    # -S: no package that was installed can be found, as in a container with a bare Python.
    source = str(Path(__file__).parents[2] / "src")
    code = f"import sys, runpy; sys.path.insert(0, {source!r}); sys.argv[0] = 'monitor'; "
    code += "runpy.run_module('slurm.monitor', run_name='__main__')"
    with exporting(command=(sys.executable, "-S", "-I", "-c", code, "serve")) as one:
        until("snapshot", lambda: one.value("slurm_sdk_up") == 1)


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "slurm.cli", "monitor", "rules", str(tmp_path)]
    subprocess.run(words, check=True, timeout=60, stdout=subprocess.DEVNULL)
    cases = Path(__file__).parent / "alerts_test.yml"
    (tmp_path / cases.name).write_text(cases.read_text())
    done = subprocess.run(
        ["promtool", "test", "rules", cases.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rules = re.findall(r"- alert: (\w+)", (tmp_path / "slurm-alerts.yml").read_text())
    assert set(rules) == set(re.findall(r"alertname: (\w+)", cases.read_text()))


def test_dashboards_are_written_as_grafana_reads_them(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "slurm.cli", "monitor", "dashboards", str(tmp_path)]
    subprocess.run(words, check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert {path.name for path in tmp_path.iterdir()} == set(dashboard_files())
    for path in tmp_path.iterdir():
        panels = json.loads(path.read_text())["panels"]
        cells = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells)), f"panels of {path.name} overlap"
