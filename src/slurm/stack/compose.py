"""Plan -> docker-compose.yml and its overrides for other platforms, as values; pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurm.stack.image import Image, images
from slurm.stack.plan import Node, Plan
from slurm.stack.services import (
    EDGE,
    EXPORTER_PORT,
    NETWORK,
    Service,
    after,
    any_service,
    auth_secret,
    built_from,
    health,
    key_secrets,
    limits,
    named_volumes,
    own_service,
    published,
    slurm_service,
    with_environment,
)
from slurm.stack.topology import Limit
from slurm.stack.versions import at_least
from slurm.stack.yaml import Anchor


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
    wanted = {
        auth_secret(plan): True,
        "jwt_hs256.key": plan.topology.auth.jwt,
        "database_password": plan.slurmdbd_port is not None,
        "grafana_password": "grafana" in plan.addresses,
    }
    return [name for name, there in wanted.items() if there]


def _controller(plan: Plan, name: str) -> Service:
    topology = plan.topology
    outside = {}
    if plan.several_hosts and name == "slurmctld":
        port = plan.slurmctld_port
        outside = published(plan, name, f"{topology.network.address}:{port}:{port}")
    return {
        **own_service(plan, name, "slurmctld"),
        **outside,
        "volumes": ["./shared:/etc/slurm:ro", f"{topology.controller.state}:{plan.paths.state}"],
        "secrets": key_secrets(plan),
        **after(plan, "slurmdbd"),
        "healthcheck": health("slurmctld"),
        # It writes its state when it is asked to end.
        "stop_grace_period": "2m",
        **limits(topology.limits.slurmctld),
    }


def _slurmdbd(plan: Plan) -> Service:
    database = plan.topology.database
    return {
        **own_service(plan, "slurmdbd", "slurmdbd"),
        **with_environment(DATABASE_HOST=plan.storage_host, DATABASE_PORT=database.port),
        # Its own configuration is mounted here alone.
        "volumes": ["./shared:/etc/slurm:ro", "./slurmdbd:/etc/slurmdbd:ro"],
        "secrets": [*key_secrets(plan), "database_password"],
        **after(plan, "mysql"),
        # A new release may convert the database for a long time before it answers.
        "healthcheck": health("slurmdbd", start="30m"),
        "stop_grace_period": "2m",
        **limits(plan.topology.limits.slurmdbd),
    }


def _own_ports(plan: Plan, service: str) -> dict[str, str]:
    if not plan.several_hosts:
        return {}
    low, high = plan.srun_ports(service)
    return {"SRUN_PORTS": f"{low}-{high}"}


def _srun_ports(plan: Plan, service: str) -> list[str]:
    address = plan.topology.network.address
    return [f"{address}:{ports}:{ports}" for ports in _own_ports(plan, service).values()]


def _mysql(plan: Plan, image: Image) -> Service:
    database = plan.topology.database
    return {
        **own_service(plan, "mysql", "mysql", base="service"),
        **built_from(image),
        "environment": {
            "DATABASE_NAME": database.name,
            "DATABASE_USER": database.user,
            "DATABASE_BUFFER_POOL": f"{database.buffer_pool}M",
        },
        "volumes": ["database:/var/lib/mysql"],
        "secrets": ["database_password"],
        "healthcheck": health("mysql"),
        "stop_grace_period": "2m",
        **limits(plan.topology.limits.mysql),
    }


def _slurmrestd(plan: Plan) -> Service:
    rest = plan.topology.rest
    return {
        **own_service(plan, "slurmrestd", "slurmrestd"),
        **published(plan, "slurmrestd", f"{rest.address}:{rest.port}:{rest.port}"),
        # Else it cuts the list of an array's waiting tasks after 64 letters.
        **with_environment(SLURMRESTD_PORT=rest.port, SLURM_BITSTR_LEN=0, **_openapi(plan)),
        "volumes": ["./shared:/etc/slurm:ro"],
        **after(plan, "slurmctld", "slurmdbd"),
        "healthcheck": health("slurmrestd"),
        **limits(plan.topology.limits.slurmrestd),
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
        **own_service(plan, "login", "login"),
        **published(plan, "login", f"{login.address}:{login.port}:22", *_srun_ports(plan, "login")),
        **with_environment(**_own_ports(plan, "login")),
        "volumes": [
            "./shared:/etc/slurm:ro",
            "./login:/etc/ssh/authorized_keys:ro",
            "login-keys:/etc/ssh/keys",
            _shared(plan, ""),
        ],
        "secrets": [auth_secret(plan)],
        **after(plan, "slurmctld"),
        "healthcheck": health("login"),
        **limits(plan.topology.limits.login),
    }


def _shared(plan: Plan, host: str) -> str:
    shared = plan.topology.shared
    found = plan.topology.host(host)
    source = found.shared_source if found and found.shared_source else shared.source
    return f"{source}:{shared.path}"


def _slurmd(plan: Plan, node: Node) -> Service:
    volumes = ["./shared:/etc/slurm:ro", *node_volumes(plan, node)]
    return {
        **own_service(plan, node.hostname, "slurmd"),
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
        **with_environment(SLURM_NODE=node.name, **environment),
        "volumes": volumes,
        "secrets": [auth_secret(plan)],
        **({} if node.host else after(plan, "slurmctld")),
        "healthcheck": health("slurmd"),
        **limits(Limit(node.limit, node.cpus)),
    }
    if node.platform:
        service["platform"] = node.platform
    return {**service, **_privileges(plan, volumes), **_devices(plan, node)}


def _outside(plan: Plan, node: Node) -> Service:
    if not plan.several_hosts:
        return {}
    port = f"{plan.topology.network.address}:{node.port}:{node.port}"
    return published(plan, node.hostname, port, *_srun_ports(plan, node.hostname))


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
        **own_service(plan, "prometheus", "prometheus", base="service"),
        **built_from(image),
        **published(plan, "prometheus", port),
        "environment": {"PROMETHEUS_KEEP": monitoring.keep},
        "volumes": ["./prometheus:/etc/prometheus:ro", "prometheus:/var/lib/prometheus"],
        "healthcheck": health("prometheus"),
        **limits(plan.topology.limits.monitoring),
    }


def _grafana(plan: Plan) -> Service:
    monitoring = plan.topology.monitoring
    service = own_service(plan, "grafana", "", base="service")
    del service["command"]
    return {
        **service,
        "image": plan.topology.images.grafana,
        # Its own user could not read the secret.
        "user": "0",
        **published(plan, "grafana", f"{monitoring.address}:{monitoring.grafana_port}:3000"),
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
        **after(plan, "prometheus"),
        "healthcheck": {
            **health(""),
            "test": ["CMD", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:3000/api/health"],
        },
        **limits(plan.topology.limits.monitoring),
    }


def _slurm_exporter(plan: Plan) -> Service:
    return {
        **own_service(plan, "slurm-exporter", "slurm-exporter"),
        **with_environment(EXPORTER_PORT=EXPORTER_PORT),
        "volumes": ["./shared:/etc/slurm:ro", "./exporter:/opt/slurm-sdk:ro"],
        "secrets": [auth_secret(plan)],
        **after(plan, "slurmctld"),
        "healthcheck": health("slurm-exporter"),
        **limits(plan.topology.limits.monitoring),
    }


def _node_exporter(plan: Plan, image: Image) -> Service:
    return {
        **own_service(plan, "node-exporter", "node-exporter", base="service"),
        **built_from(image),
        "volumes": ["/:/host:ro,rslave"],
        "healthcheck": health("node-exporter"),
        **limits(plan.topology.limits.monitoring),
    }


def _networks(plan: Plan) -> Service:
    inner = {"internal": True, "ipam": {"config": [{"subnet": plan.subnet}]}}
    return {NETWORK: inner, EDGE: {}}
