"""One job: where it stands, why, how well it did, its log as it grows, what can be done to it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm.efficiency import RunUse
from slurm.model.states import parse_state
from slurm.web.acts import ACTS, Act, offered
from slurm.web.cells import grid
from slurm.web.details import Detail, detail, efficiency, environment, script, why
from slurm.web.groups import Group
from slurm.web.markup import Child, Html, address, h
from slurm.web.pieces import (
    Page,
    at,
    bar,
    card,
    chip,
    count,
    empty,
    facts,
    job_link,
    kind_of,
    lasted,
    node_link,
    since,
    size,
)
from slurm.web.queue_page import progress
from slurm.web.site import Scene, Site
from slurm.why import Why


def job_page(site: Site, scene: Scene, query: Mapping[str, str], job_id: str) -> Page:
    """A job, a task of an array, or an array as a whole."""
    found = detail(site, scene, job_id)
    if not found.known:
        words = f"Neither the queue nor accounting knows job {job_id}."
        back = h("a", "Back to the queue", href="/")
        return Page(f"Job {job_id}", empty(words, back), "queue", 0, 404)
    group = scene.groups.get(job_id)
    whole = group if group is not None and group.is_array else None
    body = (
        _head(site, scene, found, whole, query),
        h(
            "div",
            h(
                "div",
                _reason(site, scene, found, whole),
                card("Tasks", grid(whole), note=f"{count(whole.tasks)} known") if whole else None,
                _log(found, whole, query),
                cls="stack",
            ),
            h(
                "div",
                card("Timeline", timeline(found, scene.now)),
                card("Facts", _facts(found)),
                _dependencies(found),
                _use(efficiency(site, scene, found)) if whole is None else None,
                cls="stack",
            ),
            cls="two",
        ),
        _script(site, scene, found),
        _environment(site, scene, found),
    )
    name = found.row.name if found.row else found.told("JobName")
    return Page(f"Job {job_id} {name}", h("div", body, cls="stack"), "queue", 3.0)


def _head(
    site: Site, scene: Scene, found: Detail, whole: Group | None, query: Mapping[str, str]
) -> Html:
    name = found.row.name if found.row else found.told("JobName")
    said = ACTS.get(query.get("did", ""))
    title = ("Array " if whole else "Job ") + found.job_id
    run = h("a", "its run", href=address("runs", *found.run.split("/"))) if found.run else None
    return h(
        "header",
        h("p", f"Job {found.job_id} {said.done}.", cls="said", role="status") if said else None,
        h("div", h("h1", title), progress(whole) if whole else chip(found.state), cls="title"),
        h("p", h("span", name, cls="name long"), h("span", run, cls="dim") if run else None),
        _buttons(site, scene, found),
        cls="page-head",
    )


def _buttons(site: Site, scene: Scene, found: Detail) -> Child:
    acts = offered(site, found)
    if not acts:
        reading = "Only shown: this dashboard was started with --read-only."
        return h("p", reading, cls="dim") if site.rules.read_only else None
    return h("div", [_button(act, scene, found) for act in acts], cls="acts")


def _button(act: Act, scene: Scene, found: Detail) -> Html:
    """A button that asks before anything happens; it needs no script."""
    assert found.row is not None
    kind = "danger" if act.harm else "primary"
    form = h(
        "form",
        h("p", f"{act.button} job {found.job_id}? {act.question}"),
        h("input", type="hidden", name="csrf", value=scene.session.csrf),
        h("input", type="hidden", name="submit", value=found.row.submit or ""),
        h("button", f"Yes, {act.button.lower()} it", type="submit", cls=kind),
        method="post",
        action=address("jobs", found.job_id, act.name),
    )
    summary = h("summary", f"{act.button} …", cls=f"button {'danger' if act.harm else ''}".strip())
    return h("details", summary, form, cls="confirm", id=f"act-{act.name}", data_keep="open")


def _reason(site: Site, scene: Scene, found: Detail, whole: Group | None) -> Child:
    if whole is not None and parse_state(found.state).phase == "finished":
        return None  # its tasks ended each in its own way: the grid leads to them
    told = why(site, scene, found)
    if told is None:
        return None
    waits = parse_state(found.state).phase == "pending"
    note = told.reason or None
    return card(
        "Why it waits" if waits else "Why it failed", _why(told, scene), cls="why", note=note
    )


def _why(told: Why, scene: Scene) -> Child:
    before = None
    if told.position is not None:
        ahead = told.position - 1
        before = f"{count(ahead)} in line before it" if ahead else "It is the first in line"
    limits = [
        h(
            "li",
            f"{limit.name}: "
            + (f"{limit.used} of " if limit.used else "")
            + limit.value
            + (f", {limit.distance}" if limit.distance else ""),
        )
        for limit in told.limits
    ]
    fixes = [
        h("li", h("code", fix.command) if fix.command else None, " ", fix.effect)
        for fix in told.fixes
    ]
    return (
        h("p", told.text, cls="lead"),
        h("p", before, cls="dim") if before else None,
        h("p", "Expected to start ", at(told.starts), cls="dim")
        if before and told.starts and told.starts > scene.now
        else None,
        h("ul", limits) if limits else None,
        h("pre", "\n".join(told.evidence), cls="evidence") if told.evidence else None,
        h("div", h("h3", "What helps"), h("ul", fixes)) if fixes else None,
    )


def timeline(found: Detail, now: float) -> Html:
    """From submission to end, with what each part took."""
    row = found.row
    submit = found.time("SubmitTime", row.submit if row else None)
    start = found.time("StartTime", row.start if row else None)
    end = found.time("EndTime", row.end if row else None)
    phase = parse_state(found.state).phase
    if phase == "pending":
        start = end = None
    elif phase == "active":
        end = None
    waited = (start or now) - submit if submit else 0
    ran = ((end or now) - start) if start else 0
    total = max(1.0, waited + ran)
    kind = kind_of(found.state)
    parts = [("pending", waited / total), (kind if kind != "pending" else "use", ran / total)]
    words = f"waited {lasted(waited)}, ran {lasted(ran)}"
    steps = [
        h("li", h("span", "Submitted", cls="label"), at(submit)),
        h(
            "li",
            h("span", "Started", cls="label"),
            at(start, "not yet"),
            h("span", "after " + lasted(waited), cls="dim")
            if start
            else h("span", "waits ", since(submit, now), cls="dim"),
        ),
        h(
            "li",
            h("span", "Ended", cls="label"),
            at(end, "not yet"),
            h("span", "after " + lasted(ran), cls="dim")
            if end and start
            else h("span", "runs ", since(start, now), cls="dim")
            if start
            else None,
        ),
    ]
    limit = row.limit if row else None
    left = None
    if start and limit and not end:
        part = min(1.0, ran / limit)
        left = h(
            "p",
            bar([(kind, part)], f"{part:.0%} of its time limit"),
            h("span", f"{part:.0%} of its limit of {lasted(limit)}", cls="dim"),
        )
    return h("div", bar(parts, words, "bar tall"), h("ol", steps, cls="steps"), left)


def _facts(found: Detail) -> Html:
    row = found.row
    told = found.told
    nodes = row.node_list if row else told("NodeList")
    return facts(
        {
            "User": h("a", found.user, href=address("", user=found.user)) if found.user else None,
            "Account": _known(row.account) if row else told("Account"),
            "Partition": row.partition if row else told("Partition"),
            "QOS": row.qos if row else told("QOS"),
            "Nodes": _nodes(nodes),
            "CPUs": str(row.cpus) if row and row.cpus else told("NumCPUs"),
            "Memory": size(row.memory) if row and row.memory else _memory(told("TRES")),
            "GPUs": str(row.gpus) if row and row.gpus else None,
            "Time limit": lasted(row.limit) if row and row.limit else told("TimeLimit"),
            "Priority": count(row.priority) if row and row.phase == "pending" else None,
            "Requeued": str(row.restarts) if row and row.restarts else None,
            "Exit code": told("ExitCode") if parse_state(found.state).phase == "finished" else None,
            "Comment": told("Comment"),
            "Admin comment": told("AdminComment"),
            "Directory": h("code", told("WorkDir")) if told("WorkDir") else None,
            "Command": h("code", told("Command")) if told("Command") else None,
        }
    )


def _known(value: str) -> str:
    return "" if value == "(null)" else value


def _memory(tres: str) -> str:
    found = re.search(r"mem=([0-9.]+[KMGTP]?)", tres)
    return found[1] if found else ""


def _nodes(text: str) -> Child:
    from slurm.model.hostlist import expand_hostlist

    try:
        names = list(expand_hostlist(text)) if text and text != "(null)" else []
    except ValueError:
        return text
    links = [(node_link(name), " ") for name in names[:12]]
    more = f"and {len(names) - 12} more" if len(names) > 12 else None
    return (links, more) if names else None


def _dependencies(found: Detail) -> Child:
    text = found.told("Dependency")
    if not text:
        return None
    rows = []
    for kind, job, word in re.findall(r"([a-z]+):(\d+(?:_[\d*]+)?)(?:\+\d+)?(?:\((\w+)\))?", text):
        target = job.rstrip("*").rstrip("_")
        rows.append(
            h("li", h("span", kind, cls="label"), job_link(target), " ", h("span", word, cls="dim"))
        )
    return card("Waits for", h("ul", rows, cls="plain-list") if rows else h("p", text))


def _use(use: RunUse | None) -> Child:
    if use is None or not (use.cpu or use.memory_efficiency or use.gpu):
        return None
    rows = []
    for name, spread in (("CPU", use.cpu), ("Memory", use.memory_efficiency), ("GPU", use.gpu)):
        if spread is not None:
            part = min(1.0, spread.middle)
            rows.append(
                h(
                    "li",
                    h("span", name, cls="label"),
                    bar([("use", part)], f"{name} {spread.middle:.0%}"),
                    h("span", f"{spread.middle:.0%}", cls="num"),
                )
            )
    tips = [
        h(
            "li",
            h("b", f"{tip.option}: {tip.suggested}"),
            f" instead of {tip.asked}: {tip.why}",
            f"; saves {tip.saves}" if tip.saves else None,
        )
        for tip in use.advice
    ]
    memory = f"at most {size(use.memory.high)}; " if use.memory else ""
    return card(
        "Efficiency",
        h("ul", rows, cls="meters"),
        h("p", f"{memory}{use.core_hours:.2f} core-hours", cls="dim"),
        (h("h3", "Next time"), h("ul", tips)) if tips else None,
    )


def _log(found: Detail, whole: Group | None, query: Mapping[str, str]) -> Child:
    if whole is not None:
        return None
    stream = "err" if query.get("log") == "err" else "out"
    same = found.told("StdErr") == found.told("StdOut") and found.told("StdOut")
    tabs = None
    if not same:
        tabs = h(
            "nav",
            [
                h(
                    "a",
                    word,
                    href=address("jobs", found.job_id, log=key if key == "err" else ""),
                    aria_current="true" if key == stream else None,
                )
                for key, word in (("out", "Output"), ("err", "Errors"))
            ],
            cls="tabs",
            aria_label="Which log",
        )
    source = address("jobs", found.job_id, "log", stream=stream)
    path = found.told("StdErr" if stream == "err" else "StdOut")
    return card(
        "Log",
        tabs,
        h(
            "div",
            h(
                "pre",
                cls="log",
                data_log=source,
                data_keep="all",
                tabindex=0,
                role="log",
                id=f"log-{stream}",
                aria_label="Log",
                aria_live="off",
            ),
            h(
                "label",
                h("input", type="checkbox", checked=True, id="follow", data_keep="all"),
                " Follow",
                cls="follow",
            ),
        ),
        note=h("code", path) if path else None,
        cls="log-card",
    )


def _script(site: Site, scene: Scene, found: Detail) -> Child:
    text = script(site, scene.session, found)
    if not text:
        return None
    summary = h("summary", "Script")
    return h(
        "details",
        summary,
        h("pre", text, cls="code"),
        cls="card fold",
        id="script",
        data_keep="open",
    )


def _environment(site: Site, scene: Scene, found: Detail) -> Child:
    values = environment(site, scene.session, found)
    if not values:
        return None
    rows = {key: h("code", value) for key, value in values.items()}
    summary = h("summary", "Environment ", h("span", f"{len(values)} entries", cls="dim"))
    return h("details", summary, facts(rows), cls="card fold", id="environment", data_keep="open")
