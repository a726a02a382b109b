"""`slurm bridge`: run the bridge, print what installs it, and say what is wrong or going on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from slurm.cli.frame import ONE_OR_MORE
from slurm.errors import ConfigError
from slurm.extras import needs_extra
from slurm.shutdown import Shutdown

app = App(name="bridge", help="Kubernetes pods placed by Slurm.")

_CONFIG = Path("/etc/slurm-bridge/config.yaml")
#: Seconds to give the lease back; kubelet kills after 30.
_GRACE = 25.0


def _needs_extra() -> None:
    with needs_extra("bridge", "slurm bridge"):
        import aiohttp  # noqa: F401
        import cryptography  # noqa: F401
        import prometheus_client  # noqa: F401
        import yaml  # noqa: F401


@app.command
def run(
    *,
    config: Path = _CONFIG,
    kubeconfig: Path | None = None,
    webhook_url: str = "",
    only: Annotated[str, Parameter(help="webhook, or controllers; both where not given")] = "",
    log_level: str = "info",
) -> None:
    """Run the bridge until it is stopped. Several replicas may run; one of them acts."""
    _needs_extra()
    from slurm.bridge.kube import find_access
    from slurm.bridge.service import Bridge
    from slurm.bridge.settings import read_settings

    known = {"webhook", "controllers"}
    if only and only not in known:
        raise ConfigError(f"--only is {only!r}", hint="use webhook or controllers")
    logging.basicConfig(level=log_level.upper())
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines())
    parts = frozenset({only} if only else known)
    bridge = Bridge(
        read_settings(config), find_access(kubeconfig), webhook_url=webhook_url, parts=parts
    )
    with Shutdown(grace=_GRACE) as shutdown:
        asyncio.run(_until_stopped(bridge.run(), shutdown))


async def _until_stopped(work: Any, shutdown: Shutdown) -> None:
    """SIGTERM and SIGINT end it in order: the lease is given back."""
    task = asyncio.ensure_future(work)
    with shutdown.calling(task.cancel), contextlib.suppress(asyncio.CancelledError):
        await task


class JsonLines(logging.Formatter):
    """One JSON object a line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        shown = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "part": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            shown["error"] = self.formatException(record.exc_info)
        return json.dumps(shown)


@app.command
def render(
    *,
    config: Path | None = None,
    image: str = "",
    replicas: Annotated[int, Parameter(validator=ONE_OR_MORE)] = 2,
) -> None:
    """Print all objects of an installation as YAML, for kubectl apply or a kustomize base."""
    _needs_extra()
    import msgspec

    from slurm.bridge.install import IMAGE, installation
    from slurm.bridge.settings import EXAMPLE, read_settings

    settings = read_settings(config) if config else EXAMPLE
    objects = installation(settings, image or IMAGE, replicas)
    print("---\n".join(msgspec.yaml.encode(each).decode() for each in objects), end="")


@app.command
def doctor(*, config: Path = _CONFIG, kubeconfig: Path | None = None) -> int:
    """Check Slurm, Kubernetes, the configuration and the nodes; say how to mend what is wrong."""
    _needs_extra()
    from slurm.bridge.doctor import examine
    from slurm.bridge.kube import find_access
    from slurm.bridge.settings import read_settings

    findings = asyncio.run(examine(read_settings(config), find_access(kubeconfig)))
    for finding in findings:
        print(f"{'ok  ' if finding.good else 'FAIL'} {finding.what}: {finding.detail}")
        if finding.fix:
            print(f"     fix: {finding.fix}")
    return 0 if all(f.good for f in findings) else 4


@app.command
def explain(pod: str, *, config: Path = _CONFIG, kubeconfig: Path | None = None) -> None:
    """Say where a pod is on its way, and what it waits for. POD is NAMESPACE/NAME."""
    _needs_extra()
    from slurm.bridge.doctor import explain_pod
    from slurm.bridge.kube import find_access
    from slurm.bridge.settings import read_settings

    namespace, _, name = pod.rpartition("/")
    words = explain_pod(
        read_settings(config), find_access(kubeconfig), namespace or "default", name
    )
    print("\n".join(asyncio.run(words)))
