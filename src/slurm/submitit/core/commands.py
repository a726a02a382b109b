"""CommandFunction: a program as a function that can be submitted."""

from __future__ import annotations

import codecs
import io
import os
import sys

from slurm.submitit.core.failures import FailedJobError

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import IO, Any


class CommandFunction:
    """Runs a program and returns what it printed; arguments of the call are added to its words.

    Positional arguments become words, keyword arguments `--name=value`. A program that fails
    raises `FailedJobError` with what it printed to standard error.
    """

    def __init__(
        self,
        command: Sequence[str],
        verbose: bool = True,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(command, str) or not isinstance(command, (list, tuple)):
            raise AssertionError(f"command={command!r} must be a list of words")
        self.command = list(command)
        self.verbose = verbose
        self.cwd = None if cwd is None else str(cwd)
        self.env = env

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        """Run it; what it printed, without blanks around."""
        import shlex  # workers that call no program need none of these
        import subprocess

        words = [*map(str, args), *(f"--{name}={value}" for name, value in kwargs.items())]
        command = [*map(str, self.command), *words]
        if self.verbose:
            print(f"$ {shlex.join(command)}", flush=True)  # noqa: T201 - what `verbose` asks for
        stdout, stderr = io.StringIO(), io.StringIO()
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=self.cwd,
            env=None if self.env is None else dict(self.env),
        ) as process:
            try:
                copy_process_streams(process, stdout, stderr, self.verbose)
            except BaseException:  # raised again; the program must not outlive its caller
                process.kill()
                raise
            code = process.wait()
        text = stdout.getvalue().strip()
        if code:
            said = stderr.getvalue() or f"{command[0]} ended with exit code {code}"
            raise FailedJobError(said) from subprocess.CalledProcessError(
                code, command, text, stderr.getvalue()
            )
        return text


def copy_process_streams(
    process: subprocess.Popen[bytes], stdout: IO[str], stderr: IO[str], verbose: bool = False
) -> None:
    """Copy what a process prints until it closes both streams; with `verbose` to ours, too."""
    import selectors

    targets = ((process.stdout, stdout, sys.stdout), (process.stderr, stderr, sys.stderr))
    with selectors.DefaultSelector() as selector:
        for source, kept, shown in targets:
            assert source is not None, "the process needs a pipe for each stream"
            # A character of several bytes may lie across two chunks.
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            selector.register(source, selectors.EVENT_READ, (decoder, kept, shown))
        while selector.get_map():
            for key, _ in selector.select():
                decoder, kept, shown = key.data
                chunk = os.read(key.fd, 1 << 16)
                text = decoder.decode(chunk, final=not chunk)
                kept.write(text)
                if verbose and text:
                    print(text, end="", file=shown, flush=True)
                if not chunk:
                    selector.unregister(key.fileobj)
