"""AgentError: how a verb of the agent fails; on Python 3.6."""

from typing import Optional, Sequence


class AgentError(Exception):
    """A verb failed; `kind` says how, and the client makes its own typed error of it."""

    def __init__(
        self, kind: str, message: str, evidence: Sequence[str] = (), hint: Optional[str] = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.evidence = list(evidence)
        self.hint = hint
