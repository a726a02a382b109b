"""Large values with joblib: its own memmapping, two processes that are up."""

from typing import Any

import joblib
from heavy_work import look, make, played
from joblib import Parallel, delayed
from protocol import serve


def main() -> None:
    """Serve rounds in one pool."""
    with Parallel(n_jobs=2) as pool:
        pool(delayed(make)(1) for _ in range(2))

        def share(table: Any, count: int) -> list[Any]:
            return list(pool(delayed(look)(item, table) for item in range(count)))

        def give(mib: int) -> Any:
            return pool([delayed(make)(mib)])[0]

        serve({"version": joblib.__version__}, lambda order: played(share, give, order))


if __name__ == "__main__":
    main()
