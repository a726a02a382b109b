"""Whether the programs are here that a cluster is made of: asked before anything is made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable

from slurm import programs
from slurm.errors import StackError
from slurm.programs import ACCOUNTING, NATIVE, Program
from slurm.stack.advice import podman_settings

#: Settings of containers.conf that put another program in the place of one of these.
_REPLACED = {
    "catatonit": r"init_path|helper_binaries_dir",
    "netavark": r"network_backend|helper_binaries_dir",
    "iptables": r"network_backend|firewall_driver|helper_binaries_dir",
    "nft": r"network_backend|firewall_driver|helper_binaries_dir",
    "runc": r"runtime|runtimes",
}


def check_engine(engine: str) -> None:
    """Refuse an engine whose programs are not all here, naming all packages at once."""
    lacking = lacking_for(engine)
    if lacking:
        raise missing_programs(
            f"engine={engine}", lacking, "or use another engine: slurm cluster up --engine native"
        )


def check_native(accounting: bool) -> None:
    """The same for a cluster of plain processes."""
    parts = (NATIVE, ACCOUNTING) if accounting else (NATIVE,)
    lacking = programs.missing(*parts)
    if lacking:
        raise missing_programs("engine=native", lacking)


def missing_programs(user: str, lacking: Iterable[Program], instead: str = "") -> StackError:
    """What to say about programs that are not here."""
    lacking = list(lacking)
    names = ", ".join(program.name for program in lacking)
    fix = programs.install_command(lacking)
    return StackError(
        f"{user} needs programs that are not installed: {names}",
        evidence=programs.said(lacking),
        hint=f"{fix}; {instead}" if instead else fix,
    )


def lacking_for(engine: str) -> list[Program]:
    """The programs of an engine that are not here and that its settings do not replace."""
    lacking = programs.missing(f"engine={engine}")
    # Elsewhere than on Linux podman is the client of a machine of its own.
    if engine != "podman" or sys.platform != "linux":
        return [program for program in lacking if program.name == engine]
    if programs.find("crun") is not None:
        lacking = [program for program in lacking if program.name != "runc"]
    settings = podman_settings()
    firewall = _firewall()
    return [
        program
        for program in lacking
        if not (program.name in ("iptables", "nft") and program.name != firewall)
        and not (
            program.name in _REPLACED
            and re.search(rf"^\s*({_REPLACED[program.name]})\s*=", settings, re.MULTILINE)
        )
    ]


def _firewall() -> str:
    """The program with which netavark writes its rules; older ones know iptables alone."""
    netavark = programs.find("netavark")
    if netavark is None:
        return "iptables"
    try:
        done = subprocess.run([netavark, "version"], capture_output=True, text=True, timeout=30)
        driver = json.loads(done.stdout).get("default_fw_driver")
    except (OSError, subprocess.SubprocessError, ValueError):
        return "iptables"
    return "nft" if driver == "nftables" else "iptables"
