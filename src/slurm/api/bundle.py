"""The agent as it is streamed: the sources of its modules, and the few lines that load them."""

from __future__ import annotations

import functools
import importlib.util
import zlib

#: All that the agent imports of this package; a test holds the list closed.
MODULES = (
    "slurm.rundir",
    "slurm.rundir.about",
    "slurm.rundir.call",
    "slurm.rundir.mounts",
    "slurm.rundir.names",
    "slurm.rundir.private",
    "slurm.rundir.pieces",
    "slurm.rundir.records",
    "slurm.rundir.stamps",
    "slurm.model.ids",
    "slurm.model.states",
    "slurm.runner.batches",
    "slurm.runner.cache",
    "slurm.runner.environment_state",
    "slurm.runner.inbox",
    "slurm.runner.lease",
    "slurm.runner.protected",
    "slurm.api.slurm_rows",
    "slurm.api.slurm_commands",
    "slurm.api.slurm_environ",
    "slurm.api.slurm_refusals",
    "slurm.api.slurm_site",
    "slurm.api.agent_error",
    "slurm.api.folders",
    "slurm.api.dependency",
    "slurm.api.run_files",
    "slurm.api.shared_base",
    "slurm.api.origin",
    "slurm.api.elsewhere",
    "slurm.api.one_job",
    "slurm.api.parts",
    "slurm.api.whole",
    "slurm.api.family",
    "slurm.api.listing",
    "slurm.api.reasons",
    "slurm.api.upkeep",
    "slurm.api.retries",
    "slurm.api.retry_rules",
    "slurm.api.runtimes",
    "slurm.api.agent",
    "slurm.api.starting",
    "slurm.api.door",
    "slurm.api.unshared",
    "slurm.api.slurm_scheduler",
    "slurm.api.frames",
    "slurm.api.places",
    "slurm.api.pushes",
    "slurm.api.pythons",
    "slurm.api.transfer",
    "slurm.api.store",
    "slurm.api.remote",
)
PACKAGES = ("slurm", "slurm.api", "slurm.model", "slurm.rundir", "slurm.runner")

#: Runs in the remote Python. `f` is its standard input; the line after the program is the marker.
_LOADER = """
import sys
from importlib.machinery import ModuleSpec
class Loader:
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES or name in PACKAGES:
            return ModuleSpec(name, self, is_package=name in PACKAGES)
        return None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        if name in SOURCES:
            exec(compile(SOURCES[name], "<agent>/" + name, "exec"), module.__dict__)
sys.dont_write_bytecode = True
sys.meta_path.insert(0, Loader())
from slurm.api import remote
for name in SOURCES:  # what a function imports later, too
    __import__(name)
SOURCES.clear()
remote.main(f, f.readline().decode().strip())
"""

#: What `python -c` gets. No quotes, backslashes, `!` or `$`: it passes through two shells as it is.
BOOT = (
    "import sys,zlib;sys.version_info<(3,6) and sys.exit(86);f=sys.stdin.buffer;"
    "exec(zlib.decompress(f.read(int(f.readline()))))"
)

#: The exit code that means: this Python is too old, try the next.
NO_PYTHON = 86


@functools.lru_cache(maxsize=1)
def _program() -> bytes:
    sources = {}
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        with open(spec.origin, encoding="utf-8") as f:
            sources[name] = f.read()
    text = f"SOURCES = {sources!r}\nPACKAGES = {PACKAGES!r}\n{_LOADER}"
    return zlib.compress(text.encode(), 9)


def opening(marker: str) -> bytes:
    """What is written first: the program with its length, then the marker it will print."""
    program = _program()
    return b"%d\n%s%s\n" % (len(program), program, marker.encode())
