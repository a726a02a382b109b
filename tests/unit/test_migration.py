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


FOREIGN = """
import subprocess
import concurrent.futures
import pandas as pd
import psutil
import redis
from prefect import task as flow_task
from slurm import Cluster, task

table = pd.DataFrame()
print(table.tail())
process = psutil.Process()
print(process.is_running())
job = subprocess.Popen(["true"])
print(job.is_running())
store = redis.Cluster(password="x", retry_delay=3)
connect_kwargs["key_filename"] = "id_rsa"


@flow_task(packaging_format="zip")
def step(): ...


with concurrent.futures.ThreadPoolExecutor() as pool:
    pool.submit(step, remote_workdir="/x", packaging="wheel", password="p")
"""


def test_what_belongs_to_other_packages_is_left_and_what_may_be_ours_is_told() -> None:
    made = migrate(FOREIGN)
    assert made.text == FOREIGN
    told = [what.partition(":")[0] for _, what in made.by_hand]
    assert told == ["table.tail()", "process.is_running()"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = train(1)\nx.tail()", "x = train(1)\nx.tail(follow=True)"),
        ("xs = train.map([1])\nxs[0].tail()", "xs = train.map([1])\nxs[0].tail(follow=True)"),
        ("for x in [train(1)]:\n    x.get_stdout()", "for x in [train(1)]:\n    x.stdout()"),
        (
            "print([x.tail() for x in [train(1)]])",
            "print([x.tail(follow=True) for x in [train(1)]])",
        ),
        (
            "with Cluster() as c:\n    c.submit(train)(1).get_stderr()",
            "with Cluster() as c:\n    c.submit(train)(1).stderr()",
        ),
        ("def show(x: Job[int]): x.tail()", "def show(x: Job[int]): x.tail(follow=True)"),
        ("self.job.tail()", "self.job.tail(follow=True)"),
        ("x = train(1).get_result()\nx.tail()", "x = train(1).get_result()\nx.tail()"),
        ('k["key_filename"] = "f"\nCluster(**k)', 'k["identity_file"] = "f"\nCluster(**k)'),
    ],
)
def test_a_job_is_known_by_where_it_comes_from(before: str, after: str) -> None:
    top = "from slurm import Cluster, task\n@task\ndef train(x): ...\n"
    assert migrate(f"{top}{before}\n").text == f"{top}{after}\n"


HOOK = """
from slurm.logging import configure_logging
from slurm.task import WorkflowTask


class Graph:
    def on_begin_submit_job_ctx(self, ctx):
        if isinstance(ctx.task, WorkflowTask):
            print(ctx.task.func.__name__)


configure_logging()
"""


def test_a_hook_asks_its_context_and_logging_shows_what_it_showed() -> None:
    made = migrate(HOOK)
    assert "if ctx.is_workflow:\n            print(ctx.name)\n" in made.text
    assert made.text.endswith('configure_logging(level="INFO")\n')
    assert made.by_hand == []
    assert migrate(made.text).text == made.text


@pytest.mark.parametrize(
    "line",
    [
        "import slurm.decorators as d",
        "import os, slurm.logging",
        "from slurm.examples.hello_world import hello_world",
        "from slurm.validation import check",
        "from slurm.runner.main import main",
    ],
)
def test_an_import_of_what_is_gone_is_told(line: str) -> None:
    (told,) = migrate(f"{line}\n").by_hand
    assert told[0] == 1 and "is gone" in told[1]


@pytest.mark.parametrize(
    "head", [b"", b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\r\nname = '\xe9'\r\n"]
)
def test_line_ends_and_encoding_stay_and_lines_are_those_of_the_written_file(
    head: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "old.py"
    body = (
        b"from slurm import Cluster\r\nCluster.add_argparse_args(p)\r\n\r\nprint(job.task_func)\r\n"
    )
    file.write_bytes(head + body)
    done = build_app()(["migrate", str(file), "--write"], result_action="return_value")
    after = b"from slurm import Cluster\r\n\r\nprint(job.task_func)\r\n"
    assert file.read_bytes() == head + after
    place, _, _ = done.by_hand[-1].partition(": ")
    assert (
        file.read_bytes().splitlines()[int(place.rpartition(":")[2]) - 1] == b"print(job.task_func)"
    )
