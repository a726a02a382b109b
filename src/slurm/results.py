"""Turns the records of a settled job into its value or its exception, once they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from slurm import errors
from slurm.api.backend import Backend, Looking
from slurm.evidence import Evidence
from slurm.failure import Subject, failure, recorded
from slurm.outcome import Verdict
from slurm.rundir import VALUE, Record, checked_payload
from slurm.runner.values import loads


class Results:
    """Reads what one job recorded; large values are fetched only here."""

    def __init__(
        self,
        backend: Looking,
        run: str,
        evidence: Evidence,
        job: Subject,
        loads: Callable[..., Any] = loads,
    ) -> None:
        self._backend = backend
        self._loads = loads
        self._run = run
        self._evidence = evidence
        self._job = job

    def outcome(self, verdict: Verdict, all_ranks: bool) -> tuple[Any, BaseException | None]:
        """The value, or the error that `result()` raises."""
        if verdict is Verdict.VALUE:
            try:
                return self._values() if all_ranks else self._value(), None
            except errors.ConnectError:
                raise  # the value is there, and can be asked for again
            except errors.SlurmError as error:
                return None, error
        trouble = self._evidence.trouble()
        if verdict is Verdict.RAISED and trouble is not None:
            return None, self._exception(trouble)
        failed = failure(verdict, self._evidence, self._job)
        if trouble is not None and verdict is Verdict.OUT_OF_MEMORY:
            failed.__cause__ = self._exception(trouble)
        return None, failed

    def _value(self) -> Any:
        record = self._evidence.value()
        assert record is not None
        return self._load(record)

    def _values(self) -> list[Any]:
        by_rank = {r.rank: r for r in self._evidence.records if r.kind == VALUE}
        return [self._load(by_rank[rank]) for rank in sorted(by_rank)]

    def _load(self, record: Record) -> Any:
        from slurm.files import coming_from

        backend = self._backend
        if not isinstance(backend, Backend):
            raise errors.UntrustedRun(
                f"the value of {self._job.name} (job {self._job.job_id}) is not unpickled by a "
                "command that only looks",
                hint=f"if the run is yours: slurm result {self._run}",
            )
        try:
            payload = self._payload(record)
            with coming_from(backend):
                return self._loads(payload, own=True)
        except errors.SlurmError:
            raise
        except Exception as error:  # unpickling imports and runs any code
            there = record.header.get("python", "?")
            here = "{}.{}.{}".format(*sys.version_info[:3])
            other = "" if there == here else f"it was written by Python {there}, this is {here}; "
            raise errors.ResultUnreadable(
                f"the value of {self._job.name} (job {self._job.job_id}) cannot be read here: "
                f"{type(error).__name__}: {error}",
                hint=f"{other}a module that it needs may be missing here",
            ) from error

    def _payload(self, record: Record) -> Any:
        name = record.header.get("file")
        if name is None:
            return record.payload
        assert isinstance(self._backend, Backend)  # who only looks does not come this far
        return checked_payload(record, self._backend.open_value(self._run, str(name)))

    def _exception(self, record: Record) -> BaseException:
        error: Any = None
        if isinstance(self._backend, Backend) and (record.payload or record.header.get("file")):
            try:
                error = loads(self._payload(record))
            except Exception:  # noqa: BLE001 - unpickling runs any code; the text is complete
                error = None
        if not isinstance(error, Exception):
            error = recorded(record, self._job)
        text = record.header.get("traceback")
        if text:
            error.__cause__ = errors.RemoteTraceback(text.rstrip("\n"))
        return error  # type: ignore[no-any-return]
