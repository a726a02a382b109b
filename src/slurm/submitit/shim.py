"""Writes a package named `submitit` that leads to ours, for programs that import it themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

from slurm.errors import UsageError
from slurm.submitit import __version__

#: The modules of submitit that dependents import; each leads to ours of the same name.
MODULES = (
    "auto.auto",
    "core._submit",
    "core.core",
    "core.job_environment",
    "core.logger",
    "core.plugins",
    "core.submission",
    "core.utils",
    "helpers",
    "local._local",
    "local.debug",
    "local.local",
    "slurm.slurm",
)
_PACKAGES = ("auto", "core", "local", "slurm")
#: How a directory shows that it was written here, and may be removed.
_MARK = "slurm submitit-shim"

_TOP = f'''"""A stand-in for submitit, written by `{_MARK}`: it leads to slurm.submitit.

Remove it with `{_MARK} --remove DIR`, or delete this directory.
"""

import slurm.submitit as _ours
from slurm.submitit import __version__


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_ours, name)


def __dir__():
    return sorted({{*globals(), *_ours.__all__}})
'''
_PACKAGE = f'"""Part of the stand-in for submitit that `{_MARK}` wrote."""\n'
_MODULE = '''"""Leads to slurm.submitit.{module}."""

import sys

import slurm.submitit.{module}
{program}
sys.modules[__name__] = slurm.submitit.{module}
'''
#: The worker is also started as a program.
_WORKER = "core._submit"
_PROGRAM = """
if __name__ == "__main__":
    sys.exit(slurm.submitit.core.submission.submitit_main())
"""


def shim_files() -> dict[str, str]:
    """The files of the stand-in: path below the directory, and text."""
    files = {"submitit/__init__.py": _TOP, "submitit/py.typed": ""}
    files.update({f"submitit/{name}/__init__.py": _PACKAGE for name in _PACKAGES})
    for module in MODULES:
        program = _PROGRAM if module == _WORKER else ""
        text = _MODULE.format(module=module, program=program)
        files[f"submitit/{module.replace('.', '/')}.py"] = text
    files[f"submitit-{__version__}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: submitit\nVersion: {__version__}\n"
        f"Summary: a stand-in that leads to slurm.submitit\n"
    )
    files[f"submitit-{__version__}.dist-info/INSTALLER"] = f"{_MARK}\n"
    return files


def write_shim(directory: Path) -> Path:
    """Write the stand-in into a directory, over an older one of ours; returns the package."""
    package = directory / "submitit"
    if package.exists() and not _is_ours(package / "__init__.py"):
        raise UsageError(
            f"{package} is not a stand-in that this command wrote, so it is left alone",
            hint="choose an empty directory, and put it first on PYTHONPATH",
        )
    remove_shim(directory)
    for name, text in shim_files().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def remove_shim(directory: Path) -> bool:
    """Remove the stand-in from a directory; False where there is none of ours."""
    package = directory / "submitit"
    if not _is_ours(package / "__init__.py"):
        return False
    shutil.rmtree(package)
    for info in directory.glob("submitit-*.dist-info"):
        if _is_ours(info / "INSTALLER"):
            shutil.rmtree(info)
    return True


def _is_ours(file: Path) -> bool:
    try:
        return _MARK in file.read_text()
    except OSError:
        return False
