"""Lets multiprocessing send functions and classes of the client's script to spawned children.

A function of a script travels to the job by value: it is in no module that a spawned process could
import. So multiprocessing's pickler sends such objects by value, too, in both directions.
"""

import sys
from typing import Any

_REDUCTION = "multiprocessing.reduction"


def install() -> None:
    """Change multiprocessing's pickler, now or when it is imported: most tasks never do."""
    if _REDUCTION in sys.modules:
        _teach(sys.modules[_REDUCTION])
    else:
        sys.meta_path.insert(0, _Later())


def load(data: bytes) -> Any:
    """The object that was sent; from then on this process can send such objects, too."""
    import cloudpickle

    install()
    return cloudpickle.loads(data)


def _teach(module: Any) -> None:
    pickler = module.ForkingPickler
    if "reducer_override" not in vars(pickler):
        pickler.reducer_override = _by_value


def _by_value(_: Any, obj: Any) -> Any:
    if not isinstance(obj, (type, type(_by_value))) or obj.__module__ != "__main__":
        return NotImplemented
    found = sys.modules.get("__main__")  # type: Any
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is obj:
        return NotImplemented
    import cloudpickle

    return load, (cloudpickle.dumps(obj, protocol=4),)


class _Later:
    """Waits for the import of multiprocessing's pickler, and is gone afterwards."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Find the module as usual, and have it changed as soon as it is loaded."""
        if fullname != _REDUCTION:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
        spec = next((spec for spec in found if spec is not None), None)  # type: Any
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _teach(module)

        spec.loader.exec_module = exec_module
        return spec
