"""The client's own SDK as a wheel: what meets a project's requirement on `slurm-sdk`."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import zipfile

from slurm.packaging.environments import Parcel
from slurm.packaging.sdk import sdk_files, sdk_hash
from slurm.packaging.tree import code_folder
from slurm.rundir import make_private_folder, write_atomically


def sdk_wheel() -> Parcel:
    """The wheel, made once per content of the SDK."""
    from slurm import __version__

    name = f"slurm_sdk-{__version__}-py3-none-any.whl"
    path = os.path.join(code_folder("wheels"), f"sdk-{sdk_hash()}", name)
    if not os.path.exists(path):
        make_private_folder(os.path.dirname(path))
        write_atomically(path, _content(__version__))
    return Parcel(path, f"sdk{sdk_hash()}", name)


def _content(version: str) -> bytes:
    info = f"slurm_sdk-{version}.dist-info"
    # Cloudpickle comes with the copy of the SDK that every job has in front of its path.
    files = {n: data for n, data in sdk_files().items() if n.startswith("slurm/")}
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: slurm-sdk\nVersion: {version}\n"
    ).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = [f"{name},{_hash(data)},{len(data)}" for name, data in files.items()]
    record.append(f"{info}/RECORD,,")
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            # A fixed time: the same content is the same wheel.
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
