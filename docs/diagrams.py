"""Draws the pictures of these pages into docs/images: plain SVG, without script or network.

A picture is a list of shapes with places given by hand; `--check` says which files are old.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

IMAGES = Path(__file__).parent / "images"

# Kinds of boxes: fill and border. All are readable on white and next to a dark page.
COLOURS = {
    "area": ("#f4f6f6", "#b4c0bf"),
    "you": ("#d9f0ec", "#00897b"),
    "slurm": ("#e3ecf9", "#3567b1"),
    "node": ("#fdf0d9", "#c77f0a"),
    "file": ("#ece6f6", "#6b4fa0"),
    "good": ("#e2f3df", "#3d8b37"),
    "plain": ("#ffffff", "#78898a"),
}


class Box(NamedTuple):
    """A rectangle with a title and smaller lines; an area has its title at its top left."""

    x: int
    y: int
    w: int
    h: int
    kind: str
    title: str
    lines: tuple[str, ...] = ()


class Arrow(NamedTuple):
    """A line through these points, with a head at its end and a word beside its middle."""

    points: tuple[tuple[int, int], ...]
    word: str = ""
    dashed: bool = False


class Picture(NamedTuple):
    """All of one picture: its size, its shapes, and what it shows, for those who do not see it."""

    w: int
    h: int
    about: str
    shapes: tuple[Box | Arrow, ...]


def box(shape: Box) -> list[str]:
    fill, edge = COLOURS[shape.kind]
    out = [
        f'<rect x="{shape.x}" y="{shape.y}" width="{shape.w}" height="{shape.h}" rx="6"'
        f' fill="{fill}" stroke="{edge}"/>'
    ]
    if shape.kind == "area":
        return [*out, _text(shape.x + 10, shape.y + 20, shape.title, "area")]
    middle = shape.x + shape.w // 2
    top = shape.y + (shape.h - 17 * len(shape.lines)) // 2 + 5
    out.append(_text(middle, top, shape.title, "title"))
    return out + [
        _text(middle, top + 17 * n, line, "line") for n, line in enumerate(shape.lines, 1)
    ]


def arrow(shape: Arrow) -> list[str]:
    path = " ".join(f"{x},{y}" for x, y in shape.points)
    dashed = ' stroke-dasharray="5 4"' if shape.dashed else ""
    out = [f'<polyline points="{path}" class="arrow"{dashed} marker-end="url(#head)"/>']
    if shape.word:
        (x1, y1), (x2, y2) = shape.points[:2]
        level = y1 == y2
        x, y = (x1 + x2) // 2, (y1 + y2) // 2
        out.append(_text(x if level else x + 6, y - 6 if level else y + 4, shape.word,
                         "word" if level else "word side"))  # fmt: skip
    return out


def _text(x: int, y: int, text: str, cls: str) -> str:
    return f'<text x="{x}" y="{y}" class="{cls}">{escape(text)}</text>'


def drawing(picture: Picture) -> str:
    """The picture as SVG."""
    body = [
        line
        for shape in picture.shapes
        for line in (box(shape) if isinstance(shape, Box) else arrow(shape))
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.w} {picture.h}"'
        f' width="{picture.w}" height="{picture.h}" role="img">',
        f"<title>{escape(picture.about)}</title>",
        "<style>text{font:13px system-ui,sans-serif;fill:#24292e;text-anchor:middle}"
        ".title{font-weight:600}.line{font-size:12px;fill:#4a5560}"
        ".area{text-anchor:start;font-size:12px;font-weight:600;fill:#5c6b6a}"
        ".word{font-size:12px;fill:#4a5560}.side{text-anchor:start}"
        ".arrow{fill:none;stroke:#5c6b6a;stroke-width:1.5}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0,0L8,4L0,8z" fill="#5c6b6a"/></marker></defs>',
        f'<rect width="{picture.w}" height="{picture.h}" rx="8" fill="#ffffff"/>',
        *body,
        "</svg>",
        "",
    ])  # fmt: skip


PICTURES = {
    "cluster": Picture(
        860, 330, "You log in to a login node; the controller starts jobs on compute nodes.",
        (
            Box(20, 120, 130, 80, "you", "your laptop", ("or a terminal",)),
            Box(220, 120, 150, 80, "slurm", "login node", ("edit, submit, look", "no heavy work")),
            Box(440, 120, 150, 80, "slurm", "controller", ("slurmctld: queue,", "who runs where")),
            Box(650, 20, 190, 180, "area", 'partition "cpu"'),
            Box(670, 55, 150, 55, "node", "compute node n1", ("32 CPUs, 128 GiB",)),
            Box(670, 125, 150, 55, "node", "compute node n2", ("32 CPUs, 128 GiB",)),
            Box(650, 215, 190, 95, "area", 'partition "gpu"'),
            Box(670, 245, 150, 55, "node", "compute node g1", ("64 CPUs, 4 GPUs",)),
            Box(220, 245, 370, 60, "file", "shared file system",
                ("your home: the same files on every node",)),
            Arrow(((150, 160), (220, 160)), "SSH"),
            Arrow(((370, 160), (440, 160)), "sbatch"),
            Arrow(((590, 145), (650, 110))),
            Arrow(((590, 180), (650, 250))),
            Arrow(((295, 245), (295, 200)), dashed=True),
            Arrow(((590, 290), (650, 290)), dashed=True),
        ),
    ),
    "levels": Picture(
        860, 330, "A job holds nodes, a step is a program started in it, ranks are its processes.",
        (
            Box(20, 15, 820, 300, "area", "job: resources for a time; one line in squeue"),
            Box(40, 50, 500, 250, "area", "step 123.0: one srun, two ranks"),
            Box(60, 85, 220, 200, "area", "rank 0 on n1: a process"),
            Box(300, 85, 220, 200, "area", "rank 1 on n2: a process"),
            *(Box(80 + 240 * rank, 120 + 38 * n, 180, 30, "node", f"thread {n} on a CPU")
              for rank in range(2) for n in range(4)),
            Box(560, 50, 260, 130, "area", "step 123.1: one srun, one rank"),
            Box(580, 85, 220, 90, "area", "rank 0 on n1: a process"),
            Box(600, 120, 180, 30, "node", "thread 0 on a CPU"),
        ),
    ),
    "components": Picture(
        900, 470, "Your program talks to an agent beside Slurm; jobs write into the run directory.",
        (
            Box(20, 20, 260, 270, "area", "where your program runs"),
            Box(40, 55, 220, 60, "you", "@task, .map, @workflow", ("what you write",)),
            Box(40, 135, 220, 60, "you", "Cluster", ("options, packaging, script",)),
            Box(40, 215, 220, 60, "you", "Job, ArrayJob; one watcher", ("futures that resolve",)),
            Box(330, 20, 240, 270, "area", "where the Slurm commands live"),
            Box(350, 55, 200, 60, "slurm", "agent", ("verbs, standard library only",)),
            Box(350, 135, 200, 60, "slurm", "scheduler",
                ("Slurm, embedded, or REST",)),
            Box(350, 215, 200, 60, "file", "run directory", ("the state of record",)),
            Box(620, 20, 260, 270, "area", "compute node"),
            Box(640, 55, 220, 60, "node", "script", ("set-up, traps, exit event",)),
            Box(640, 135, 220, 60, "node", "runner", ("loads, calls, records",)),
            Box(640, 215, 220, 60, "node", "your function", ("its ranks, workers, steps",)),
            Box(20, 315, 860, 135, "area", "around it, on the same core"),
            Box(40, 350, 150, 80, "plain", "slurm ...", ("run, ls, why, eff,", "doctor, top")),
            Box(208, 350, 150, 80, "plain", "slurm.submitit", ("a drop-in for", "submitit users")),
            Box(376, 350, 150, 80, "plain", "slurm cluster", ("a real Slurm from", "one file")),
            Box(544, 350, 150, 80, "plain", "monitor, dashboard",
                ("metrics, alerts,", "a page in a browser")),
            Box(712, 350, 150, 80, "plain", "slurm bridge", ("Kubernetes pods", "placed by Slurm")),
            Arrow(((150, 115), (150, 135))),
            Arrow(((260, 155), (300, 155), (300, 85), (350, 85)), ""),
            Arrow(((450, 115), (450, 135))),
            Arrow(((550, 160), (595, 160), (595, 85), (640, 85))),
            Arrow(((750, 115), (750, 135))),
            Arrow(((750, 195), (750, 215))),
            Arrow(((640, 180), (600, 180), (600, 245), (550, 245)), dashed=True),
            Arrow(((350, 245), (260, 245)), "news", dashed=True),
        ),
    ),
    "call": Picture(
        900, 300, "The nine steps from a call to its value.",
        (
            Box(20, 30, 150, 90, "you", "1  train(lr=0.1)", ("a call finds", "its cluster")),
            Box(195, 30, 150, 90, "you", "2  options",
                ("cluster, task, call:", "merged and checked")),
            Box(370, 30, 150, 90, "you", "3  package", ("code, function,", "arguments")),
            Box(545, 30, 150, 90, "you", "4  render", ("one sbatch script,", "a pure function")),
            Box(720, 30, 160, 90, "slurm", "5  submit",
                ("files and sbatch,", "one round trip, once")),
            Box(720, 180, 160, 90, "node", "6  script", ("claims the run,", "sets up, sets traps")),
            Box(545, 180, 150, 90, "node", "7  runner", ("loads, calls,", "writes the record")),
            Box(300, 180, 220, 90, "file", "8  run directory",
                ("record and exit event", "of the same attempt")),
            Box(20, 180, 255, 90, "you", "9  watcher, then the Job",
                ("value, your exception,", "or a typed error")),
            Arrow(((170, 75), (195, 75))),
            Arrow(((345, 75), (370, 75))),
            Arrow(((520, 75), (545, 75))),
            Arrow(((695, 75), (720, 75))),
            Arrow(((800, 120), (800, 180)), "Slurm"),
            Arrow(((720, 225), (695, 225))),
            Arrow(((545, 225), (520, 225))),
            Arrow(((300, 225), (275, 225))),
        ),
    ),
    "persisted": Picture(
        900, 330, "Who writes which files of a run directory, and who reads them.",
        (
            Box(20, 60, 170, 80, "you", "client", ("before the submission",)),
            Box(20, 200, 170, 80, "you", "any client, later", ("attach, slurm show",)),
            Box(250, 20, 400, 290, "area", "run directory: train-20260102-101500-ab12cd"),
            Box(270, 55, 175, 110, "file", "what was asked",
                ("script.sh", "function.bin", "arguments.bin", "metadata.json")),
            Box(455, 55, 175, 110, "file", "once only", ("submit/0.intent", "submit/0.id",
                                                         "submit/0.claim")),
            Box(270, 180, 175, 115, "file", "what came out",
                ("results/<node>.seg", "values/", "checkpoint/", "output/")),
            Box(455, 180, 175, 115, "file", "what happened",
                ("events/<node>.txt", "beats/<node>", "logs/<id>.out, .err")),
            Box(710, 60, 170, 80, "node", "script, on the node",
                ("bash alone: also when", "Python died")),
            Box(710, 200, 170, 80, "node", "runner", ("append, fsync", "before the exit event")),
            Arrow(((190, 100), (250, 100)), "writes"),
            Arrow(((250, 240), (190, 240)), "reads", dashed=True),
            Arrow(((710, 100), (650, 100)), "writes"),
            Arrow(((710, 240), (650, 240)), "writes"),
        ),
    ),
    "bridge": Picture(
        900, 330, "A pod waits behind a gate until Slurm has started its placeholder on a node.",
        (
            Box(20, 20, 420, 290, "area", "Kubernetes"),
            Box(40, 60, 170, 70, "plain", "1  a pod is created", ("kubectl, Job, JobSet",)),
            Box(250, 60, 170, 70, "plain", "2  webhook", ("a gate, who it is",)),
            Box(250, 210, 170, 70, "plain", "6  kubelet", ("the pod runs",)),
            Box(40, 210, 170, 70, "plain", "5  pinned to the node", ("the gate is taken away",)),
            Box(480, 20, 170, 290, "area", "bridge"),
            Box(495, 60, 140, 70, "you", "3  scheduler", ("pod to placeholder",)),
            Box(495, 210, 140, 70, "you", "placed?", ("one question for all",)),
            Box(690, 20, 190, 290, "area", "Slurm"),
            Box(705, 60, 160, 70, "slurm", "placeholder job", ("same CPUs, memory,", "devices")),
            Box(705, 210, 160, 70, "slurm", "4  it starts on a node",
                ("priority, fair share,", "limits")),
            Arrow(((210, 95), (250, 95))),
            Arrow(((420, 95), (495, 95))),
            Arrow(((635, 95), (705, 95))),
            Arrow(((785, 130), (785, 210)), "queue"),
            Arrow(((705, 245), (635, 245))),
            Arrow(((495, 260), (455, 260), (455, 295), (125, 295), (125, 280))),
            Arrow(((210, 245), (250, 245))),
        ),
    ),
    "packaging": Picture(
        900, 400, "How packaging=auto decides which way the code takes to the node.",
        (
            Box(20, 20, 250, 60, "you", "packaging= is given?", ("call, task, cluster, profile",)),
            Box(20, 130, 250, 60, "plain", "inside a packaged job?", ("a workflow's child",)),
            Box(20, 240, 250, 60, "plain", "nodes see this machine's files?",
                ("local Slurm, embedded",)),
            Box(20, 330, 250, 55, "plain", "pyproject.toml at or above", ("the task's file?",)),
            Box(400, 20, 480, 60, "good", "that one: none, source, wheel, container:IMAGE",
                ("a wrong word is refused, with the nearest right one",)),
            Box(400, 130, 480, 60, "good", "inherit", ("the environment of the job that submits",)),
            Box(400, 240, 480, 60, "good", "captured",
                ("your modules as they are at the call, in the client's own Python",)),
            Box(400, 325, 230, 60, "good", "wheel", ("built and installed once per content",)),
            Box(650, 325, 230, 60, "good", "none", ("your functions travel by value",)),
            Arrow(((270, 50), (400, 50)), "yes"),
            Arrow(((145, 80), (145, 130)), "no: auto"),
            Arrow(((270, 160), (400, 160)), "yes"),
            Arrow(((145, 190), (145, 240)), "no"),
            Arrow(((270, 270), (400, 270)), "yes"),
            Arrow(((145, 300), (145, 330)), "no"),
            Arrow(((270, 345), (400, 345)), "yes"),
            Arrow(((270, 375), (330, 375), (330, 393), (765, 393), (765, 385)), "no"),
        ),
    ),
}  # fmt: skip


def main() -> int:
    """Write the pictures anew, or with `--check` only say which differ."""
    stale = 0
    for name, picture in PICTURES.items():
        path, text = IMAGES / f"{name}.svg", drawing(picture)
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if "--check" in sys.argv:
            print(f"docs/images/{name}.svg is out of date: make docs")
        else:
            IMAGES.mkdir(exist_ok=True)
            path.write_text(text)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
