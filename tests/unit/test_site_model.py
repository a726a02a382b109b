"""The model of a large site drives the real code: every item is told once, lost nodes or not."""

from __future__ import annotations

from benchmarks.plot import exponent, log_chart
from benchmarks.site_model import Load, Site, run


def test_a_packed_map_on_a_modelled_site_costs_calls_by_time_and_files_by_nodes() -> None:
    cost = run(Site(nodes=100), Load(2_000, seconds=5.0))
    assert cost.submit_calls == 1
    assert cost.status_calls <= 5 + cost.makespan / 10
    assert cost.files == 2 * cost.jobs
    assert cost.twice == 0


def test_items_of_lost_nodes_run_on_others_and_none_that_was_recorded_runs_again() -> None:
    cost = run(Site(nodes=50, mtbf=200.0, node_timeout=20.0), Load(2_000, seconds=5.0))
    assert cost.failures > 0
    assert cost.twice == 0


def test_a_slow_file_system_is_looked_at_a_fifth_of_the_time_at_most() -> None:
    cost = run(Site(nodes=100, file_latency=0.02), Load(2_000, seconds=5.0))
    assert cost.opens * 0.02 < cost.makespan / 4


def test_a_chart_has_every_line_and_tells_how_it_grows() -> None:
    points = [(10.0, 1.0), (100.0, 10.0), (1000.0, 100.0)]
    drawn = log_chart("growth <of> it", "items", "seconds", {"ours": points})
    assert "growth &lt;of&gt; it" in drawn and drawn.count("<polyline") == 1
    assert round(exponent(points), 6) == 1.0
