"""Whole programs, as users start them: scripts, `python -c`, modules beside them, bare Pythons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from slurm import Cluster

WAIT = 60


def run(code: str, folder: Path, *, name: str = "script.py") -> str:
    """Run a program in a folder; its standard output."""
    (folder / name).write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, name], cwd=folder, capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_without_a_main_guard_is_not_run_again_by_the_job(tmp_path: Path) -> None:
    out = run(
        """
        from slurm import Cluster, task
        with open("runs.txt", "a") as f: f.write("x")
        OFFSET = 10
        @task
        def add(a, b): return a + b + OFFSET
        @task
        def twice(x): return add.local(x, x)      # a task as a global of another
        class Pair:
            def __init__(self, a): self.a = a
        @task
        def make(a): return Pair(a)
        with Cluster("embedded", job_base_dir="jobs"):
            print(add(1, 2).result(60), twice(5).result(60))
            print(isinstance(make(7).result(60), Pair))
        """,
        tmp_path,
    )
    assert out.split() == ["13", "20", "True"]
    assert (tmp_path / "runs.txt").read_text() == "x"


def test_exceptions_of_a_class_of_the_script_can_be_caught(tmp_path: Path) -> None:
    out = run(
        """
        from slurm import Cluster, task
        class Odd(Exception):
            pass
        @task
        def check(x):
            raise Odd(x)
        with Cluster("embedded", job_base_dir="jobs"):
            try:
                check(3).result(60)
            except Odd as error:
                print("caught", error.args)
        """,
        tmp_path,
    )
    assert out.strip() == "caught (3,)"


def test_modules_beside_the_script_import_in_the_job(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import threading\nfrom slurm import task\nLOCK = threading.Lock()\n"
        "@task\ndef triple(x):\n    with LOCK: return 3 * x\n"
    )
    out = run(
        """
        from slurm import Cluster
        from beside import triple
        with Cluster("embedded", job_base_dir="jobs") as cluster:
            print(cluster.explain(triple)(2).by, triple(2).result(60))
        """,
        tmp_path,
    )
    assert out.split() == ["reference", "6"]


def test_a_slurm_folder_beside_the_script_does_not_shadow_the_sdk_in_the_job(
    tmp_path: Path,
) -> None:
    (tmp_path / "work" / "slurm").mkdir(parents=True)
    (tmp_path / "work" / "slurm" / "__init__.py").write_text("raise SystemExit('shadowed')")
    out = run(
        """
        from slurm import Cluster, task
        @task(workdir="work")
        def here():
            import os, slurm
            return os.path.basename(os.getcwd()), slurm.__version__
        with Cluster("embedded", job_base_dir="jobs"):
            print(*here().result(60))
        """,
        tmp_path,
    )
    assert out.startswith("work 1.")


def test_a_task_runs_on_a_python_with_nothing_installed(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = bare / "bin" / "python"
    probe = subprocess.run([python, "-c", "import cloudpickle"], capture_output=True)
    assert probe.returncode != 0, "the bare Python is not bare"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "named.py").write_text(
        "from slurm import JobContext, task\n@task\n"
        "def who(ctx: JobContext):\n    import sys; return sys.prefix, ctx.rank\n"
    )
    out = run(
        f"""
        import sys
        from slurm import Cluster, task
        sys.path.insert(0, "lib")
        from named import who
        @task
        def value(): import sys; return sys.prefix
        with Cluster("embedded", job_base_dir="jobs", python={str(python)!r}):
            print(value().result(60), who().result(60))
        """,
        tmp_path,
    )
    assert out.strip() == f"{bare} ('{bare}', 0)"


def test_code_given_on_the_command_line_works(tmp_path: Path) -> None:
    code = (
        "from slurm import Cluster\n"
        "with Cluster('embedded', job_base_dir='jobs') as c: "
        "print(c.submit(lambda x: x * 2)(21).result(60))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT
    )
    assert done.stdout.strip() == "42", done.stderr


def test_a_killed_client_loses_nothing(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(
        "import time\nfrom slurm import Cluster, task\n"
        "@task\ndef slow(x):\n    import time; time.sleep(1); return x * 2\n"
        "with Cluster('embedded', job_base_dir='jobs'):\n"
        "    job = slow(21); print(job.run, flush=True); job.result()\n"
    )
    client = subprocess.Popen(
        [sys.executable, script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    name = client.stdout.readline().strip()
    client.send_signal(signal.SIGKILL)
    client.wait()
    job = Cluster("embedded", job_base_dir=tmp_path / "jobs").attach(name)
    assert job.result(WAIT) == 42


def test_control_c_leaves_the_job_running(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(
        "from slurm import Cluster, task\n"
        "@task\ndef slow():\n    import time; time.sleep(1.5); return 'survived'\n"
        "with Cluster('embedded', job_base_dir='jobs'):\n"
        "    job = slow(); print(job.run, flush=True); job.result()\n"
    )
    client = subprocess.Popen(
        [sys.executable, script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background were started with the interrupt ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert client.stdout is not None
    name = client.stdout.readline().strip()
    os.killpg(client.pid, signal.SIGINT)
    _, errors = client.communicate(timeout=WAIT)
    assert "KeyboardInterrupt" in errors
    job = Cluster("embedded", job_base_dir=tmp_path / "jobs").attach(name)
    assert job.result(WAIT) == "survived"


def test_a_run_can_be_run_again_by_hand(tmp_path: Path) -> None:
    with Cluster("embedded", job_base_dir=tmp_path / "jobs") as cluster:
        job = cluster.submit(lambda: print("by hand"))()
        job.result(WAIT)
    done = subprocess.run(
        [sys.executable, "-m", "slurm.runner", job.path], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "by hand\n"), done.stderr


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        ("import sys; sys.exit(0)", "FunctionExited", "sys.exit(0)"),
        ("import sys; sys.exit(3)", "FunctionExited", "sys.exit(3)"),
        ("import sys; sys.exit('words')", "FunctionExited", "words"),
        ("raise KeyboardInterrupt", "FunctionExited", "KeyboardInterrupt"),
        ("import os; os._exit(0)", "FunctionExited", "exit code 0"),
        ("import os; os._exit(7)", "JobFailed", "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "JobFailed", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "JobFailed", "SIGSEGV"),
        ("return (i for i in [])", "UnpicklableResult", "generator"),
        ("raise Twisted(1)", "RemoteError", "Twisted"),
    ],
)
def test_each_way_to_end_without_a_value_has_its_error(
    tmp_path: Path, body: str, error: str, text: str
) -> None:
    out = run(
        f"""
        import slurm
        import threading
        from slurm import Cluster, task
        class Twisted(Exception):
            def __init__(self, a): super().__init__(threading.Lock())
        @task
        def end():
            {body}
        with Cluster("embedded", job_base_dir="jobs"):
            try:
                end().result(60)
            except slurm.SlurmError as error:
                print(type(error).__name__)
                print(error)
        """,
        tmp_path,
    )
    assert out.splitlines()[0] == error
    assert text in out


def test_many_megabytes_of_output_are_no_trouble(tmp_path: Path) -> None:
    out = run(
        """
        from slurm import Cluster, task
        @task
        def shout():
            for _ in range(300): print("x" * 100_000)
            return "done"
        with Cluster("embedded", job_base_dir="jobs"):
            job = shout()
            print(job.result(60), len(job.stdout()), len(list(job.log_lines(5))))
        """,
        tmp_path,
    )
    assert out.split() == ["done", str(300 * 100_001), "5"]


def test_a_killed_job_shows_the_users_words_and_not_our_script(tmp_path: Path) -> None:
    out = run(
        """
        import os
        from slurm import Cluster, task
        @task
        def crash():
            print("allocating the big array", flush=True)
            os.kill(os.getpid(), 9)
        with Cluster("embedded", job_base_dir="jobs"):
            print(crash().exception(60))
        """,
        tmp_path,
    )
    assert "| allocating the big array" in out
    assert "trap" not in out
