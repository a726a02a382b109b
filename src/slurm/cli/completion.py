"""`slurm completion SHELL`: what a shell needs to complete verbs, options and names of runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import App, Argument, Parameter

from slurm.cli import build_app, verbs
from slurm.cli.frame import FORM, Answer, Common, Form
from slurm.cli.screen import Screen

_SCRIPTS = {
    "bash": """_slurm_sdk() {
  local IFS=$'\\n'
  COMPREPLY=($(slurm complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _slurm_sdk slurm""",
    "zsh": """#compdef slurm
_slurm_sdk() {
  local -a found
  found=(${(f)"$(slurm complete-words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -Q -- $found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _slurm_sdk slurm""",
    "fish": """function __slurm_sdk
  set -l words (commandline -opc) (commandline -ct)
  slurm complete-words -- $words[2..-1] 2>/dev/null
end
complete -c slurm -a '(__slurm_sdk)'""",
}
_HOW = {
    "bash": 'eval "$(slurm completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(slurm completion zsh)"   # in ~/.zshrc',
    "fish": "slurm completion fish | source   # in ~/.config/fish/config.fish",
}


@dataclass(frozen=True)
class Script(Answer):
    """The completion of one shell."""

    shell: Annotated[str, "bash, zsh or fish."]
    script: Annotated[str, "What the shell has to read."]
    install: Annotated[str, "The line that makes it do so each time."]

    def lines(self, screen: Screen) -> list[str]:
        """The script itself, for the shell; how to install it, in a comment."""
        return [*self.script.splitlines(), f"# {self.install}"]


def completion(shell: Literal["bash", "zsh", "fish"], *, form: Form = FORM) -> Script:
    """Print what makes your shell complete verbs, options and names of runs.

    Put it into effect with the line that the last comment shows.
    """
    return Script(shell, _SCRIPTS[shell], _HOW[shell])


def complete(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
    """Print what the last of these words may become, one a line; what the scripts call."""
    sys.stdout.write("".join(f"{word}\n" for word in candidates(list(words))))
    return 0


def candidates(words: list[str]) -> list[str]:
    """What the last word may become, after the words before it."""
    *before, last = words or [""]
    if not before:
        found = [verb.name for verb in verbs()] if not last.startswith("-") else ["--help"]
        return [word for word in found if word.startswith(last)]
    app = build_app()
    for word in before:
        if word not in list(app):
            break
        app = app[word]
    if last.startswith("-"):
        return [name for name in _options(app) if name.startswith(last)]
    below = [name for name in app if not name.startswith("-")]
    if below:
        return [name for name in below if name.startswith(last)]
    return _values(app, before, last)


def _options(app: App) -> list[str]:
    found = [name for a in _arguments(app) for name in a.names if name.startswith("--")]
    return [*sorted(found), "--help"]


def _values(app: App, before: list[str], last: str) -> list[str]:
    """The values of what is typed: a profile behind --cluster, else a run where one is wanted."""
    if before[-1] == "--cluster":
        return [name for name in _profiles() if name.startswith(last)]
    takes_run = any("RUN" in a.names or "--run" in a.names for a in _arguments(app))
    if not takes_run or before[-1].startswith("-"):
        return []
    from slurm.api.listing import LAST, run_names

    chosen = before[before.index("--cluster") + 1] if "--cluster" in before else None
    cluster = Common(cluster=chosen).look()
    if cluster.backend_type == "ssh":
        return []  # a key press must not open a connection
    return [name for name in (LAST, *run_names(cluster.base)) if name.startswith(last)][:200]


def _arguments(app: App) -> list[Argument]:
    return [] if app.default_command is None else list(app.assemble_argument_collection())


def _profiles() -> list[str]:
    from slurm.config import profile_names

    return [*profile_names(), "local", "embedded"]
