"""The ways to slurmrestd: TLS with an authority of its own, and a socket in the file system."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from bridge_bed import Bed
from bridge_faults import Road
from bridge_slurm import SlurmRest

from slurm.bridge.certificates import Certificate, make_certificate

World = Callable[..., None]
pytestmark = pytest.mark.full


def _serving(made: Certificate, folder: Path) -> ssl.SSLContext:
    for name, content in (("crt", made.certificate), ("key", made.key)):
        (folder / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "crt", folder / "key")
    return context


def test_slurmrestd_behind_tls_is_believed_only_with_the_right_authority(
    world: World, slurm_rest: SlurmRest, tmp_path: Path
) -> None:
    """TLS ends in front of slurmrestd, as it does where a proxy or a service mesh has it."""
    made, other = make_certificate(["127.0.0.1"]), make_certificate(["127.0.0.1"])
    tls = _serving(made, tmp_path)
    for name, authority in (("right", made.authority), ("wrong", other.authority)):
        (tmp_path / name).write_bytes(authority)

    async def scenario(bed: Bed) -> None:
        async with Road(slurm_rest.rest_port, tls) as road:
            url = f"https://127.0.0.1:{road.port}"
            wrong = await bed.bridge(slurm={"url": url, "caFile": str(tmp_path / "wrong")})
            await bed.until(
                lambda: wrong.errors("RestUnreachable") >= 2, "it refuses the certificate"
            )
            assert wrong.bridge.problems() == ["Slurm does not answer"]
            await wrong.stop()
            await bed.bridge(slurm={"url": url, "caFile": str(tmp_path / "right")})
            await bed.registered()
            await bed.create("p")
            await bed.running("p")

    world(scenario, nodes=1)


def test_slurmrestd_on_a_socket_of_this_machine(world: World, slurm_rest: SlurmRest) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(slurm={"url": f"unix:{slurm_rest.socket}"})
        await bed.registered()
        await bed.create("p")
        await bed.running("p")

    world(scenario, nodes=1)
