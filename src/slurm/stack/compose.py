"""Plan -> docker-compose.yml and its overrides for other platforms, as values; pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slurm.stack.check import srun_ports
from slurm.stack.image import Image, images
from slurm.stack.plan import Node, Plan
from slurm.stack.topology import Limit
from slurm.stack.versions import at_least
from slurm.stack.yaml import Alias, Anchor

Service = dict[str, Any]

#: The first line of every file that compose and its services read.
WRITTEN = "Written by `slurm cluster render`; change cluster.toml, not this file."
NETWORK = "slurm-net"
#: Ports of containers on an internal network alone are not published: who is, joins this too.
EDGE = "slurm-edge"
ENTRY = "/usr/local/bin/slurm-entrypoint"
EXPORTER_PORT = 9341
NODE_EXPORTER_PORT = 9100
_LOGGING = {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def compose(plan: Plan) -> dict[str, Any]:
    """The whole compose file."""
    built = images(plan)
    makers: dict[str, Callable[[], Service]] = {
        "slurmctld": lambda: _controller(plan, "slurmctld"),
        "slurmctld-backup": lambda: _controller(plan, "slurmctld-backup"),
        "slurmdbd": lambda: _slurmdbd(plan),
        "mysql": lambda: _mysql(plan, built["database"]),
        "slurmrestd": lambda: _slurmrestd(plan),
        "login": lambda: _login(plan),
        "prometheus": lambda: _prometheus(plan, built["monitoring"]),
        "grafana": lambda: _grafana(plan),
        "slurm-exporter": lambda: _slurm_exporter(plan),
        "node-exporter": lambda: _node_exporter(plan, built["monitoring"]),
    }
    services = {name: make() for name, make in makers.items() if name in plan.addresses}
    # The database first, then who needs it: the order in which they come up is the order to read.
    first = [name for name in ("mysql", "slurmdbd") if name in services]
    ordered = {name: services[name] for name in [*first, *services]}
    ordered.update({node.hostname: _slurmd(plan, node) for node in plan.on_host("")})
    return {
        "name": plan.topology.name,
        "x-hosts": Anchor("hosts", [f"{n}:{a}" for n, a in host_addresses(plan).items()]),
        "x-service": Anchor("service", any_service()),
        "x-slurm": Anchor("slurm", slurm_service(plan, built["slurm"])),
        "services": ordered,
        "networks": _networks(plan),
        "volumes": {name: {} for name in named_volumes(ordered)},
        "secrets": {name: {"file": f"./secrets/{name}"} for name in secret_names(plan)},
    }


def host_addresses(plan: Plan) -> dict[str, str]:
    """Every name and its address: daemons look both up, and must not wait for a resolver."""
    return {**plan.addresses, **{node.hostname: node.address for node in plan.joined}}


def secret_names(plan: Plan) -> list[str]:
    """The secrets of a cluster; each is a file of mode 0600 in its own folder."""
    auth = "munge.key" if plan.auth == "munge" else "slurm.key"
    wanted = {
        auth: True,
        "jwt_hs256.key": plan.topology.auth.jwt,
        "database_password": plan.slurmdbd_port is not None,
        "grafana_password": "grafana" in plan.addresses,
    }
    return [name for name, there in wanted.items() if there]


def any_service() -> Service:
    """What all services have in common."""
    return {
        # Something must reap what a job leaves behind: slurmd as process 1 does not.
        "init": True,
        "restart": "unless-stopped",
        "logging": _LOGGING,
        "extra_hosts": Alias("hosts"),
    }


def _image(image: Image) -> Service:
    build = {"context": ".", "dockerfile": "Containerfile", "target": image.target}
    return {"image": image.name, "build": {**build, "args": dict(image.arguments)}}


def slurm_service(plan: Plan, image: Image) -> Service:
    """What the services of Slurm have in common."""
    users = ",".join(f"{u.name}:{u.uid}:{u.gid}" for u in plan.users)
    environment = {
        "SLURM_AUTH": plan.auth,
        "SLURM_CLUSTER": plan.topology.name,
        "SLURM_USERS": users,
        "SLURM_SHARED": plan.topology.shared.path,
        "SLURMCTLD_PORT": str(plan.slurmctld_port),
    }
    if len(plan.controllers) > 1:
        environment["SLURM_CONTROLLERS"] = " ".join(name for name, _ in plan.controllers)
    if plan.auth == "slurm":
        # auth/slurm looks in /etc/slurm otherwise, and no secret lies there.
        environment["SLURM_SACK_KEY"] = f"{plan.paths.keys}/slurm.key"
    if plan.several_hosts:
        low, high = srun_ports(plan.topology)
        environment["SRUN_PORTS"] = f"{low}-{high}"
    shared = Anchor("environment", environment)
    return {"<<": Alias("service"), **_image(image), "environment": shared}


def _health(role: str, start: str = "60s") -> Service:
    return {
        "test": ["CMD", ENTRY, "health", role],
        "interval": "15s",
        "timeout": "15s",
        "retries": 4,
        "start_period": start,
    }


def _after(plan: Plan, *names: str) -> Service:
    # podman runs no health checks by itself, so nothing may wait for one; entry points wait.
    docker = plan.topology.engine == "docker"
    condition = "service_healthy" if docker else "service_started"
    there = [name for name in names if name in plan.addresses]
    return {"depends_on": {name: {"condition": condition} for name in there}} if there else {}


def _limits(limit: Limit) -> Service:
    found: Service = {"mem_limit": f"{limit.memory}m"}
    return {**found, "cpus": limit.cpus} if limit.cpus else found


def _service(plan: Plan, name: str, role: str, base: str = "slurm") -> Service:
    return {
        "<<": Alias(base),
        "container_name": f"{plan.topology.name}-{name}",
        "hostname": name,
        "command": [role],
        "networks": {NETWORK: {"ipv4_address": plan.addresses[name]}},
    }


def _published(plan: Plan, name: str, *ports: str) -> Service:
    inner = {NETWORK: {"ipv4_address": plan.addresses[name]}}
    return {"networks": {**inner, EDGE: {}}, "ports": list(ports)}


def _auth_secret(plan: Plan) -> str:
    return "munge.key" if plan.auth == "munge" else "slurm.key"


def _key_secrets(plan: Plan) -> list[str]:
    return [_auth_secret(plan), *(["jwt_hs256.key"] if plan.topology.auth.jwt else [])]


def _controller(plan: Plan, name: str) -> Service:
    topology = plan.topology
    outside = {}
    if plan.several_hosts and name == "slurmctld":
        port = plan.slurmctld_port
        outside = _published(plan, name, f"{topology.network.address}:{port}:{port}")
    return {
        **_service(plan, name, "slurmctld"),
        **outside,
        "volumes": ["./shared:/etc/slurm:ro", f"{topology.controller.state}:{plan.paths.state}"],
        "secrets": _key_secrets(plan),
        **_after(plan, "slurmdbd"),
        "healthcheck": _health("slurmctld"),
        # It writes its state when it is asked to end.
        "stop_grace_period": "2m",
        **_limits(topology.limits.slurmctld),
    }


def _slurmdbd(plan: Plan) -> Service:
    database = plan.topology.database
    return {
        **_service(plan, "slurmdbd", "slurmdbd"),
        **_environment(DATABASE_HOST=plan.storage_host, DATABASE_PORT=database.port),
        # Its own configuration is mounted here alone.
        "volumes": ["./shared:/etc/slurm:ro", "./slurmdbd:/etc/slurmdbd:ro"],
        "secrets": [*_key_secrets(plan), "database_password"],
        **_after(plan, "mysql"),
        # A new release may convert the database for a long time before it answers.
        "healthcheck": _health("slurmdbd", start="30m"),
        "stop_grace_period": "2m",
        **_limits(plan.topology.limits.slurmdbd),
    }


def _own_ports(plan: Plan, service: str) -> dict[str, str]:
    if not plan.several_hosts:
        return {}
    low, high = plan.srun_ports(service)
    return {"SRUN_PORTS": f"{low}-{high}"}


def _srun_ports(plan: Plan, service: str) -> list[str]:
    address = plan.topology.network.address
    return [f"{address}:{ports}:{ports}" for ports in _own_ports(plan, service).values()]


def _environment(**more: object) -> Service:
    if not more:
        return {}
    return {"environment": {"<<": Alias("environment"), **{k: str(v) for k, v in more.items()}}}


def _mysql(plan: Plan, image: Image) -> Service:
    database = plan.topology.database
    return {
        **_service(plan, "mysql", "mysql", base="service"),
        **_image(image),
        "environment": {
            "DATABASE_NAME": database.name,
            "DATABASE_USER": database.user,
            "DATABASE_BUFFER_POOL": f"{database.buffer_pool}M",
        },
        "volumes": ["database:/var/lib/mysql"],
        "secrets": ["database_password"],
        "healthcheck": _health("mysql"),
        "stop_grace_period": "2m",
        **_limits(plan.topology.limits.mysql),
    }


def _slurmrestd(plan: Plan) -> Service:
    rest = plan.topology.rest
    return {
        **_service(plan, "slurmrestd", "slurmrestd"),
        **_published(plan, "slurmrestd", f"{rest.address}:{rest.port}:{rest.port}"),
        # Else it cuts the list of an array's waiting tasks after 64 letters.
        **_environment(SLURMRESTD_PORT=rest.port, SLURM_BITSTR_LEN=0, **_openapi(plan)),
        "volumes": ["./shared:/etc/slurm:ro"],
        **_after(plan, "slurmctld", "slurmdbd"),
        "healthcheck": _health("slurmrestd"),
        **_limits(plan.topology.limits.slurmrestd),
    }


def _openapi(plan: Plan) -> dict[str, str]:
    """The half of slurmrestd that asks slurmdbd ends it where there is none."""
    if plan.topology.accounting:
        return {}
    return {
        "SLURMRESTD_OPENAPI_PLUGINS": "slurmctld" if at_least(plan.version, "23.11") else "v0.0.38"
    }


def _login(plan: Plan) -> Service:
    login = plan.topology.login
    return {
        **_service(plan, "login", "login"),
        **_published(
            plan, "login", f"{login.address}:{login.port}:22", *_srun_ports(plan, "login")
        ),
        **_environment(**_own_ports(plan, "login")),
        "volumes": [
            "./shared:/etc/slurm:ro",
            "./login:/etc/ssh/authorized_keys:ro",
            "login-keys:/etc/ssh/keys",
            _shared(plan, ""),
        ],
        "secrets": [_auth_secret(plan)],
        **_after(plan, "slurmctld"),
        "healthcheck": _health("login"),
        **_limits(plan.topology.limits.login),
    }


def _shared(plan: Plan, host: str) -> str:
    shared = plan.topology.shared
    found = plan.topology.host(host)
    source = found.shared_source if found and found.shared_source else shared.source
    return f"{source}:{shared.path}"


def _slurmd(plan: Plan, node: Node) -> Service:
    volumes = ["./shared:/etc/slurm:ro", *node_volumes(plan, node)]
    return {
        **_service(plan, node.hostname, "slurmd"),
        **_outside(plan, node),
        **node_service(plan, node, volumes, **_own_ports(plan, node.hostname)),
    }


def node_volumes(plan: Plan, node: Node) -> list[str]:
    """Where a node keeps what it has received, and the shared directory where its host has it."""
    host = plan.topology.host(node.host)
    shared = [_shared(plan, node.host)] if host is None or host.shared else []
    return [f"spool-{node.name}:{plan.paths.spool}", *shared]


def node_service(plan: Plan, node: Node, volumes: list[str], **environment: str) -> Service:
    """What a node needs wherever it runs: key, limits, what holds jobs to their memory, GPUs."""
    if plan.several_hosts:
        environment["SLURM_NODE_PORT"] = str(node.port)
    service: Service = {
        **_environment(SLURM_NODE=node.name, **environment),
        "volumes": volumes,
        "secrets": [_auth_secret(plan)],
        **({} if node.host else _after(plan, "slurmctld")),
        "healthcheck": _health("slurmd"),
        **_limits(Limit(node.limit, node.cpus)),
    }
    if node.platform:
        service["platform"] = node.platform
    return {**service, **_privileges(plan, volumes), **_devices(plan, node)}


def _outside(plan: Plan, node: Node) -> Service:
    if not plan.several_hosts:
        return {}
    port = f"{plan.topology.network.address}:{node.port}:{node.port}"
    return _published(plan, node.hostname, port, *_srun_ports(plan, node.hostname))


def _privileges(plan: Plan, volumes: list[str]) -> Service:
    if not plan.cgroups.plugin:
        return {}
    if plan.cgroups.plugin != "cgroup/v1":
        return {"privileged": True, "cgroup": "private"}
    whole = "/sys/fs/cgroup:/sys/fs/cgroup:rw"
    return {"privileged": True, "cgroup": "host", "volumes": [*volumes, whole]}


def _devices(plan: Plan, node: Node) -> Service:
    """A node's own GPUs, each named: `count` would give every node the first ones."""
    if not node.gpus:
        return {}
    if node.gpus[0].vendor == "amd":
        return {"devices": ["/dev/kfd:/dev/kfd", *(f"{g.file}:{g.file}" for g in node.gpus)]}
    numbers = [gpu.file.removeprefix("/dev/nvidia") for gpu in node.gpus]
    if plan.topology.engine == "podman":
        return {"devices": [f"nvidia.com/gpu={number}" for number in numbers]}
    wanted = {"driver": "nvidia", "device_ids": numbers, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [wanted]}}}}


def reserved_devices(service: Service) -> list[dict[str, Any]]:
    """The GPUs that a service of docker's has, as compose writes them."""
    found = service.get("deploy", {}).get("resources", {}).get("reservations", {})
    return list(found.get("devices", ()))


def _prometheus(plan: Plan, image: Image) -> Service:
    monitoring = plan.topology.monitoring
    port = f"{monitoring.address}:{monitoring.prometheus_port}:9090"
    return {
        **_service(plan, "prometheus", "prometheus", base="service"),
        **_image(image),
        **_published(plan, "prometheus", port),
        "environment": {"PROMETHEUS_KEEP": monitoring.keep},
        "volumes": ["./prometheus:/etc/prometheus:ro", "prometheus:/var/lib/prometheus"],
        "healthcheck": _health("prometheus"),
        **_limits(plan.topology.limits.monitoring),
    }


def _grafana(plan: Plan) -> Service:
    monitoring = plan.topology.monitoring
    service = _service(plan, "grafana", "", base="service")
    del service["command"]
    return {
        **service,
        "image": plan.topology.images.grafana,
        # Its own user could not read the secret.
        "user": "0",
        **_published(plan, "grafana", f"{monitoring.address}:{monitoring.grafana_port}:3000"),
        "environment": {
            "GF_SECURITY_ADMIN_PASSWORD__FILE": "/run/secrets/grafana_password",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        },
        "volumes": [
            "./grafana/provisioning:/etc/grafana/provisioning:ro",
            "./grafana/dashboards:/var/lib/grafana/dashboards:ro",
            "grafana:/var/lib/grafana",
        ],
        "secrets": ["grafana_password"],
        **_after(plan, "prometheus"),
        "healthcheck": {
            **_health(""),
            "test": ["CMD", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:3000/api/health"],
        },
        **_limits(plan.topology.limits.monitoring),
    }


def _slurm_exporter(plan: Plan) -> Service:
    return {
        **_service(plan, "slurm-exporter", "slurm-exporter"),
        **_environment(EXPORTER_PORT=EXPORTER_PORT),
        "volumes": ["./shared:/etc/slurm:ro", "./exporter:/opt/slurm-sdk:ro"],
        "secrets": [_auth_secret(plan)],
        **_after(plan, "slurmctld"),
        "healthcheck": _health("slurm-exporter"),
        **_limits(plan.topology.limits.monitoring),
    }


def _node_exporter(plan: Plan, image: Image) -> Service:
    return {
        **_service(plan, "node-exporter", "node-exporter", base="service"),
        **_image(image),
        "volumes": ["/:/host:ro,rslave"],
        "healthcheck": _health("node-exporter"),
        **_limits(plan.topology.limits.monitoring),
    }


def _networks(plan: Plan) -> Service:
    inner = {"internal": True, "ipam": {"config": [{"subnet": plan.subnet}]}}
    return {NETWORK: inner, EDGE: {}}


def named_volumes(services: Mapping[str, Service]) -> list[str]:
    """The volumes that services use by name, each once."""
    sources = [v.partition(":")[0] for s in services.values() for v in s.get("volumes", ())]
    return list(dict.fromkeys(name for name in sources if not name.startswith(("/", "."))))
