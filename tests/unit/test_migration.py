"""`slurm migrate`: what a program of slurm-sdk 0.4 becomes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from slurm.cli import build_app
from slurm.errors import UsageError
from slurm.migration import migrate, migrate_checked


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from slurm.decorators import task, workflow", "from slurm import task, workflow"),
        ("from slurm.runtime import JobContext", "from slurm import JobContext"),
        ("from slurm.task import WorkflowTask", "from slurm import Workflow as WorkflowTask"),
        ("from slurm import SlurmTask as T", "from slurm import Task as T"),
        (
            "from slurm.callbacks.rich_logger import RichLoggerCallback",
            "from slurm.callbacks import RichLoggerCallback",
        ),
        (
            'c = Cluster(hostname="h", key_filename="k", default_partition="gpu")',
            'c = Cluster(hostname="h", identity_file="k", partition="gpu")',
        ),
        (
            'c = Cluster(default_packaging="container", default_packaging_dockerfile="D", **more)',
            'c = Cluster(packaging={"type": "container", "dockerfile": "D"}, **more)',
        ),
        (
            '@task(time="1h", packaging_registry="r/", packaging_runtime="podman")\ndef f(): ...',
            '@task(time="1h", packaging={"type": "container", "registry": "r/", '
            '"engine": "podman"})\ndef f(): ...',
        ),
        (
            'kwargs["default_packaging_dockerfile"] = "D"',
            'kwargs.setdefault("packaging", {})["dockerfile"] = "D"',
        ),
        ('c = Cluster.from_env(env="prod")', 'c = Cluster.from_env("prod")'),
        (
            'c = Cluster.from_env("hpc", overrides={"hostname": "h"})',
            'c = Cluster.from_env("hpc", hostname="h")',
        ),
        ("cluster.submit(f, packaging_config=None)(1)", "cluster.submit(f, packaging=None)(1)"),
        ("cluster.submit(f).with_dependencies([g])(1)", "cluster.submit(f)(1)"),
        ("if job.is_completed(): print(job.get_stdout())", "if job.done(): print(job.stdout())"),
        ("ok = job.is_successful()", "ok = job.snapshot().is_successful"),
        ("job.tail()", "job.tail(follow=True)"),
        ("job.tail(follow=False)", "job.tail(follow=False)"),
        ("ctx.get_latest_task_result('a')", "ctx.result('a')"),
        ("cluster.get_queue()", "cluster.queue()"),
    ],
)
def test_a_line_is_rewritten_and_then_stays(before: str, after: str) -> None:
    top = "" if "import" in before else "import slurm\n"
    made = migrate(f"{top}{before}\n")
    assert made.text == f"{top}{after}\n"
    assert migrate(made.text).text == made.text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from slurm.errors import DownloadError", "the function's own exception"),
        ('Cluster(hostname="h", password="x")', "password= is gone"),
        ('Cluster(hostname="h", host_key_policy="auto")', "~/.ssh/config"),
        ("cluster = Cluster.from_args(args)", "$SLURM_ENV"),
        ("print(array.dependencies)", "docs/from-slurm-sdk.md"),
        ("def on_begin_submit_job_ctx(self, ctx): print(ctx.task)", "ctx.task"),
    ],
)
def test_what_needs_a_decision_is_told_with_its_line(line: str, told: str) -> None:
    by_hand = migrate(f"import slurm\n\n{line}\n").by_hand
    assert [number for number, _ in by_hand] == [3]
    assert told in by_hand[0][1]


def test_comments_layout_and_programs_of_others_stay() -> None:
    text = textwrap.dedent(
        """\
        import subprocess  # has methods of these names

        job = subprocess.Popen(["true"])
        print(job.is_running(), job.tail())
        """
    )
    assert migrate(text).text == text
    mine = "from slurm import task  # mine\n\n\n@task( time = '1h' )\ndef f(): ...\n"
    assert migrate(mine).text == mine


def test_the_file_is_changed_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.py"
    file.write_text("from slurm.decorators import task\n")
    app = build_app()
    shown = app(["migrate", str(file)], result_action="return_value", exit_on_error=False)
    assert file.read_text() == "from slurm.decorators import task\n"
    assert "-from slurm.decorators import task\n+from slurm import task\n" in shown.diff
    assert not shown.written
    done = app(["migrate", str(file), "--write"], result_action="return_value")
    assert done.written
    assert file.read_text() == "from slurm import task\n"


def test_text_that_is_no_python_is_refused_with_the_line() -> None:
    with pytest.raises(UsageError, match="line 2") as told:
        migrate_checked("import slurm\ndef (:\n", "old.py")
    assert "old.py" in str(told.value)
