"""What attackers write into every field of Slurm that they choose stays text in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from chromium import Page

from conftest import Jobs, sbatch, slurm
from served import Served, until

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

pytestmark = pytest.mark.attack

#: Each tries another way out of text or of an attribute; a script that runs leaves `pwned` behind.
WAYS = (
    "<script>window.pwned=1</script>",
    "\"'><img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    "</textarea></title></style><script>window.pwned=1</script>",
    "x\" onmouseover=window.pwned=1 autofocus onfocus=window.pwned=1 y=\"",
    "javascript:window.pwned=1//",
    "<a href=javascript:window.pwned=1 id=main>main</a>",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<base href=//evil.invalid/><link rel=stylesheet href=//evil.invalid/x>",
    "<form id=main action=//evil.invalid><input name=csrf>",
    "<!--\u2028\u202e\u0085--><math><mtext><style><img src onerror=window.pwned=1>",
    "data: x\n\nevent: part\ndata: {\"html\": \"<img src=x onerror=window.pwned=1>\"}\n\n",
)  # fmt: skip
#: What of a page none of these texts may add: handlers, scripts, frames, ways to elsewhere.
ADDED = """[...document.querySelectorAll('*')].flatMap(e => [
  ...[...e.attributes].filter(a => /^on|^srcdoc$|^formaction$/i.test(a.name)
    || (/^(href|src|action|xlink:href)$/i.test(a.name) && !/^([/?#.]|$)/.test(a.value)))
    .map(a => `${e.tagName} ${a.name}=${a.value}`),
  ...(/^(iframe|object|embed|base|math|template)$/i.test(e.tagName) ? [e.tagName] : []),
  ...(e.tagName === 'SCRIPT' && !e.getAttribute('src')?.startsWith('/static/') ? ['SCRIPT'] : []),
])"""


@pytest.fixture
def hostile(watched: RunningCluster, tmp_path: Path) -> list[str]:
    """A job for each way, with it in all that its owner chooses; and one that prints them all."""
    made = []
    for number, way in enumerate(WAYS):
        folder = tmp_path / f"{number} {way.replace('/', '|')}"[:200].replace("\n", " ")
        folder.mkdir()
        made.append(
            sbatch(
                *(f"--job-name={way}", f"--comment={way}", f"--chdir={folder}", "--hold"),
                *(f"--output={folder}/out", f"--error={folder}/err", "--mail-user=<b>x"),
            )
        )
    words = tmp_path / "words"
    words.write_text("\n".join(WAYS))
    name = WAYS[1]
    made.append(sbatch(f"--output={tmp_path}/log", f"--job-name={name}", script=f"cat {words}"))
    return made


def test_no_text_of_others_becomes_part_of_a_page(
    page: Page, entered: Served, jobs: Jobs, hostile: list[str]
) -> None:
    for node, way in zip(("n3", "n4"), WAYS[1:], strict=False):
        slurm("scontrol", "update", f"nodename={node}", "state=drain", f"reason={way[:90]}")
    try:
        log = hostile[-1]
        until("it has printed", lambda: "COMPLETED" in slurm("scontrol", "show", "job", log))
        asked = [quote(way, safe="") for way in WAYS]
        places = [f"/jobs/{job}" for job in hostile]
        places += ["/", "/nodes", "/nodes/n3", "/partitions", "/timeline", "/charts", "/shares"]
        places += ["/runs", f"/runs/{jobs.run}"]
        places += [f"/?q={way}" for way in asked[:6]]
        places += [f"/runs/{asked[1]}", f"/nodes/{asked[1]}", f"/?state={asked[4]}&user={asked[4]}"]
        for place in places:
            page.go(entered.base + place)
            page.until("document.querySelector('main').innerText.trim().length > 3")
            assert page.run(ADDED) == [], place
            assert page.run("window.pwned") is None, place
            assert page.complaints() == [], place
        page.go(f"{entered.base}/jobs/{log}")
        page.until("document.querySelector('pre[data-log]')?.textContent.includes('onerror')")
        assert page.run("document.querySelector('pre[data-log]').children.length") == 0
        assert page.run(ADDED) == []
        # What such a text would add is seen.
        page.run("document.body.insertAdjacentHTML('beforeend', '<a href=javascript:1>x</a>')")
        assert page.run(ADDED) == ["A href=javascript:1"]
    finally:
        slurm("scontrol", "update", "nodename=n3", "state=resume")
        for job in hostile[:-1]:
            slurm("scancel", job)
