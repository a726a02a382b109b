"""Hostile text in every field of cluster.toml: refused, or no script of the cluster runs it."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from test_injection import hostile
from test_topology_files import ADA

from slurm.errors import SlurmError
from slurm.stack.hosts import host_files
from slurm.stack.plan import container_plan
from slurm.stack.read import parse_topology
from slurm.stack.render import rendered

HOST = '[network]\naddress = "10.1.1.1"\n[[nodes]]\nnames = "q1"\nhost = "nas"\n[[hosts]]\n'
NAS = 'name = "nas"\naddress = "10.1.1.2"\n'
#: Each field that takes text; `@` is the text.
FIELDS = (
    "name = @", "version = @", "engine = @", "[database]\nhost = @\nkind = 'external'",
    "[database]\nname = @", "[database]\nuser = @", "[database]\nkeep = @",
    f"{HOST}{NAS}storage = @", f"{HOST}{NAS}shared_source = @", f"{HOST}{NAS}ssh = @",
    f"{HOST}name = 'nas'\naddress = @",
    HOST.replace('"nas"', "@") + "name = @\naddress = '10.1.1.2'",
    "[[nodes]]\nnames = @", "[[nodes]]\nnames = 'n1'\nfeatures = [@]",
    "[[nodes]]\nnames = 'n1'\ngpus = @", "[[partitions]]\nname = @",
    "[[partitions]]\nname = 'p'\nqos = @\n[[qos]]\nname = @",
    "[[partitions]]\nname = 'p'\nmax_time = @", "[[qos]]\nname = @",
    "[[accounts]]\nname = @", "[[accounts]]\nname = 'a'\nparent = @",
    "[[accounts]]\nname = 'a'\nusers = [@]\n[[users]]\nname = @\nuid = 1000",
    "[[users]]\nname = @\nuid = 1000", "[[users]]\nname = 'u'\nuid = 1000\nssh_key = @",
    "[rest]\nenabled = true\naddress = @", "[monitoring]\nenabled = true\nkeep = @",
    "[network]\nsubnet = @", "[images]\nslurm = @", f"[images]\nslurm = @\n{HOST}{NAS}",
    f"[images]\nbase = @\n{HOST}{NAS}", "[images]\ngrafana = @",
    f"[images]\npackages = [@]\n{HOST}{NAS}", "[shared]\npath = @",
    f"[shared]\nsource = @\n{HOST}{NAS}",
    "[conf]\nslurm = [@]", "[conf]\nslurmdbd = [@]", "[conf]\ncgroup = [@]", "[conf]\ngres = [@]",
)  # fmt: skip
_ENGINE = '#!/bin/sh\n[ "$1" != image ]\n'


def toml(text: str) -> str:
    """A string as TOML writes it; a lone surrogate is none."""
    escaped = json.dumps(text.replace("\udcff", ""), ensure_ascii=False)
    return re.sub(r"[\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A machine whose engine says yes to all but an image; no folder of it is made on this one."""
    (tmp_path / "bin").mkdir()
    for name in ("podman", "docker", "sacctmgr", "mkdir"):
        program = tmp_path / "bin" / name
        program.write_text(_ENGINE)
        program.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize("field", FIELDS)
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(hostile)
@example("$(touch canary)")
@example("'; touch canary; '")
def test_no_field_of_a_cluster_runs_anything(host: Path, field: str, text: str) -> None:
    for value in (text, f"/srv/{text}", f"a{text}"):
        try:
            plan = container_plan(parse_topology(field.replace("@", toml(value))), ADA)
        except SlurmError:
            continue
        files = {name: file.text for name, file in rendered(plan).items()} | host_files(plan)
        for name, content in files.items():
            assert "\0" not in content
            if name.endswith(".yml"):
                assert yaml.safe_load(content)["services"]
            elif name.endswith(".sh") and not name.endswith("entrypoint.sh"):
                run(host, content)


@functools.cache  # most scripts have nothing of the field in them
def run(host: Path, script: str) -> None:
    folder = host / "hosts"
    (folder / "secrets").mkdir(parents=True, exist_ok=True)
    (folder / "join.sh").write_text(script)
    safe = {"PATH": f"{host}/bin:{os.environ['PATH']}", "HOME": str(host)}
    done = subprocess.run(
        ["sh", str(folder / "join.sh")],
        env=safe,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert list(host.rglob("canary")) == []
