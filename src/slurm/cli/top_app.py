"""The full-screen program behind `slurm top`, made with textual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rich.markup import escape
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import (
    Button,
    DataTable,
    Footer,
    Label,
    RichLog,
    Static,
    TabbedContent,
    TabPane,
)

from slurm.cli.top_rows import JobRow, Look, job_rows, look
from slurm.cluster import Cluster
from slurm.errors import SlurmError
from slurm.model.printable import printable, printable_log
from slurm.model.states import parse_state

_COLOURS = {"pending": "yellow", "active": "dodger_blue1", "finished": "red", "unknown": "grey50"}
_NODES = {"IDLE": "green", "MIXED": "dodger_blue1", "ALLOCATED": "dodger_blue1"}
LOG_LINES = 200


class Ask(ModalScreen[bool]):
    """A question that is answered with yes or no; no is what Enter and Escape mean."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question and two buttons."""
        with Vertical(id="ask"):
            yield Label(printable(self._question), markup=False)
            with Horizontal():
                yield Button("No (n)", id="no", variant="primary")
                yield Button("Yes (y)", id="yes", variant="error")

    def on_mount(self) -> None:
        """Nothing happens by accident."""
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Answer with a key."""
        self.dismiss(answer)


class Top(App[None]):
    """Jobs, arrays, nodes, and the log of the job under the cursor; looked at again and again."""

    TITLE = "slurm top"
    CSS = """
    #bar { height: 1; background: $primary-darken-2; color: $text; padding: 0 1; }
    #tables { height: 2fr; }
    #log { height: 1fr; border-top: solid $primary; padding: 0 1; }
    DataTable { height: 1fr; }
    Ask { align: center middle; }
    #ask { width: 60; height: auto; padding: 1 2; border: thick $error; background: $surface; }
    #ask Horizontal { height: auto; align-horizontal: right; padding-top: 1; }
    #ask Button { margin-left: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("r", "refresh", "Refresh"),
        Binding("c", "cancel", "Cancel job"),
        Binding("e", "toggle_stream", "out/err"),
        Binding("1", "show('jobs')", "Jobs"),
        Binding("2", "show('nodes')", "Nodes"),
    ]

    def __init__(
        self,
        cluster: Cluster,
        interval: float = 10.0,
        acting: Callable[[], Cluster] | None = None,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        #: What cancels: that which looks cannot.
        self._acting = acting or (lambda: cluster)
        self._interval = interval
        self._seen = Look()
        self._unfolded: set[str] = set()
        self._rows: dict[str, JobRow] = {}
        self._jobs: dict[str, Any] = {}
        self._stderr = False
        self._shown_log = ""

    def compose(self) -> ComposeResult:
        """A line, two tables, a log and the keys."""
        yield Static(repr(self._cluster).strip("<>"), id="bar", markup=False)
        with TabbedContent(id="tables", initial="jobs"):
            with TabPane("Jobs", id="jobs"):
                yield DataTable(id="job-table", cursor_type="row", zebra_stripes=True)
            with TabPane("Nodes", id="nodes"):
                yield DataTable(id="node-table", cursor_type="row", zebra_stripes=True)
        yield RichLog(id="log", wrap=False, highlight=False, markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        heads = ("job", "name", "state", "time", "nodes", "reason")
        self.query_one("#job-table", DataTable).add_columns(*heads)
        heads = ("node", "state", "cpus", "memory", "gpus", "reason")
        self.query_one("#node-table", DataTable).add_columns(*heads)
        self.query_one("#job-table").focus()
        self.action_refresh()
        self.set_interval(self._interval, self.action_refresh)
        self.set_interval(2.0, self._read_log)

    # ---- looking: never on the thread that draws ------------------------------------------------

    def action_refresh(self) -> None:
        """Look again now."""
        self._look()

    @work(thread=True, exclusive=True, group="look")
    def _look(self) -> None:
        try:
            seen = look(self._cluster)
        except SlurmError as error:
            seen = Look(self._seen.jobs, self._seen.nodes, error.message)
        self._hand_back(self._show, seen)

    def _read_log(self) -> None:
        if self.is_running:
            self._read_log_of(self._row(), self._stderr)

    @work(thread=True, exclusive=True, group="log")
    def _read_log_of(self, row: JobRow | None, stderr: bool) -> None:
        if row is None or row.is_array:
            text = "Enter unfolds the array; the log of an element is shown here." if row else ""
            self._hand_back(self._show_log, row, "", text)
            return
        stream = "err" if stderr else "out"
        try:
            if row.job_id not in self._jobs:  # found once: it is watched from then on
                self._jobs[row.job_id] = self._cluster.attach(row.job_id)
            job = self._jobs[row.job_id]
            lines = list(job.log_lines(LOG_LINES, stderr=stderr))
            text = "\n".join(lines) or f"(nothing on std{stream} yet)"
        except (SlurmError, AttributeError) as error:
            text = getattr(error, "message", str(error))
        title = f"{row.name} {row.job_id}: std{stream}"
        self._hand_back(self._show_log, row, title, text)

    def _hand_back(self, show: Callable[..., None], *found: object) -> None:
        """Show what another thread found; when the program ends there is nowhere to show it."""

        def drawn() -> None:
            if self.is_running:
                show(*found)

        self.call_from_thread(drawn)

    # ---- showing --------------------------------------------------------------------------------

    def _show(self, seen: Look) -> None:
        self._seen = seen
        counts = f"{len(seen.jobs)} jobs, {len(seen.nodes)} nodes"
        about = f"{repr(self._cluster).strip('<>')} · {seen.trouble or counts}"
        self.query_one("#bar", Static).update(Text(about))
        self._show_jobs()
        table = self.query_one("#node-table", DataTable)
        at = table.cursor_row
        table.clear()
        for node in seen.nodes:
            colour = _NODES.get(node.state.partition("+")[0], "red")
            state = Text(node.state, style=colour)
            cells = (node.name, state, node.cpus, node.memory, node.gpus, node.reason)
            table.add_row(*map(_cell, cells))
        table.move_cursor(row=at)

    def _show_jobs(self) -> None:
        table = self.query_one("#job-table", DataTable)
        before = self._row()
        table.clear()
        self._rows = {}
        for row in job_rows(self._seen.jobs, self._unfolded):
            key = row.job_id + ("*" if row.is_array else "")
            self._rows[key] = row
            mark = ("▾ " if row.job_id in self._unfolded else "▸ ") if row.is_array else ""
            name = f"{'  ' if row.is_element else mark}{row.job_id}"
            cells = (name, row.name, _state(row), row.time, row.nodes, row.reason)
            table.add_row(*map(_cell, cells), key=key)
        keys = list(self._rows)
        at = next((i for i, key in enumerate(keys) if before and self._rows[key] == before), None)
        same = [i for i, key in enumerate(keys) if before and key.rstrip("*") == before.job_id]
        table.move_cursor(row=at if at is not None else (same or [0])[0])
        self._read_log()

    def _show_log(self, row: JobRow | None, title: str, text: str) -> None:
        now = self._row()
        moved = (row and row.job_id) != (now and now.job_id)
        if not moved and (title + text) != self._shown_log:
            self._shown_log = title + text
            log = self.query_one("#log", RichLog)
            log.border_title = escape(printable(title))
            log.clear()
            lines = (printable_log(line, colour=True) for line in text.split("\n"))
            log.write(Text.from_ansi("\n".join(lines)))

    def _row(self) -> JobRow | None:
        table = self.query_one("#job-table", DataTable)
        if not self._rows or not table.is_valid_row_index(table.cursor_row):
            return None
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
        return self._rows.get(str(key))

    # ---- what keys do ---------------------------------------------------------------------------

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The cursor has moved: another log."""
        if event.data_table.id == "job-table":
            self._read_log()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Unfold an array, or fold it."""
        row = self._row()
        if event.data_table.id == "job-table" and row is not None and row.is_array:
            self._unfolded ^= {row.job_id}
            self._show_jobs()

    def action_show(self, tab: str) -> None:
        """Go to a table."""
        self.query_one(TabbedContent).active = tab
        self.query_one("#job-table" if tab == "jobs" else "#node-table").focus()

    def action_toggle_stream(self) -> None:
        """The other log of the job."""
        self._stderr = not self._stderr
        self._read_log()

    def action_cancel(self) -> None:
        """Ask, then cancel the job under the cursor."""
        row = self._row()
        if row is None or self.query_one(TabbedContent).active != "jobs":
            return
        what = f"the whole array {row.job_id}" if row.is_array else f"job {row.job_id}"

        def answered(yes: bool | None) -> None:
            if yes and row is not None:
                self._cancel(row)

        self.push_screen(Ask(f"Cancel {what} ({row.name})?"), answered)

    @work(thread=True)
    def _cancel(self, row: JobRow) -> None:
        try:
            self._acting().attach(row.job_id).cancel()
            self.notify(f"asked to end {row.job_id}")
        except SlurmError as error:
            self.notify(printable(error.message), severity="error", markup=False)
        self._hand_back(self.action_refresh)


def _cell(value: object) -> Text:
    """A cell that shows what others wrote, square brackets and all."""
    return value if isinstance(value, Text) else Text(printable(str(value)))


def _state(row: JobRow) -> Text:
    if row.is_array:
        return Text(row.state)
    state = parse_state(row.state)
    colour = "green" if state.succeeded else _COLOURS.get(state.phase, "")
    return Text(row.state, style=colour)
