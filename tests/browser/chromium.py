"""A real Chromium, driven over its own debugging pipe: no driver program and no library between."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from needed import need

PATIENCE = 90.0
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--no-first-run", "--no-default-browser-check", "--mute-audio"),
    *("--disable-background-timer-throttling", "--disable-renderer-backgrounding"),
    *("--disable-backgrounding-occluded-windows", "--hide-scrollbars", "--lang=en-US"),
    *("--ignore-certificate-errors", "--remote-debugging-pipe"),
)


class Browser:
    """One Chromium process; pages are opened in it."""

    def __init__(self, folder: Path) -> None:
        need("chromium")
        program = "chromium"
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def place() -> None:
            # Chromium reads its orders from 3 and answers on 4.
            one, two = os.dup(to_read), os.dup(to_write)
            os.dup2(one, 3)
            os.dup2(two, 4)

        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, *_OPTIONS, f"--user-data-dir={folder}/profile", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                close_fds=False,
                preexec_fn=place,
                env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            )
        os.close(to_read)
        os.close(to_write)
        self._lock = threading.Lock()
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._told = threading.Condition()
        self.events: dict[str, list[dict[str, Any]]] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := os.read(self._read, 1 << 16):
                *whole, rest = (rest + data).split(b"\0")
                with self._told:
                    for message in map(json.loads, whole):
                        if "id" in message:
                            self._answers[message["id"]] = message
                        else:
                            self.events.setdefault(message.get("sessionId", ""), []).append(message)
                    self._told.notify_all()

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        with self._lock:
            self._number += 1
            number = self._number
            message: dict[str, Any] = {"id": number, "method": method, "params": params}
            if session:
                message["sessionId"] = session
            os.write(self._write, json.dumps(message).encode() + b"\0")
        with self._told:
            came = self._told.wait_for(lambda: number in self._answers, PATIENCE)
            assert came, f"Chromium did not answer {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def page(self, width: int = 1280, height: int = 860, context: str | None = None) -> Page:
        """A new page; with another context it shares no cookies."""
        extra = {"browserContextId": context} if context else {}
        target = self.call("Target.createTarget", url="about:blank", **extra)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        return page

    def context(self) -> str:
        """A profile of its own, without any cookie."""
        return str(self.call("Target.createBrowserContext")["browserContextId"])

    def close(self) -> None:
        """End the browser with all its pages."""
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)


class Page:
    """One page, as a person sees it."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command to this page."""
        return self._browser.call(method, self._session, **params)

    def go(self, url: str) -> None:
        """Open an address, and wait until it is there and its script runs."""
        found = self.call("Page.navigate", url=url)
        assert not found.get("errorText"), f"{url}: {found['errorText']}"
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def until(self, script: str, seconds: float = PATIENCE) -> Any:
        """Wait until an expression is true; its value. A page that changes is asked anew."""
        end = time.monotonic() + seconds
        last: object = None
        while time.monotonic() < end:
            try:
                last = self.run(script)
            except AssertionError as error:
                last = error
            if last and not isinstance(last, AssertionError):
                return last
            time.sleep(0.05)
        text = self.run("document.body ? document.body.innerText.slice(0, 3000) : ''")
        raise AssertionError(f"not within {seconds} s: {script} ({last})\n{text}")

    def text(self, selector: str = "body") -> str:
        """What is to be read in an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def until_text(self, words: str, selector: str = "body", seconds: float = PATIENCE) -> None:
        """Wait until words are to be read."""
        place = f"(document.querySelector({json.dumps(selector)})?.innerText ?? '')"
        self.until(f"{place}.includes({json.dumps(words)})", seconds)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse does."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.until(f"!!{place}")
        box = self.run(
            f"(() => {{ const e = {place}; e.scrollIntoView({{block: 'center'}}); "
            "const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0)
            said = (
                {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
            )
            about: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, **said}
            self.call("Input.dispatchKeyEvent", type="keyDown", **about)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def write(self, words: str) -> None:
        """Type a text where the cursor is."""
        self.call("Input.insertText", text=words)

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        """The size of the window, as on a desk or on a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 700,
        )

    def scheme(self, name: str) -> None:
        """`light` or `dark`, as the system of the viewer says it."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, path: Path) -> None:
        """Save what is to be seen."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[str]:
        """What Chromium complained about: errors of scripts, of the CSP, dialogs that came up."""
        found = []
        for event in self._browser.events.get(self._session, []):
            params = event.get("params", {})
            if event["method"] == "Page.javascriptDialogOpening":
                found.append(f"dialog: {params['message']}")
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(f"exception: {params['exceptionDetails']}")
            elif event["method"] == "Log.entryAdded" and params["entry"]["source"] == "security":
                found.append(f"security: {params['entry']['text']}")
        return found

    def close(self) -> None:
        """Close the page."""
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own, for as long as the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="chromium-"))
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()
        shutil.rmtree(folder, ignore_errors=True)
