"""The dashboard in a real Chromium, on a real Slurm with real jobs."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from chromium import Page

from conftest import ATTACK, Jobs, Viewers, sbatch, slurm
from served import Served, dashboard, events, until

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

PAGES = {
    "/": "talks",
    "/jobs/{talks}": "Timeline",
    "/jobs/{waits}": "It waits for other jobs to end",
    "/jobs/{array}": "Tasks",
    "/jobs/{failed}": "exit code 3",
    "/runs": "total",
    "/runs/{run}": "Graph",
    "/nodes": "Not usable",
    "/nodes/n1": "Jobs here",
    "/partitions": "gpu",
    "/timeline": "Timeline",
    "/charts": "Utilisation",
    "/shares": "Fair share",
}
# What a reader of screens needs: names for fields, buttons, pictures and links; one language.
UNNAMED = """[...document.querySelectorAll(`input:not([type=hidden]), select, textarea, button,
 a[href], svg[role=img], svg[role=group]`)].filter(e => !(e.getAttribute('aria-label')
 || e.labels?.length || e.textContent.trim() || e.closest('label')))
 .map(e => e.outerHTML.slice(0, 120))"""
# Words that can hardly be read: less than 4.5 between text and what is behind it.
FAINT = """(() => { const pen = new OffscreenCanvas(1, 1)
   .getContext('2d', {willReadFrequently: true});
 const rgb = t => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = t; pen.fillRect(0, 0, 1, 1);
   const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
 const light = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
   return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
   return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
 const behind = e => { for (; e; e = e.parentElement) { const s = getComputedStyle(e);
   if (s.backgroundImage !== 'none') return null;
   const c = rgb(s.backgroundColor); if (c[3] > 0.99) return c; }
   return [255, 255, 255]; };
 return [...document.querySelectorAll('main *, .top *')].filter(e => e.children.length === 0
   && !e.closest('.sr')
   && e.textContent.trim() && !e.closest('svg') && e.getClientRects().length).flatMap(e => {
   const back = behind(e); if (!back) return [];
   const [a, b] = [light(rgb(getComputedStyle(e).color)), light(back)].sort((x, y) => y - x);
   const ratio = (a + 0.05) / (b + 0.05);
   return ratio < 4.5 ? [`${e.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`] : []; }); })()"""


HEAT = """for (let n = 0; n < 9; n++) { const cell = document.createElement('a');
 cell.className = `node heat-${n}`; cell.textContent = `heat ${n}`;
 document.querySelector('.map').append(cell); }"""


def _opened(page: Page, served: Served, jobs: Jobs, path: str, words: str) -> None:
    page.go(served.base + path.format(**vars(jobs)))
    page.until_text(words, "main")


def test_every_page_shows_real_jobs_and_can_be_read_by_everybody(
    page: Page, entered: Served, jobs: Jobs
) -> None:
    until(
        "the failed job has ended",
        lambda: "FAILED" in slurm("scontrol", "show", "job", jobs.failed),
    )
    for path, words in PAGES.items():
        _opened(page, entered, jobs, path, words)
        assert page.run("document.documentElement.lang") == "en"
        assert page.run(UNNAMED) == [], path
        if path == "/nodes":  # also what no node of this cluster shows just now
            page.run(HEAT)
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            assert page.run(FAINT) == [], f"{path}, {scheme}"


def test_pages_fit_a_phone(page: Page, entered: Served, jobs: Jobs) -> None:
    page.resize(390, 844, 2)
    for path in ("/", "/jobs/{talks}", "/nodes", "/partitions", "/charts"):
        _opened(page, entered, jobs, path, PAGES[path])
        assert page.run("document.documentElement.scrollWidth") <= 390, path
    _opened(page, entered, jobs, "/", "talks")
    assert page.run("document.querySelector('#search').getBoundingClientRect().height") >= 36


def test_a_new_job_shows_up_by_itself_and_a_search_finds_it(page: Page, entered: Served) -> None:
    page.go(f"{entered.base}/")
    page.until_text("talks", "main")
    page.run("window.same = 1")
    job = sbatch("--output=/dev/null", "--job-name=newcomer")
    page.until(f"!!document.getElementById('job-{job}')")
    page.press("/")
    page.until("document.activeElement.id === 'search'")
    page.write("newcomer")
    page.until("document.querySelectorAll('#jobs tbody tr').length === 1")
    assert "q=newcomer" in page.run("location.search")
    slurm("scancel", job)
    # All this on one and the same page.
    assert page.run("window.same") == 1
    assert float(page.run("document.getElementById('main').dataset.took")) < 5000


def test_the_queue_is_walked_with_keys(page: Page, entered: Served, jobs: Jobs) -> None:
    page.go(f"{entered.base}/?q=talks")
    page.until_text("talks", "main")
    page.press("?")
    page.until("document.getElementById('help').open")
    page.press("Escape")
    page.until("!document.getElementById('help').open")
    page.press("j", "j", "k")
    assert page.run("document.querySelector('.here').id") == f"job-{jobs.talks}"
    page.press("Enter")
    page.until(f"location.pathname === '/jobs/{jobs.talks}'")
    page.until_text("Timeline", "main")
    page.press("g", "n")
    page.until("location.pathname === '/nodes'")


def test_a_log_grows_and_what_an_attacker_wrote_stays_text(
    page: Page, entered: Served, jobs: Jobs
) -> None:
    _opened(page, entered, jobs, "/jobs/{talks}", "Comment")
    page.until("Number(document.querySelector('pre.log').dataset.shown) > 100")
    before = page.run("document.querySelector('pre.log').innerText.split('\\n').length")
    page.until(f"document.querySelector('pre.log').innerText.split('\\n').length > {before + 1}")
    assert ATTACK.replace("'", "") in page.text("pre.log")
    assert page.text("main").count(ATTACK) >= 2  # its name and its comment
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    page.go(f"{entered.base}/nodes")
    page.until_text(ATTACK[:60], "main")
    page.go(f"{entered.base}/?q={ATTACK[:4]}")
    page.until_text("talks", "main")


def test_a_job_is_cancelled_after_a_question(page: Page, entered: Served, jobs: Jobs) -> None:
    job = jobs.victim
    page.go(f"{entered.base}/jobs/{job}")
    page.click("#act-cancel summary")
    page.until_text(f"Cancel job {job}?", "#act-cancel")
    assert "CANCELLED" not in slurm("scontrol", "show", "job", job)
    page.click("#act-cancel button")
    page.until_text(f"Job {job} was cancelled", "main")
    until("Slurm knows", lambda: "CANCELLED" in slurm("scontrol", "show", "job", job))
    page.until_text("Cancelled", ".title")


def test_a_held_job_is_released_and_held_again(page: Page, entered: Served, jobs: Jobs) -> None:
    _opened(page, entered, jobs, "/jobs/{held}", "hold it")
    page.click("#act-release summary")
    page.click("#act-release button")
    page.until_text(f"Job {jobs.held} was released", "main")
    until("it starts", lambda: "Held" not in slurm("squeue", "-h", "-j", jobs.held, "-o", "%r"))


def test_ten_viewers_cost_one_collection_and_no_memory(
    page: Page, viewers: Viewers, jobs: Jobs
) -> None:
    page.go(f"{viewers.served.base}/")
    page.until_text("talks", "main")
    _churn(viewers, 30)
    assert int(page.run("document.getElementById('main').dataset.parts")) >= 2


@pytest.mark.full
@pytest.mark.timeout(900)
def test_ten_viewers_for_ten_minutes(page: Page, viewers: Viewers, jobs: Jobs) -> None:
    page.go(f"{viewers.served.base}/")
    page.until_text("talks", "main")
    _churn(viewers, 600)
    assert int(page.run("document.getElementById('main').dataset.parts")) >= 20


def _churn(viewers: Viewers, seconds: float) -> None:
    """Jobs come and go until the nine streams have been watched for so long."""
    before = viewers.parts()
    while time.monotonic() - viewers.begun < seconds or min(viewers.parts()) < min(before) + 2:
        sbatch("--output=/dev/null", "--array=0-4", "--job-name=churn", script="true")
        time.sleep(4)
    watched = time.monotonic() - viewers.begun
    # All saw the same collections, which came no more often than for one viewer; none was lost.
    first, last = viewers.first, max(viewers.collections())
    assert all(number >= last - 1 for number in viewers.collections())
    assert last - first <= watched + 2  # one a second at most
    assert viewers.served.resident < viewers.memory + (60 << 20)


def test_old_data_are_marked_with_their_age_while_slurm_is_away(
    page: Page, entered: Served, watched: RunningCluster, jobs: Jobs
) -> None:
    page.go(f"{entered.base}/")
    page.until_text("talks", "main")
    watched.stop_daemon("slurmctld")
    try:
        page.until_text("Slurm does not answer, so this is old", "#banner")
        page.until("/\\(.* s old\\)/.test(document.getElementById('banner').innerText)")
        assert "talks" in page.text("main")
    finally:
        watched.start_daemon("slurmctld")
    page.until("document.getElementById('banner').innerText === ''")


# ---- who may look, and what a browser is told ---------------------------------------------------


def test_a_link_works_once_and_nothing_is_shown_without_it(entered: Served) -> None:
    path = entered.link.removeprefix(entered.base)
    status, headers, text = entered.ask(path, Cookie="")
    assert status == 403
    assert "set-cookie" not in headers
    assert "used up" in text
    assert entered.ask("/", Cookie="")[:1] == (303,)
    assert entered.ask("/", Cookie="", Accept="text/event-stream")[0] == 401
    assert entered.ask("/jobs/1", Cookie=entered.cookie[:-2] + "xx")[0] == 303


def test_other_names_origins_and_forms_are_turned_away(entered: Served, jobs: Jobs) -> None:
    assert entered.ask("/", Host="evil.example")[0] == 421
    assert entered.ask("/", Host="localhost:1")[0] == 200  # a tunnel with another port
    path = f"/jobs/{jobs.talks}/cancel"
    page = entered.ask_until(f"/jobs/{jobs.talks}", 'name="csrf"')
    csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
    submit = re.findall(r'name="submit" value="([^"]+)"', page)[0]
    origin = {"Origin": entered.base}
    whole = f"csrf={csrf}&submit={submit}"
    post = {"method": "POST", "Content_Type": "application/x-www-form-urlencoded"}
    assert entered.ask(path, body=whole, **post)[0] == 403
    assert entered.ask(path, body=whole, Origin="http://evil.example", **post)[0] == 403
    assert entered.ask(path, body=f"submit={submit}", **origin, **post)[0] == 403
    assert entered.ask(path, body=f"csrf=x&submit={submit}", **origin, **post)[0] == 403
    crossed = {"Sec_Fetch_Site": "cross-site"}
    assert entered.ask(path, body=whole, **origin, **crossed, **post)[0] == 403
    # The right form for a job that has had its id before: nothing is done.
    assert entered.ask(path, body=f"csrf={csrf}&submit=1", **origin, **post)[0] == 409
    assert entered.ask(path)[0] == 405
    assert "RUNNING" in slurm("scontrol", "show", "job", jobs.talks)


def test_answers_carry_a_strict_policy(entered: Served) -> None:
    for path in ("/", "/login", "/static/dashboard.js", "/nowhere"):
        headers = entered.ask(path)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert entered.ask("/")[1]["cache-control"] == "no-store"
    assert entered.ask("/static/../app.py")[0] == 404


def test_a_log_is_opened_with_the_rights_of_the_jobs_owner_alone(
    page: Page, entered: Served
) -> None:
    # The job's user chose a file that only root can read; so did its links and its pipes.
    job = sbatch("--uid=nobody", "--output=/etc/shadow", "--job-name=thief")
    entered.ask_until(f"/jobs/{job}", "thief")
    words = "shadow cannot be opened: Permission denied"
    assert any(words in json.dumps(told) for _, told in events(entered, f"/jobs/{job}/log"))
    slurm("scancel", job)


@pytest.mark.full
def test_a_dashboard_that_only_shows_offers_and_does_nothing(jobs: Jobs) -> None:
    with dashboard("--read-only") as served:
        served.enter()
        served.ask_until("/", "talks")
        page = served.ask_until(f"/jobs/{jobs.talks}", "Timeline")
        assert "read-only" in page
        assert "csrf" not in page
