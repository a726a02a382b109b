"""The life of a cluster in containers: up, down, destroy; every step can be gone over again.

What should be there follows from the record and cluster.toml. `converge` makes it so, container
by container, and leaves alone what is right already: whatever an interruption left behind, the
same command goes on from there.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slurm.errors import StackError
from slurm.stack import record as records
from slurm.stack import site, switch
from slurm.stack.advice import check_podman
from slurm.stack.build import ensure_image, ensure_pulled
from slurm.stack.check import chosen_version
from slurm.stack.containers import containers, network, volumes
from slurm.stack.converge import Say, Stack, converge, make_stack, open_stack, prove
from slurm.stack.engine import Engine, Seen
from slurm.stack.fleet import some, wait_until
from slurm.stack.image import images
from slurm.stack.ownership import check_owner
from slurm.stack.plan import auth_kind, services, subnets
from slurm.stack.ports import free_ports, is_free
from slurm.stack.preflight import check_engine
from slurm.stack.read import FILE_NAME, parse_topology, read_topology
from slurm.stack.record import PUBLISHED, Record
from slurm.stack.render import File, readable_folder, rendered, write
from slurm.stack.services import EDGE
from slurm.stack.state import locked
from slurm.stack.topology import Topology

LOGIN_KEY = "login_key"


# ---- up -----------------------------------------------------------------------------------------


def up(directory: Path, topology: Topology, text: str, say: Say) -> Stack:
    """Bring a cluster up in `directory`; `text` is its cluster.toml. Ready when a job has run."""
    check_owner(directory)
    check_engine(topology.engine)
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        record = records.load(directory) or _new_record(directory, topology)
        check_same(record, topology)
        record.ask_for(text)
        record.step(record.doing or "up")
        stack = _converged(record, say)
        settle(stack)
        return stack


def _converged(record: Record, say: Say) -> Stack:
    for last in (False, False, True):
        prepare(record, say)
        stack = make_stack(record, say)
        write_files(stack)
        try:
            converge(stack)
            break
        except StackError as error:
            # Another program may take a port between the look at it and its use.
            if last or "address already in use" not in " ".join(error.evidence):
                raise
    return stack


def _new_record(directory: Path, topology: Topology) -> Record:
    check_free(directory, topology.name, topology.engine)
    return Record(directory, topology.name, topology.engine, chosen_version(topology), site.look())


def check_free(directory: Path, name: str, engine: str) -> None:
    """Refuse a name that another cluster has: its containers would be taken for this one's."""
    taken = records.directory_of(name)
    if taken is not None and taken != directory and records.load(taken) is not None:
        raise StackError(
            f"there is a cluster {name!r} in {taken} already",
            hint='give this one another name: name = "..." in its cluster.toml',
        )
    strangers = list(Engine(engine, name).seen().values())
    if strangers and strangers[0].directory != str(directory):
        raise StackError(
            f"containers of a cluster {name!r} are there, made in {strangers[0].directory}",
            hint="give this one another name, or destroy that one",
        )


def check_same(record: Record, topology: Topology) -> None:
    """Refuse what no change of a file can do to a cluster."""
    if topology.version not in ("auto", record.version):
        raise StackError(
            f"the cluster {record.name} has Slurm {record.version}, its cluster.toml asks for "
            f"{topology.version}",
            hint=f"slurm cluster upgrade {record.name} --to {topology.version}",
        )
    subnet = topology.network.subnet
    proven = parse_topology(record.proven) if record.proven else topology
    fixed = {
        "name": (record.name, topology.name),
        "engine": (record.engine, topology.engine),
        "network.subnet": (record.site.subnet or subnet, subnet),
        # An empty place would be an empty queue.
        "controller.state": (proven.controller.state, topology.controller.state),
        # Daemons that run would not know each other from the first one that changes.
        "auth.kind": (auth_kind(proven, record.version), auth_kind(topology, record.version)),
    }
    for key, (now, asked) in fixed.items():
        if asked not in (now, "auto"):
            raise StackError(
                f"{key} = {asked!r}, but the cluster in {record.directory} has {now!r}, which "
                "cannot be changed",
                hint=f"write {key} = {now!r} again, or make another cluster in another directory",
            )


def prepare(record: Record, say: Say, *, save: bool = True) -> None:
    """Networks, ports, images and volumes: what must be there before a container."""
    engine = Engine(record.engine, record.name)
    if record.engine == "podman":
        check_podman()
    inner = network(record.name)
    if not engine.has_network(inner):
        asked = record.topology().network.subnet
        count = len(record.plan().nodes)
        before = [record.site.subnet] if record.site.subnet else []
        choice = [asked] if asked != "auto" else [*before, *subnets(record.name, count)]
        record.site = replace(record.site, subnet=engine.make_inner_network(inner, choice))
    engine.make_network(network(record.name, EDGE))
    _choose_ports(record, engine, say)
    record.site = replace(record.site, without=_not_to_be_had(record))
    if save:
        record.save()
        if records.directory_of(record.name) is None:
            # What does not come up must be looked at, and removed, by its name.
            record.register({})
    plan = record.plan()
    wanted = {c.image for c in containers(plan, record.directory)}
    for image in images(plan).values():
        suite = plan.suite if image.target == "slurm" else plan.topology.database.suite
        if image.name in wanted and ensure_image(record.engine, image, suite):
            say(f"built {image.name}")
    there = engine.volumes()
    for volume in volumes(plan):
        if volume not in there:
            engine.make_volume(volume)


def _not_to_be_had(record: Record) -> tuple[str, ...]:
    """Grafana alone has an image that we cannot make; a cluster does without it."""
    topology = record.topology()
    wanted = "grafana" in services(topology)
    there = wanted and ensure_pulled(record.engine, topology.images.grafana)
    return ("grafana",) if wanted and not there else ()


def _choose_ports(record: Record, engine: Engine, say: Say) -> None:
    """A port that another program has is replaced by a free one; our own container's is ours."""
    seen, asked = engine.seen(), read_topology(record.directory / FILE_NAME)
    for service in set(services(asked)).intersection(PUBLISHED):
        table, key = PUBLISHED[service]
        port = getattr(getattr(asked, table), key)
        now = record.port(service, port)
        running = service in seen and seen[service].running and service in record.ports
        if running and record.ports[service][0] == port:
            continue
        found = now if is_free(now) else free_ports(1)[0]
        if found != now:
            say(f"port {now} is taken: {service} is on {found}")
        record.ports[service] = (port, found)


def write_files(stack: Stack) -> None:
    """Secrets and files; Slurm's configuration is put into use as one."""
    directory = stack.record.directory
    files = rendered(stack.plan)
    shared = {n.removeprefix("shared/"): f.text for n, f in files.items() if _is_shared(n)}
    write(directory, {n: f for n, f in files.items() if not _is_shared(n)})
    subprocess.run([str(directory / "make-secrets.sh")], check=True, timeout=60)
    write(directory, _login_keys(stack, files))
    readable_folder(directory / "shared")
    switch.switch(directory / "shared", shared)


def _is_shared(name: str) -> bool:
    return name.startswith("shared/")


def _login_keys(stack: Stack, files: dict[str, File]) -> dict[str, File]:
    """The key by which this package itself logs in, beside the user's own."""
    if "login" not in stack.plan.addresses:
        return {}
    private = stack.record.directory / "secrets" / LOGIN_KEY
    if not private.exists():
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "slurm-sdk", "-f"]
        subprocess.run([*words, str(private)], check=True, timeout=60)
    name = f"login/{stack.plan.users[0].name}"
    own = files[name].text if name in files else ""
    return {name: File(own + private.with_suffix(".pub").read_text())}


def settle(stack: Stack) -> None:
    """See that the cluster does its work, and write down how it is reached."""
    prove(stack)
    register(stack)
    stack.record.done()


# ---- who may use it -----------------------------------------------------------------------------


def register(stack: Stack) -> None:
    """Write down how the login node is reached, its host key included."""
    record = stack.record
    if "login" not in stack.plan.addresses:
        record.register({})
        return
    address, port = stack.plan.topology.login.address, stack.plan.topology.login.port
    said = stack.engine.execute(stack.container("login").name, "cat", "/etc/ssh/keys/ed25519.pub")
    if said.code != 0:
        raise StackError("the login node has no host key", evidence=said.last)
    hosts = record.directory / "known_hosts"
    hosts.write_text(f"[{address}]:{port} {said.text.strip()}\n")
    record.register(
        {
            "backend_type": "ssh",
            "hostname": address,
            "port": port,
            "username": stack.plan.users[0].name,
            # Nodes may reach no index of packages, and their Python need not be the caller's: code
            # is sent as it is, and found by its name.
            "packaging": "source",
            "python": "/usr/bin/python3",
            "identity_file": str(record.directory / "secrets" / LOGIN_KEY),
            "ssh_options": {
                "UserKnownHostsFile": str(hosts),
                "StrictHostKeyChecking": "yes",
                "IdentitiesOnly": "yes",
            },
        }
    )


# ---- down and destroy ---------------------------------------------------------------------------


def down(directory: Path, say: Say, jobs: str = "wait", patience: float = 3600) -> None:
    """Take a cluster down; state, accounting and queue stay on its volumes.

    Jobs in a node's container end with it, so `jobs` says what becomes of them: `wait` for them,
    `requeue` them, or `end` them. Each daemon gets SIGTERM and time to save, nodes first, the
    database last. Nothing happens where it is down already.
    """
    stack = open_stack(directory, say)
    with locked(directory):
        stack.record.step("down")
        seen = stack.engine.seen()
        if jobs != "end" and _controlled(seen):
            _empty(stack, requeue=jobs == "requeue", patience=patience)
        grace = {c.service: c.grace for c in stack.containers}
        order = [c.service for c in reversed(stack.containers)]
        # A service that the topology no longer has goes first.
        for one in sorted(seen.values(), key=lambda s: [*order, s.service].index(s.service)):
            if one.state not in ("exited", "created", "configured"):
                stack.engine.stop(one.name, grace.get(one.service, 30))
                say(f"stopped {one.service}")
        stack.record.step("")


def running_jobs(directory: Path) -> list[str]:
    """The jobs that would end with the nodes of a cluster; none where no controller runs."""
    stack = open_stack(directory)
    return stack.fleet.running(stack.nodes) if _controlled(stack.engine.seen()) else []


def _controlled(seen: dict[str, Seen]) -> bool:
    return any(one.running for name, one in seen.items() if name.startswith("slurmctld"))


def _empty(stack: Stack, *, requeue: bool, patience: float) -> None:
    """No job on any node, and none that starts; `up` brings the nodes back into service."""
    fleet = stack.fleet
    fleet.drain(stack.nodes, "the cluster is taken down")
    jobs = fleet.running(stack.nodes)
    if jobs and requeue:
        kept = fleet.requeue(jobs)
        stack.say(f"back in the queue: {len(jobs) - len(kept)} of {some(jobs)}")
    if not wait_until(_waiting(stack), patience):
        still = fleet.running(stack.nodes)
        fleet.resume(stack.nodes)
        raise StackError(
            f"{len(still)} jobs still run after {patience:g} s; the cluster goes on",
            evidence=[some(still)],
            hint="give them more time, --requeue them, or end them with --now",
        )


def _waiting(stack: Stack) -> Callable[[], bool]:
    """Whether all jobs have ended; says which have not, whenever those are others."""
    told: list[str] = []

    def ended() -> bool:
        jobs = stack.fleet.running(stack.nodes)
        if jobs and jobs != told:
            stack.say(f"waiting for {some(jobs)}")
        told[:] = jobs
        return not jobs

    return ended


def destroy(directory: Path, say: Say) -> None:
    """Remove a cluster with its queue, its accounting and its files; cluster.toml and backups stay.

    Only what carries this cluster's labels is touched.
    """
    stack = open_stack(directory, say)
    with locked(directory):
        stack.record.step("destroy")
        for one in stack.engine.seen().values():
            stack.engine.call("kill", one.name)
            stack.engine.remove(one.name)
        for kind in ("volume", "network"):
            for name in stack.engine.owned(kind):
                stack.engine.must(kind, "rm", name, problem=f"the {kind} {name} stays")
        for name in {Path(name).parts[0] for name in rendered(stack.plan)} | {"known_hosts"}:
            path = directory / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        stack.record.forget()
    say(f"the cluster {stack.record.name} is gone")
