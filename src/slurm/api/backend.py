"""Backend: the client's side of every verb, typed; what carries a verb to the agent is a detail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slurm import rundir
from slurm.api.looking import JobKey, Looking, RunExists, Wanted, as_error
from slurm.api.slurm_commands import JobStatus
from slurm.model.ids import collapse_array_spec

__all__ = ["Backend", "JobKey", "JobStatus", "Looking", "RunExists", "Wanted", "as_error"]


class Backend(Looking):
    """All verbs of a cluster: those that look, and those that submit, change and remove."""

    def put_sdk(self, name: str, files: dict[str, bytes], again: bool = False) -> None:
        """Make sure that this copy of the SDK lies on the cluster; `again`: some of it is gone."""
        self._call("prepare_base")
        if again or not self._call("has_sdk", name):
            self._call("put_sdk", name, files)

    def submit_job(
        self,
        run: str,
        files: Mapping[str, rundir.Content],
        *,
        parts: int = 1,
        at_once: int = 1,
        env: dict[str, str] | None = None,
        cwd: str = "",
        options_set: Sequence[str] = (),
    ) -> list[str]:
        """Make a run directory with these files and submit its script; returns the job id.

        A long map has several parts with a script each; the ids of those that went out come back.
        """
        ids: list[str] = self._call(
            "submit", run, files, parts, at_once, env or {}, cwd, list(options_set)
        )
        return ids

    def recall(self, run: str) -> dict[int, str] | None:
        """Go on with what an earlier attempt of a workflow began to submit: ids by part.

        None: it had submitted nothing, and will not.
        """
        ids: list[tuple[int, str]] | None = self._call("recall", run)
        return None if ids is None else dict(ids)

    def stop_workflow(self, run: str, index: int) -> None:
        """Let a workflow submit nothing more."""
        self._call("stop_workflow", run, index)

    def cancel_below(self, run: str, index: int) -> int:
        """Cancel every job below a workflow's run; how many they were."""
        count: int = self._call("cancel_below", run, index)
        return count

    def advance(self, run: str) -> str | None:
        """Submit the next part of a long map, if one is left."""
        job: str | None = self._call("advance", run)
        return job

    def append_calls(self, run: str, data: bytes, files: Mapping[str, rundir.Content]) -> None:
        """Append calls to the inbox of a block of workers; large arguments go as files."""
        self._call("append_calls", run, data, files)

    def tell_pilot(self, run: str, job: str, words: Sequence[str], text: str = "") -> None:
        """Leave words in the inbox of an allocation or of a block of workers."""
        self._call("tell_pilot", run, job, list(words), text)

    def stop_parts(self, run: str, indexes: Iterable[int]) -> dict[int, str]:
        """Cancel calls whose parts are not submitted yet; the ids of the parts that are by now."""
        ids: list[tuple[int, str]] = self._call("stop_parts", run, collapse_array_spec(indexes))
        return dict(ids)

    def request(self, verb: str, jobs: Sequence[JobKey], *args: Any) -> list[str]:
        """Cancel, signal, requeue, hold or release jobs that are ours; returns their ids."""
        ids: list[str] = self._call("request", verb, [(job.bare, job.run) for job in jobs], *args)
        return ids

    def find_job(self, run: str, part: int = 0) -> str | None:
        """The job of a run, also when the answer to its submission got lost."""
        job: str | None = self._call("find_job", run, part)
        return job

    def retry(self, run: str, token: str) -> bool:
        """Judge a part of a run and submit what is due again; False while it is not over."""
        over: bool = self._call("retry", run, token)
        return over

    def stop_retry(self, calls: Sequence[tuple[str, int]]) -> None:
        """Retry these calls, each given as run and index, no more."""
        self._call("stop_retry", list(calls))

    def cache_lookup(
        self, keys: Sequence[str]
    ) -> tuple[dict[str, tuple[str, bytes]], dict[str, bytes]]:
        """The runs and records of calls that were made before, by key; and the runs' metadata."""
        found, metadata = self._call("cache_lookup", list(keys))
        return found, metadata

    def cache_clear(self, target: str | None) -> int:
        """Forget all cached values, or those of one function; how many they were."""
        count: int = self._call("cache_clear", target)
        return count

    def read_own(self, run: str, name: str) -> bytes:
        """All of a file of a run that is ours alone: what is run, imported or unpickled."""
        pieces: list[bytes] = []
        while data := self._call("read_own", run, name, sum(map(len, pieces))):
            pieces.append(data)
        return b"".join(pieces)

    def read_value(self, run: str, name: str) -> bytes:
        """The bytes of a large value."""
        data: bytes = self._call("read_value", run, name)
        return data

    def open_value(self, run: str, name: str) -> Any:
        """A large value: where it lies, if this process can see it, else its bytes."""
        return self.read_value(run, name)

    def remove_runs(self, runs: Sequence[str]) -> dict[str, str]:
        """Remove runs with all in them; those that stay, each with the reason."""
        return dict(self._call("remove_runs", list(runs)))

    def run(self, command: Sequence[str], timeout: float) -> tuple[int, str, str]:
        """Run a program where the scheduler is, without a shell."""
        code, out, err = self._call("run", list(command), timeout)
        return code, out, err

    def store_put(self, name: str, data: bytes) -> None:
        """Store a small file below the base directory."""
        self._call("store_put", name, data)

    def store_unpack(self, name: str, archive: str) -> None:
        """Unpack an archive of the store as a read-only folder of it."""
        self._call("store_unpack", name, archive)

    def store_remove(self, names: Sequence[str]) -> list[str]:
        """Remove things from the store; those that were there."""
        gone: list[str] = self._call("store_remove", list(names))
        return gone

    def environment_make(self, key: str, sdk: str) -> dict[str, Any]:
        """Begin to make an environment where the agent is, and return at once."""
        found: dict[str, Any] = self._call("environment_make", key, sdk)
        return found
