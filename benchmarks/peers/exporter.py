"""The exporter with a collector that is told when to collect: `exporter.py`."""

import os
import sys
import threading
import time
from typing import Any

from protocol import serve

import slurm
from slurm.api.connect import connect
from slurm.monitor import Collector
from slurm.monitor.exporter import Exporter, ExporterServer
from slurm.monitor.serving import TURN
from slurm.monitor.webconfig import WebConfig


def main() -> None:
    sys.setswitchinterval(TURN)
    collector = Collector(connect("local", "~/slurm_jobs"))
    server = ExporterServer(Exporter(collector), "127.0.0.1", 0, WebConfig())
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def play(order: str) -> dict[str, Any]:
        began, calls = time.monotonic(), collector.view().health.commands
        cpu, count = [], 0
        while count == 0 or time.monotonic() < began + float(order):
            before = _cpu()
            if not collector.collect():
                raise SystemExit(collector.view().health.problem)
            cpu.append(_cpu() - before)
            count += 1
        asked = collector.view().health.commands - calls
        snapshot = collector.view().snapshot
        assert snapshot is not None
        with open("/proc/self/status") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        return {"cpu": cpu, "calls": asked / count, "peak_kib": peak, "jobs": len(snapshot.rows)}

    serve({"version": slurm.__version__, "port": server.server_address[1]}, play)


def _cpu() -> float:
    """CPU seconds of this process and of the commands that it has waited for."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
