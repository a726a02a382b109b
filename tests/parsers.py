"""Everything that reads bytes or text from outside, with what it may raise: for both ways to fuzz.

A parser either reads its input or refuses it with its own kind of error, in bounded time and
memory. `tests/unit/test_parsers.py` holds that with examples and with what was once found;
`hack/fuzz` looks for more.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import fuzzed
from slurm import config, rundir
from slurm.api import (
    frames,
    reasons,
    rest_client,
    rest_rows,
    sbatch_lines,
    sbatch_values,
    slurm_refusals,
)
from slurm.api import slurm_commands as commands
from slurm.api import slurm_site as answers
from slurm.api.slurm_rows import UnreadableAnswer
from slurm.bridge import quantities, sizes, translation
from slurm.bridge import settings as bridge_settings
from slurm.errors import SlurmError
from slurm.metadata import read_metadata
from slurm.model import hostlist, ids, states, units
from slurm.monitor import controller, nodes, queue, sharing
from slurm.packaging.inherit import read_environment
from slurm.runner import batches, usage
from slurm.runner.inbox import read_inbox
from slurm.stack import confcheck, probes, site
from slurm.stack.read import parse_topology

RECORDED = Path(__file__).parent / "unit" / "recorded"
FOUND = Path(__file__).parent / "unit" / "found_by_fuzzing"


class Parser(NamedTuple):
    """One parser: how it is called with bytes, what it may raise, and inputs that it reads."""

    call: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...] = ()
    seeds: tuple[bytes, ...] = ()

    def holds(self, data: bytes) -> None:
        """Read it, or refuse it; anything else comes out."""
        try:
            self.call(data)
        except self.refuses:
            return


def text(call: Callable[[str], object]) -> Callable[[bytes], object]:
    """A parser of text, which commands and files give us as bytes that need not be UTF-8."""
    return lambda data: call(data.decode("utf-8", "surrogateescape"))


def recorded(*names: str) -> tuple[bytes, ...]:
    """What the commands of each release answered."""
    return tuple(p.read_bytes() for name in names for p in sorted(RECORDED.glob(f"*/{name}")))


def _json(call: Callable[[Any], object]) -> Callable[[bytes], object]:
    """A reader of one row of slurmrestd's: whatever JSON holds in its place."""

    def read(data: bytes) -> object:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return call(value if isinstance(value, dict) else {"jobs": value})

    return read


def _file(name: str, call: Callable[[str], object]) -> Callable[[bytes], object]:
    """A reader of a file in a run."""

    def read(data: bytes) -> object:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as run:
            path = os.path.join(run, name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(data)
            return call(run)

    return read


def _frames(data: bytes) -> None:
    """Message after message, as both ends of a connection read them."""
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        frames.read(stream)


def _batches(data: bytes) -> list[object]:
    found = rundir.decode_records(data)[0]
    return [list(_outcomes(record)) for record in found if record.kind == batches.BATCH]


def _outcomes(record: rundir.Record) -> Iterable[object]:
    batch = batches.decode_batch(record)
    for number in range(len(batch.words)):
        yield batch.outcome(number)


def _record(kind: str, header: dict[str, Any], payload: bytes) -> bytes:
    return rundir.encode_record(rundir.Identity("7", 0, 0, 0), kind, header, payload)


_RECORDS = _record("value", {}, b"x" * 9)
_ROW: dict[str, Any] = {
    "job_id": 9,
    "job_state": ["RUNNING"],
    "state": {"current": ["COMPLETED"], "reason": "None"},
    "submit_time": {"set": True, "infinite": False, "number": 5},
    "array_job_id": {"set": True, "number": 7},
    "array": {"job_id": 7, "task_id": {"set": True, "number": 2}},
    "exit_code": {"return_code": {"set": True, "number": 1}, "signal": {"id": {"number": 9}}},
    "time": {"submission": 5, "start": 6, "end": 8, "limit": {"set": True, "number": 3}},
    "name": "n1",
    "features": ["a"],
    "tres": {"configured": "cpu=4,gres/gpu=2"},
}
_REST = (json.dumps(_ROW).encode(),)
_FRAMES = (frames.encode({"a": 1}) + frames.encode({"b": b"x" * 9000, "c": [b"y"]}),)
_TOPOLOGY = (
    b'name = "lab"\n[[nodes]]\nnames = "n[1-4]"\nmemory = "4G"\n[limits.login]\ncpus = 2\n',
)
_SLURMFILE = b'[default]\nbackend_type = "local"\n[default.options]\ntime = "2h"\nenv = {A = "1"}\n'
_SLURMFILE += b'[gpu]\nhostname = "h"\npackaging = {type = "wheel"}\n'

_ARGUMENTS = rundir.joined(rundir.encode_arguments([b"one", b"two", b""]))

_POD = {
    "metadata": {
        "name": "p",
        "namespace": "team",
        "annotations": {"slurm-sdk/gres": "gpu:2", "slurm-sdk/timelimit": "1-12:00:00"},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u", "controller": True}
        ],
    },
    "spec": {
        "containers": [{"resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": 1}}}],
        "tolerations": [{"operator": "Exists"}],
    },
}
_ASKED = {"uid": "1", "operation": "CREATE", "namespace": "team", "userInfo": {"username": "bob"}}
_LATER = {**_ASKED, "operation": "UPDATE", "oldObject": _POD}
_REVIEWS = tuple(
    json.dumps({"request": {**asked, "object": _POD}}).encode() for asked in (_ASKED, _LATER)
)
_MESSAGES = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "x"}}\n'
    b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}\n',
    b'{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "show", '
    b'"arguments": {"run": "last"}}}\n',
)
_SCRAPES = (
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n",
    b"HEAD / HTTP/1.0\r\n\r\nGET /-/ready?x HTTP/1.1\r\nAuthorization: Basic eDp5\r\n\r\n",
)
_BROWSER = b" HTTP/1.1\r\nHost: localhost:9342\r\nCookie: slurm-dashboard-9342=SESSION\r\n"
_BROWSED = (
    *(b"GET " + path + _BROWSER + b"\r\n" for path in (b"/", b"/jobs/7_1", b"/runs/a%2Fb?q=x")),
    b"GET /nodes/n1?stream=1&sort=-name" + _BROWSER + b"\r\n",
    b"POST /jobs/7/cancel" + _BROWSER + b"Sec-Fetch-Site: same-origin\r\nContent-Length: 9\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\ncsrf=CSRF",
    b"GET /login?token=abc" + _BROWSER + b"\r\n",
)

PARSERS: dict[str, Parser] = {
    # What both ends of a connection, and the files of a run, are made of.
    "frames": Parser(_frames, (frames.BadFrame, EOFError), _FRAMES),
    "records": Parser(rundir.decode_records, (), (_RECORDS * 2, _RECORDS[:-3] + _RECORDS)),
    "batches": Parser(
        _batches,
        (ValueError,),
        (_record("batch", {"count": 2, "first": 5}, batches.encode_batch([3, 1], b"abcd")),),
    ),
    "events": Parser(
        rundir.decode_events, (), (b"begin job=7 attempt=0 node=n1\nexit job=7 code=0 signal=0\n",)
    ),
    "arguments": Parser(
        _file(rundir.ARGUMENTS, lambda run: rundir.read_arguments(run, 1)),
        (ValueError,),
        (_ARGUMENTS,),
    ),
    "all arguments": Parser(
        _file(rundir.ARGUMENTS, lambda run: rundir.ArgumentFile(run)[1]),
        (ValueError, IndexError),
        (_ARGUMENTS,),
    ),
    "entries": Parser(
        rundir.split_arguments, (ValueError,), (_ARGUMENTS,)
    ),
    "inbox": Parser(_file("1-0.json", lambda run: read_inbox(run, 0)), (), (b'{"step": 1}',)),
    "metadata": Parser(read_metadata, (), (b'{"task": "train"}',)),
    "environment": Parser(
        read_environment, (ValueError, TypeError), (b'{"python": "python3", "path": ["a"]}',)
    ),
    # What Slurm's commands answer.
    "sbatch": Parser(text(commands.parse_sbatch), (ValueError,), recorded("sbatch.txt")),
    "squeue": Parser(
        text(commands.my_jobs(mark="\x1f\x1e").read), (ValueError,), recorded("squeue.txt")
    ),
    "squeue of one job": Parser(
        text(commands.job_records("7", "|").read), (ValueError,), (b"7|" * 31 + b"\n",)
    ),
    "log path": Parser(
        text(
            lambda t: commands.log_path(
                t, dict.fromkeys(("ArrayId", "JobId", "NodeList", "UserName", "JobName"), t)
            )
        ),
        (),
        (b"%x-%5j", b"n[1-3]\\"),
    ),
    "sacct": Parser(
        text(commands.past_jobs(["7"], 0, "\x1f\x1e").read), (ValueError,), recorded("sacct.txt")
    ),
    "nodes": Parser(text(answers.parse_nodes), (ValueError,), recorded("nodes.txt")),
    "partitions": Parser(text(answers.parse_partitions), (ValueError,), recorded("partitions.txt")),
    "all jobs": Parser(
        text(answers.all_jobs("|").read),
        (UnreadableAnswer,),
        (b"7|RUNNING|ada|main|2|1-2|1-02:03|UNLIMITED|5|(None)|train|\n",),
    ),
    "used": Parser(
        text(answers.used(["7"], 0, "|").read),
        (UnreadableAnswer,),
        (b"7|COMPLETED|9|00:01.5|2|100Mc||1|60|/run|\n"
         b"7.batch|COMPLETED|9|00:01|2||51200K|1|||\n",),
    ),
    "settings": Parser(text(answers.parse_config), (), recorded("config.txt")),
    "submit limit": Parser(text(answers.parse_submit_limit), (), (b"5|\n|9\n",)),
    "version": Parser(text(answers.parse_version), (ValueError,), recorded("version.txt")),
    "errors of sbatch": Parser(text(slurm_refusals.explain_sbatch_error), (), recorded("errors/*")),
    "why: one": Parser(text(reasons.parse_one), (), (b"PartitionName=main MaxTime=1:00\n",)),
    "why: queue": Parser(
        text(reasons.waiting_in("main", "|").read), (UnreadableAnswer,), (b"7|5|ada|None|1|2|\n",)
    ),
    "why: limits": Parser(
        text(lambda t: reasons.parse_limits(t, "root", "a", "1000")),
        (),
        (b"a(1)\n  MaxJobs=2(1)\n",),
    ),
    "probe of nodes": Parser(text(probes.parse_nodes), (), (b"n1 idle\nn2 down*\n",)),
    "nvidia-smi": Parser(text(usage.parse_gpus), (), (b"GPU-1, 50, 1000, 8000\n",)),
    "nvidia-smi of a site": Parser(text(site.parse_nvidia), (), (b"0, NVIDIA H200, 143771\n",)),
    # What slurmrestd answers.
    "rest answer": Parser(
        lambda data: rest_client.read_answer(200 + 300 * (data[:1] != b"2"), "json", data[1:], "/"),
        (SlurmError,),
        (b'2{"jobs": []}', b'2{"jobs": [{}], "errors": []}'),
    ),
    "rest job": Parser(_json(rest_rows.controller_row), (UnreadableAnswer,), _REST),
    "rest past job": Parser(_json(rest_rows.accounting_row), (UnreadableAnswer,), _REST),
    "rest node": Parser(_json(rest_rows.node_row), (UnreadableAnswer,), _REST),
    "rest settings": Parser(_json(rest_rows.settings), (UnreadableAnswer,), _REST),
    # The exporter's.
    "monitor queue": Parser(
        text(lambda t: queue.parse_queue(t, {})), (), recorded("monitor-queue.txt")
    ),
    "monitor nodes": Parser(text(nodes.parse_nodes), (), recorded("monitor-nodes.txt")),
    "monitor shares": Parser(text(sharing.parse_shares), (), recorded("monitor-shares.txt")),
    "monitor licences": Parser(text(sharing.parse_licences), (), recorded("monitor-licences.txt")),
    "monitor reservations": Parser(
        text(sharing.parse_reservations), (), recorded("monitor-reservations.txt")
    ),
    "monitor controller": Parser(
        text(controller.parse_controller), (ValueError,), recorded("monitor-controller.txt")
    ),
    # What people write.
    "host list": Parser(text(hostlist.expand_hostlist), (ValueError,), (b"n[1-3,07],m2",)),
    "job id": Parser(text(ids.parse_job_id), (ValueError,), (b"12_3;cluster",)),
    "state": Parser(text(states.parse_state), (), (b"CANCELLED by 0",)),
    "duration": Parser(text(units.parse_duration), (SlurmError,), (b"1-02:03:04", b"2h30m")),
    "memory": Parser(text(units.parse_memory), (SlurmError,), (b"1.5GiB",)),
    "gpus": Parser(text(units.parse_gpus), (SlurmError,), (b"a100:2,h100",)),
    "script": Parser(
        text(sbatch_lines.read_options),
        (SlurmError, ValueError),
        (b'#!/bin/sh\n#SBATCH -J "a b" --mem=2G\n',),
    ),
    "array": Parser(text(sbatch_values.read_array), (SlurmError, ValueError), (b"0-9:2,12%3",)),
    "Slurmfile": Parser(
        _file(
            "Slurmfile.toml",
            lambda run: config.load_profile(Path(run, "Slurmfile.toml"), "default"),
        ),
        (SlurmError,),
        (_SLURMFILE,),
    ),
    "cluster.toml": Parser(text(parse_topology), (SlurmError,), _TOPOLOGY),
    "slurm.conf": Parser(
        text(lambda t: confcheck.parse("slurm.conf", t)),
        (),
        (b"NodeName=n[1-2] CPUs=2 \\\n State=UP # x\n",),
    ),
    "bridge settings": Parser(
        bridge_settings.parse_settings, (SlurmError,), (b"mode: direct\npoll: 1.0\n",)
    ),
    "generic resources": Parser(text(sizes.read_gres), (ValueError,), (b"gpu:a100:2,shard=1",)),
    "quantity": Parser(
        text(quantities.whole_up), (ValueError, ArithmeticError), (b"1.5Gi", b"1e3")
    ),
    # What clients say to servers of ours.
    "webhook": Parser(
        fuzzed.webhook,
        (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError),
        _REVIEWS,
    ),
    "mcp": Parser(fuzzed.assistant, (), _MESSAGES),
    "exporter": Parser(fuzzed.exporter, (), _SCRAPES),
    "dashboard": Parser(fuzzed.dashboard, (), _BROWSED),
    "claim of a pod": Parser(text(lambda t: translation.read_claim(t, "c")), (), (b"c/uid/7",)),
}  # fmt: skip
