"""NotifyCallback: tells a person that a run is over: on the desktop, by e-mail or by a webhook."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from slurm import errors
from slurm.callbacks.base import BaseCallback

if TYPE_CHECKING:
    from slurm.callbacks import contexts

#: Nothing that tells a person may take longer.
TIMEOUT = 20
WHEN = ("always", "failure", "success")


class NotifyCallback(BaseCallback):
    """Notifies when a run is over, once per run also for arrays.

    ```python
    NotifyCallback(desktop=True)                          # notify-send, or osascript on a Mac
    NotifyCallback(command=["my-pager", "{title}"])       # any program; {title}, {text} are filled
    NotifyCallback(email="ada@example.com")               # through this machine's sendmail
    NotifyCallback(webhook="https://hooks.example.com/x") # POST of {"text": ..., ...} as JSON
    ```

    It runs in the client, which has to be there when the run ends.
    """

    # A workflow is one run to a person; of its children it tells nothing.
    travels = False

    def __init__(
        self,
        *,
        desktop: bool = False,
        command: Sequence[str] = (),
        email: str | None = None,
        webhook: str | None = None,
        headers: Mapping[str, str] | None = None,
        when: str = "always",
        sendmail: Sequence[str] = ("sendmail", "-t", "-i"),
    ) -> None:
        if isinstance(command, str):
            raise errors.OptionError(
                f"command={command!r} is not a list of words", hint=f"write [{command!r}]"
            )
        if when not in WHEN:
            raise errors.OptionError(
                f"when={when!r} is not known", hint=f"write {errors.join_names(WHEN)}"
            )
        if email is not None and any(c in email for c in "\r\n"):
            raise errors.OptionError(f"email={email!r} contains a line break", hint="one address")
        if webhook is not None and not webhook.startswith(("http://", "https://")):
            raise errors.OptionError(
                f"webhook={webhook!r} is not a web address", hint="begin with https://"
            )
        if not (desktop or command or email or webhook):
            raise errors.OptionError(
                "NotifyCallback() was told no way to notify",
                hint="give desktop=True, command=, email= or webhook=",
            )
        self._command = tuple(command) or (_desktop() if desktop else ())
        self._email = email
        self._webhook = webhook
        self._headers = dict(headers or {})
        self._when = when
        self._sendmail = tuple(sendmail)
        self._runs: dict[str, list[int]] = {}  # jobs that are not over, and how many failed

    def on_submit_end(self, ctx: contexts.SubmitEndContext) -> None:
        """Remember how many jobs the run has."""
        if ctx.jobs:
            self._runs[ctx.run] = [len(ctx.jobs), 0]

    def on_completed(self, ctx: contexts.CompletedContext) -> None:
        """Notify when the last job of a run is over."""
        if ctx.cached:
            return
        left = self._runs.setdefault(ctx.run, [1, 0])
        left[0] -= 1
        left[1] += not ctx.succeeded
        if left[0] > 0:
            return
        del self._runs[ctx.run]
        if self._when in ("always", "failure" if left[1] else "success"):
            self._notify(ctx, left[1])

    def _notify(self, ctx: contexts.CompletedContext, failed: int) -> None:
        state = "FAILED" if failed and ctx.succeeded else ctx.state.value
        title = f"{ctx.name}: {state}"
        took = f" after {ctx.duration:.0f} s" if ctx.duration is not None else ""
        text = f"job {ctx.job_id}{took}"
        if failed:
            error = None if ctx.succeeded else ctx.error
            text += f"\n{failed} failed" + (f": {error}" if error is not None else "")
        text += f"\nrun {ctx.run}"
        ways: list[tuple[object, Callable[[], None]]] = [
            (self._command, lambda: self._run(title, text)),
            (self._email, lambda: self._mail(title, text)),
            (self._webhook, lambda: self._post(title, text, ctx, failed)),
        ]
        troubles = []
        for given, tell in ways:
            try:
                if given:
                    tell()
            except (OSError, subprocess.SubprocessError) as error:
                troubles.append(error)  # one way that fails does not keep the others from it
        if troubles:
            raise troubles[0]

    def _run(self, title: str, text: str) -> None:
        words = [w.replace("{title}", title).replace("{text}", text) for w in self._command]
        subprocess.run(words, timeout=TIMEOUT, check=True, stdin=subprocess.DEVNULL)

    def _mail(self, title: str, text: str) -> None:
        from email.message import EmailMessage

        message = EmailMessage()
        message["To"] = self._email
        message["Subject"] = " ".join(title.split())
        message.set_content(text)
        subprocess.run(list(self._sendmail), input=bytes(message), timeout=TIMEOUT, check=True)

    def _post(self, title: str, text: str, ctx: contexts.CompletedContext, failed: int) -> None:
        from urllib.request import Request, urlopen

        body = {
            "text": f"{title}\n{text}",  # what chat programs show
            "name": ctx.name,
            "job_id": ctx.job_id,
            "run": ctx.run,
            "state": ctx.state.value,
            "failed": failed,
            "seconds": ctx.duration,
        }
        headers = {"Content-Type": "application/json", **self._headers}
        assert self._webhook is not None
        request = Request(self._webhook, json.dumps(body).encode(), headers, method="POST")
        with urlopen(request, timeout=TIMEOUT):
            pass


def _desktop() -> tuple[str, ...]:
    """The program that shows a message on this desktop."""
    if sys.platform == "darwin":
        script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\n"
        return ("osascript", "-e", script + "end run", "{title}", "{text}")
    return ("notify-send", "--app-name=slurm", "--", "{title}", "{text}")
