"""Imports the user's modules out of the code that was captured when a call was submitted.

Each module seems to lie where its author wrote it: `__file__`, tracebacks and data files beside it
are as ever; only the code is that of the submission.
"""

from __future__ import annotations

import _frozen_importlib
import _frozen_importlib_external as external
import _pickle
import os
import struct
import sys

from slurm import rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

MAGIC = b"slurm-code-1\n"
_HEAD = struct.Struct(">Q")

#: Modules that start Python processes of their own: those import captured code, too.
_STARTERS = (
    "multiprocessing.spawn",
    "joblib.externals.loky.backend.spawn",
    "loky.backend.spawn",
)
_LINES = "linecache"


def install(folder: str) -> None:
    """Let this process import from the captured code in a folder, before all else."""
    finders = [finder for finder in sys.meta_path if isinstance(finder, Finder)]
    if any(finder.folder == folder for finder in finders):
        return
    finder = Finder(folder)
    sys.meta_path.insert(0, finder)
    for name in (*_STARTERS, _LINES):
        if name in sys.modules:
            finder.teach(sys.modules[name])


def encode(index: Dict[str, Any], contents: List[bytes]) -> bytes:
    """Captured code as one file: an index, and the sources one after the other."""
    head = _pickle.dumps(index, protocol=4)
    return b"".join([MAGIC, _HEAD.pack(len(head)), head, *contents])


def decode(data: bytes) -> Tuple[Dict[str, Any], int]:
    """The index of captured code, and where the sources begin."""
    import io

    return _read_index(io.BytesIO(data).read, "this")


def _read_index(read: Any, name: str) -> Tuple[Dict[str, Any], int]:
    if read(len(MAGIC)) != MAGIC:
        raise ValueError(f"{name} is not captured code of this package")
    try:
        (size,) = _HEAD.unpack(read(_HEAD.size))
        return _pickle.loads(read(size)), len(MAGIC) + _HEAD.size + size
    except Exception as error:  # bytes that are no pickle raise many types
        raise ValueError(f"{name} is cut short") from error


class Finder:
    """Finds the modules of one capture, whatever the import path says."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._path = os.path.join(folder, rundir.CODE)
        with rundir.open_trusted(self._path) as f:
            index, self._begin = _read_index(f.read, self._path)
        #: name -> file, folders of a package
        self._modules = index["modules"]
        self._namespaces = index["namespaces"]
        #: file -> offset and size in the blob
        self._files = index["files"]
        self._known = set(sys.path)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The captured module of this name."""
        found = self._modules.get(name)
        if found is None:
            if name in self._namespaces and self._is_first(name):
                spec = _frozen_importlib.ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = list(self._namespaces[name])
                return spec
            return self._later(name, path, target) if name in _STARTERS or name == _LINES else None
        if path is None and not self._is_first(name):
            return None
        file, places = found
        return external.spec_from_file_location(
            name,
            file,
            loader=Loader(name, file, self),
            submodule_search_locations=None if places is None else list(places),
        )

    def _is_first(self, name: str) -> bool:
        """Whether no entry that the program has put on the import path has a module of that name.

        One in front of those that were there is meant to be looked at first.
        """
        for entry in sys.path:
            if entry in self._known:
                return True
            here = os.path.join(entry, name)
            if os.path.exists(here + ".py") or os.path.isdir(here):
                return False
        return True

    def read(self, file: str) -> Optional[bytes]:
        """The source of a captured file; None for another one."""
        place = self._files.get(file)
        if place is None:
            return None
        offset, size = place
        with open(self._path, "rb") as f:
            f.seek(self._begin + offset)
            data = f.read(size)
        if len(data) != size:
            raise ImportError(f"{self._path} is cut short; submit again")
        return data

    def size(self, file: str) -> Optional[int]:
        """The size of a captured file."""
        place = self._files.get(file)
        return None if place is None else place[1]

    def compiled(self, name: str, file: str) -> str:
        """Where the byte code of a module is kept; the content has made the folder's name."""
        return os.path.join(self.folder, name + "." + os.path.basename(file).partition(".")[2])

    # ---- what has to know of it -----------------------------------------------------------------

    def _later(self, name: str, path: Any, target: Any) -> Any:
        """Find a module as usual, and teach it as soon as it is loaded."""
        found = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)
        spec = next((spec for spec in found if spec is not None), None)  # type: Any
        if spec is None or not isinstance(spec.loader, external.SourceFileLoader):
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self.teach(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def teach(self, module: Any) -> None:
        """Tell a module of the standard library about captured code."""
        if module.__name__ == _LINES:
            _teach_lines(module, self)
        else:
            _teach_starter(module, self.folder)


class Loader(external.SourceFileLoader):
    """Loads a module from its captured source; its file is where the author wrote it."""

    def __init__(self, name: str, file: str, finder: Finder) -> None:
        super().__init__(name, file)
        self._finder = finder

    def path_stats(self, path: str) -> Dict[str, Any]:
        """What byte code is compared with: the source never changes."""
        return {"mtime": 0, "size": self._finder.size(path)}

    def get_data(self, path: str) -> bytes:
        """The source or its byte code; any other file is read where it lies."""
        if path.endswith(".pyc"):
            with open(self._finder.compiled(self.name, path), "rb") as f:
                return f.read()
        data = self._finder.read(path)
        return super().get_data(path) if data is None else data

    def _cache_bytecode(self, source: str, target: str, data: bytes) -> None:
        try:  # noqa: SIM105 - contextlib is slow to import, and a runner needs little of it
            rundir.write_atomically(self._finder.compiled(self.name, target), data, sync=False)
        except OSError:
            pass  # compiled again by the next job


def _teach_lines(linecache: Any, finder: Finder) -> None:
    """Show the lines that run in tracebacks, also where the file was edited since."""
    original = linecache.updatecache

    def updatecache(filename: str, module_globals: Any = None) -> Any:
        try:
            data = finder.read(filename)
        except (OSError, ImportError):
            data = None
        if data is None:
            return original(filename, module_globals)
        lines = external.decode_source(data).splitlines(True)
        # Without a time of change the entry is not compared with the file.
        linecache.cache[filename] = (len(data), None, lines, filename)
        return lines

    linecache.updatecache = updatecache


def _teach_starter(module: Any, folder: str) -> None:
    """Let processes that a module spawns import captured code, too."""
    original = module.get_preparation_data
    boot = (
        f"import sys; sys.path.insert(0, {sys.path[0]!r})\n"
        f"from slurm.runner import captured; captured.install({folder!r})"
    )

    def get_preparation_data(*args: Any, **kwargs: Any) -> Any:
        return dict(original(*args, **kwargs), slurm_sdk=_Run(boot))

    module.get_preparation_data = get_preparation_data


class _Run:
    """Runs some lines where it is unpickled: in a child, before anything of the user's."""

    def __init__(self, lines: str) -> None:
        self._lines = lines

    def __reduce__(self) -> Any:
        return exec, (self._lines,)
