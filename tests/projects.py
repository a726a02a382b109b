"""Small projects for tests of packaging: each has a build backend of its own, so that building
needs nothing from outside.
"""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

#: A build backend (PEP 517) in thirty lines: packs the folder of the package.
BACKEND = """
import base64, hashlib, os, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info"
    files = {{}}
    for folder, _, names in os.walk("{name}"):
        for n in sorted(names):
            if n.endswith(".py"):
                with open(os.path.join(folder, n), "rb") as f:
                    files[os.path.join(folder, n)] = f.read()
    lines = ["Metadata-Version: 2.1", "Name: {name}", "Version: {version}"]
    lines += ["Requires-Dist: " + r for r in {requires!r}]
    files[info + "/METADATA"] = ("\\n".join(lines) + "\\n").encode()
    files[info + "/WHEEL"] = b"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += "%s,sha256=%s,%d\\n" % (path, digest, len(data))
    files[info + "/RECORD"] = (record + info + "/RECORD,,\\n").encode()
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    with open(os.environ.get("COUNT_BUILDS", os.devnull), "a") as f:
        f.write("built\\n")
    return name
"""


def make_project(
    root: Path, name: str, code: str, requires: tuple[str, ...] = (), version: str = "0.1"
) -> Path:
    """A project with one package of this name and code; returns its folder."""
    (root / name).mkdir(parents=True)
    (root / name / "__init__.py").write_text(textwrap.dedent(code))
    backend = BACKEND.format(name=name, version=version, requires=list(requires))
    (root / "backend.py").write_text(backend)
    (root / "pyproject.toml").write_text(
        f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n'
    )
    return root


def git(root: Path, *words: str) -> str:
    """Run git in a folder, as nobody in particular."""
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, *words], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
