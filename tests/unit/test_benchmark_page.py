"""The benchmark's page says what was measured: ratios, who was late, where a peer is better."""

from __future__ import annotations

from pathlib import Path

from benchmarks import page, report, summary
from benchmarks.figures import Row, Section
from benchmarks.plot import Dot, dot_chart, line_chart


def answer(question: str, library: str, value: float, size: int = 0, late: bool = False) -> Row:
    return Row(library, (value,), "s", question=question, library=library, size=size, late=late)


def sections() -> list[Section]:
    curve = [
        answer(f"Submission of {size:,} that wait", key, factor * size, size)
        for size in (10, 100, 1000)
        for key, factor in (("ours", 0.001), ("submitit", 0.01))
    ]
    rows = [
        answer("A graph of 1,000 nodes in 10 layers", "ours", 60.0),
        answer("A graph of 1,000 nodes in 10 layers", "dask", 2.0),
        answer("Death noticed: scancel", "ours", 0.5),
        answer("Death noticed: scancel", "dask", 30.0, late=True),
        answer("Only raw has this", "raw", 1.0),
        Row("ours: the submitting call alone", (1.0, 2.0, 3.0), limit=5.0),
    ]
    return [Section("Things", (*rows, *curve), ("a note",))]


def test_a_peer_that_is_ahead_is_named_with_both_figures_and_the_reason() -> None:
    text = page.better_section(sections())
    assert "**A graph of 1,000 nodes in 10 layers**: dask 2 s; ours 60 s." in text
    assert "every node of a graph is a Slurm job" in text
    assert "scancel" not in text


def test_where_no_peer_is_ahead_the_page_says_so() -> None:
    rows = (answer("One job", "ours", 1.0), answer("One job", "submitit", 2.0))
    assert "Nowhere in this run." in page.better_section([Section("One", rows)])


def test_the_glance_has_a_line_for_each_question_and_of_a_curve_the_largest_size() -> None:
    text = page.glance_table(sections())
    assert "Submission of 1,000 that wait" in text and "Submission of 100 that wait" not in text
    assert "| Death noticed: scancel | 500 ms | — | — | > 60 x |" in text
    assert "Only raw has this" not in text


def test_a_curve_tells_its_exponent_and_is_drawn() -> None:
    found = summary.curves(sections())
    assert summary.growth_words(found["Submission of n that wait"]["submitit"]) == "1.00"
    assert "bench-submission-of-that-wait.svg" in page.pictures(sections())


def test_results_that_were_kept_make_the_same_page(tmp_path: Path) -> None:
    kept = report.as_json(sections(), {"measured": "today"})
    assert report.from_json(kept) == sections()
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "bench-old.svg").write_text("of a run before")
    page.write(tmp_path, sections(), {"measured": "today"}, ["Dask, one: has no job"])
    text = (tmp_path / "benchmarks.md").read_text()
    drawn = {path.name for path in (tmp_path / "images").iterdir()}
    assert drawn == {name for name in drawn if f"images/{name}" in text} and len(drawn) == 2
    assert "Dask, one: has no job" in text


def test_figures_are_written_in_the_unit_that_fits() -> None:
    assert report.measure(Row("x", (1234.0,))) == "1.23 s"
    assert report.measure(Row("x", (0.25,), "s")) == "250 ms"
    assert report.measure(Row("x", (2048.0,), "KiB")) == "2 MiB"
    assert report.measure(Row("x", (30.0,), "s", late=True)) == "> 30 s"


def test_a_dot_chart_has_a_mark_for_each_answer() -> None:
    rows = {"one": {"a": Dot(2.0), "b": Dot(0.5)}, "two": {"b": Dot(90.0, at_least=True)}}
    drawn = dot_chart("all <ratios>", ["a", "b"], rows)
    assert drawn.count("→") == 1
    assert "all &lt;ratios&gt;" in drawn
    assert drawn.count("■") == 3 and drawn.count("●") == 2  # with one of each in the legend


def test_a_line_chart_begins_at_zero_and_has_round_ticks() -> None:
    drawn = line_chart("over R", "ms", "ms", {"ours": [(0.0, 12.0), (100.0, 112.0)]})
    assert all(f">{tick}</text>" in drawn for tick in ("0", "20", "100", "150"))
    assert drawn.count("<polyline") == 1
