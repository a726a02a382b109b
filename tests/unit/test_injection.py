"""Hostile text in everything that reaches a script: it arrives unchanged, or is refused; never run.

`setup` and `teardown` are shell by intent. Programs that record their words stand in for srun,
module systems, conda and the runtimes of containers.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurm.errors import OptionError, PackagingError
from slurm.followups import render_guard_script, render_next_script
from slurm.model.option_table import OPTIONS
from slurm.model.options import normalize, sbatch_flags
from slurm.packaging.container import runtimes
from slurm.packaging.container.engines import check_image
from slurm.packaging.container.runtimes import Container, check_mount
from slurm.rendering import Environment, Submission, render_job_script

LIMIT = 60
SHELL = ("setup", "teardown")
PIECES = (
    *(
        "$(touch canary)",
        "`touch canary`",
        "; touch canary;",
        "\ntouch canary\n",
        "&& touch canary",
    ),
    *(
        "'; touch canary; '",
        '"; touch canary; "',
        "| touch canary",
        "& touch canary &",
        "\\",
        "\\\n",
    ),
    *("a[$(touch canary)]", "${x:=$(touch canary)}", "<(touch canary)", "\0", "\r", "\x1b", "\x1f"),
    *("{touch,canary}", "-e", "--help", "-", "*", "~", "!!", "#", "%j", "=", ":", ",", "/", " "),
    *("é", "\u2028", "\udcff", "\U0001f600", "x", "\t", "EOF", "$HOME", "afterok:1", "n[1-2]"),
)
hostile = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
# Few examples, each with all options at once, and the same ones in every run.
few = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_RECORD = '#!/bin/bash\nprintf "%s\\0" "${0##*/}" "$@" >> "$RECORD"\n'


def accepted(name: str, text: str) -> dict[str, object]:
    """The option with this text in each form that it takes; {} where all are refused."""
    for value in (text, [text], {"VALUE": text}, {text: "x"}):
        try:
            return {**normalize({name: value}, where="test")}
        except OptionError:
            continue
    return {}


class Node:
    """A folder with a run and with programs that record how they were called."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.record = top / "record"
        for folder in ("bin", "base/run/submit", "base/run/events", "base/run/logs", "work"):
            (top / folder).mkdir(parents=True)
        for name in ("python", "srun", "module", "podman", "apptainer", "flock"):
            self.program(name, _RECORD)
        # No image is there and none can be had.
        self.program("podman", f'{_RECORD}[ "$1" = run ]\n')
        self.program("conda", f'{_RECORD}echo "{top}/conda"\n')
        (top / "conda/etc/profile.d").mkdir(parents=True)
        (top / "conda/etc/profile.d/conda.sh").write_text(
            'conda() { printf "%s\\0" conda "$@" >> "$RECORD"; }\n'
        )

    def program(self, name: str, text: str) -> None:
        file = self.top / "bin" / name
        file.write_text(text)
        file.chmod(0o700)

    def job(self, options: dict[str, object], **more: Any) -> Submission:
        environment = more.pop("environment", Environment(python=f"{self.top}/bin/python"))
        return Submission(
            run=f"{self.top}/base/run",
            base=f"{self.top}/base",
            name=str(options.get("job_name", "train")),
            sdk=f"{self.top}/sdk",
            workdir=f"{self.top}/work",
            environment=environment,
            options=options,
            **more,
        )

    def run(self, script: str, **variables: str) -> list[str]:
        """Run a script; the words of all programs that it called. Nothing of a text was run."""
        self.record.write_bytes(b"")
        for claim in (self.top / "base/run/submit").glob("*"):
            claim.unlink()
        file = self.top / "script.sh"
        file.write_bytes(script.encode("utf-8", "surrogateescape"))
        env = {"PATH": f"{self.top}/bin:{os.environ['PATH']}", "RECORD": str(self.record)}
        env |= {"SLURM_JOB_ID": "7", "LC_ALL": "C.UTF-8", "TMPDIR": str(self.top), **variables}
        done = subprocess.run(
            ["bash", str(file)],
            env=env,
            cwd=self.top,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
        )
        assert list(self.top.rglob("canary")) == [], done.stderr
        return self.record.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def has(words: list[str], *wanted: str) -> bool:
    """Whether these words stand together in that order."""
    return any(tuple(words[at : at + len(wanted)]) == wanted for at in range(len(words)))


@few
@given(hostile)
@example("$(touch canary)")
@example("`touch canary`")
@example("'; touch canary; '")
@example('"; touch canary; "')
@example("-e")
def test_no_option_of_a_task_runs_anything(node: Node, text: str) -> None:
    options: dict[str, object] = {}
    for spec in OPTIONS:
        if spec.name not in (*SHELL, "python", "workdir", "venv", "cache", "retry", "launch"):
            options |= accepted(spec.name, text)
    options["ntasks"] = 2  # so that srun starts it
    script = render_job_script(node.job(options))
    assert_lines(script, options)
    words = node.run(script)
    for word in options.get("srun_args") or ():  # type: ignore[attr-defined]
        assert word in words
    for name in options.get("modules") or ():  # type: ignore[attr-defined]
        assert has(words, "module", "load", name)
    if "conda" in options:
        assert has(words, "conda", "activate", str(options["conda"]))
    assert words[-2:] == [f"{node.top}/sdk/slurm/runner/__main__.py", f"{node.top}/base/run"]


def assert_lines(script: str, options: dict[str, object]) -> None:
    """Every line for sbatch is one of ours, and says what was given."""
    head = script.partition("\n\n")[0].split("\n")[1:]
    assert all(line.startswith("#SBATCH --") for line in head)
    told = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in head)
    for flag, value in sbatch_flags(options):
        if value is not None and flag not in ("dependency", "signal", "open-mode"):
            assert as_sbatch_reads(told[flag]) == value


def as_sbatch_reads(value: str) -> str:
    """sbatch: an argument ends at white space; inside double quotes a backslash takes the next."""
    if not value.startswith('"'):
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)


@few
@given(hostile, hostile)
@example("$(touch canary)", "x")
@example("x", "$(touch canary)\n`touch canary`")
@example("-e", "-e")
def test_no_variable_runs_anything_and_each_arrives(node: Node, name: str, value: str) -> None:
    with pytest.raises(OptionError):
        normalize({"env": {f"A{name}-": value}}, where="test")
    with pytest.raises(OptionError):
        normalize({"secrets": [f"{name}-"]}, where="test")
    try:
        options = normalize({"env": {"VALUE": value}}, where="test")
    except OptionError:
        return
    node.program("python", '#!/bin/bash\nprintf "%s\\0" "$VALUE" >> "$RECORD"\n')
    assert node.run(render_job_script(node.job(options))) == [value]


@few
@given(hostile)
@example("$(touch canary)")
@example('"; touch canary; "')
@example("-e")
def test_no_path_runs_anything(node: Node, text: str) -> None:
    part = text.replace("/", "").replace("\0", "")[:40] or "x"
    for option in ("venv", "python", "workdir"):
        given_path = accepted(option, f"{node.top}/{part}").get(option)
        if given_path is None:
            assert re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028]", part), part
            continue
        options: dict[str, object] = {option: given_path} if option == "venv" else {}
        more = {"workdir": Path(str(given_path))} if option == "workdir" else {}
        environment = Environment(
            python=str(given_path) if option == "python" else f"{node.top}/bin/python"
        )
        job = node.job(options, environment=environment)
        if more:
            job = Submission(**{**vars(job), "workdir": str(given_path)})
        node.run(render_job_script(job))


@few
@given(hostile, st.sampled_from(["next", "retry"]))
@example("$(touch canary)", "next")
@example("'; touch canary; '", "retry")
def test_the_small_scripts_beside_a_job_run_nothing(node: Node, text: str, which: str) -> None:
    options: dict[str, object] = {}
    for name in ("account", "partition", "qos", "reservation", "wckey", "constraint", "job_name"):
        options |= accepted(name, text)
    job = node.job(options)
    script = render_next_script(job) if which == "next" else render_guard_script(job)
    words = node.run(script)
    assert words[0] == "python" and f"{node.top}/base/run" in words


@pytest.mark.parametrize("runtime", runtimes.RUNTIMES)
@few
@given(hostile)
@example("$(touch canary)")
@example('"; touch canary; "')
@example("'; touch canary; '")
def test_no_word_about_a_container_runs_anything(node: Node, runtime: str, text: str) -> None:
    for image in (f"/images/{text}.sif", text, f"registry.example/app:{text}"):
        if "\0" in text or "\udcff" in text:
            continue
        try:
            wanted = check_image(image)
        except PackagingError:
            continue
        mounts = []
        with contextlib.suppress(PackagingError):
            mounts.append(check_mount(f"/data/{text}:/mnt/{text}:ro"))
        started = runtimes.start(
            Container(
                wanted,
                runtime,
                python=text,
                outside=f"{node.top}/bin/python",
                mounts=tuple(mounts),
                code=(f"/code/{text}",),
                workdir=f"/work/{text}",
                extra=(text,),
            )
        )
        environment = Environment(
            python=text, setup=started.setup, launch=started.launch, srun=started.srun
        )
        words = node.run(
            render_job_script(node.job({}, environment=environment)), SLURM_ARRAY_TASK_ID="0"
        )
        shown = runtimes.enroot_name(wanted) if runtime == "pyxis" else wanted
        assert any(shown in word for word in words) or runtime == "oci", words
        if runtime in ("pyxis", "apptainer"):
            assert text in words


def test_an_image_that_cannot_be_pulled_is_named_as_it_is(node: Node) -> None:
    image = "/images/$(touch canary)\"'.sif"
    started = runtimes.start(Container(image, "podman", outside=f"{node.top}/bin/python"))
    environment = Environment(python="python3", setup=started.setup, launch=started.launch)
    words = node.run(
        render_job_script(node.job({}, environment=environment)), SLURM_ARRAY_TASK_ID="0"
    )
    assert has(words, "podman", "pull", "--quiet", image)
