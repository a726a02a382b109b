"""Plan -> every file of a cluster's directory, checked; `write` puts them there."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import NamedTuple

from slurm.errors import StackError
from slurm.stack import hosts
from slurm.stack.accounts import accounting_commands
from slurm.stack.compose import compose, secret_names
from slurm.stack.conf import conf_files, slurmdbd_conf
from slurm.stack.confcheck import check_files
from slurm.stack.image import template
from slurm.stack.monitoring import monitoring_files
from slurm.stack.plan import Plan
from slurm.stack.platforms import PLATFORMS, comment, override
from slurm.stack.services import WRITTEN
from slurm.stack.yaml import dump


class File(NamedTuple):
    """A file's text and its mode."""

    text: str
    mode: int = 0o644


def rendered(plan: Plan, platform: str = "") -> dict[str, File]:
    """The files by their path in the directory; nothing in them is secret.

    Raises `StackError` where Slurm itself would refuse them.
    """
    whole = compose(plan)
    texts = {
        ".env": _env(plan, platform or plan.site.platform),
        "docker-compose.yml": dump(whole, WRITTEN + _notices(plan)),
        **{
            f"docker-compose.override.{other}.yml": dump(
                override(plan, whole["services"], other), f"{WRITTEN}\n{comment(other)}"
            )
            for other in PLATFORMS
            if other != "ubuntu"
        },
        "Containerfile": template("Containerfile"),
        "secrets/.gitignore": "*\n!.gitignore\n",
        **{f"shared/{name}": text for name, text in conf_files(plan).items()},
        **_accounting(plan),
        **_login(plan),
        **monitoring_files(plan),
        **hosts.unshared(plan),
    }
    problems = check_files({Path(n).name: text for n, text in texts.items()}, plan.version)
    if problems:
        raise StackError(
            f"Slurm {plan.version} would refuse {problems[0].file}, line {problems[0].line}: "
            f"{problems[0].what}",
            hint=problems[0].fix,
            evidence=[str(problem) for problem in problems],
        )
    secrets = template("make-secrets.sh").replace("@NAMES@", " ".join(secret_names(plan)))
    return {
        **{name: File(text) for name, text in texts.items()},
        **{
            name: File(text, 0o755 if name.endswith(".sh") else 0o644)
            for name, text in hosts.host_files(plan).items()
        },
        "entrypoint.sh": File(template("entrypoint.sh"), 0o755),
        "make-secrets.sh": File(secrets, 0o755),
    }


def _notices(plan: Plan) -> str:
    return "".join(f"\nNotice: {notice}." for notice in plan.notices)


def _env(plan: Plan, platform: str) -> str:
    files = ["docker-compose.yml"]
    if platform != "ubuntu":
        files.append(f"docker-compose.override.{platform}.yml")
    return (
        f"# {WRITTEN}\n# Platform: {platform}.\n"
        f"COMPOSE_PROJECT_NAME={plan.topology.name}\n"
        f"COMPOSE_PATH_SEPARATOR=:\nCOMPOSE_FILE={':'.join(files)}\n"
    )


def _accounting(plan: Plan) -> dict[str, str]:
    if plan.slurmdbd_port is None:
        return {}
    found = {"slurmdbd/slurmdbd.conf": slurmdbd_conf(plan)}
    commands = accounting_commands(plan)
    if commands:
        lines = [f"sacctmgr --immediate {shlex.join(words)} || true" for words in commands]
        head = "# QOS, accounts and users as the topology says; what exists already stays.\n"
        found["shared/accounting.sh"] = head + "\n".join(lines) + "\n"
    return found


def _login(plan: Plan) -> dict[str, str]:
    if "login" not in plan.addresses:
        return {}
    keys = {f"login/{u.name}": f"{u.ssh_key}\n" for u in plan.users if u.ssh_key}
    return {"login/README": "Public keys of the login node's users, a file each.\n", **keys}


def readable_folder(path: Path) -> None:
    """Make a folder that daemons of other users can read once it is mounted, whatever the umask."""
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)


def write(directory: Path, files: dict[str, File]) -> list[str]:
    """Put the files into the directory; the names of those that are new or changed.

    Each is written beside its old self and then takes its place; what has not changed is not
    touched, and files of others stay.
    """
    changed = []
    try:
        for name, file in files.items():
            path = directory / name
            with contextlib.suppress(FileNotFoundError):
                same = path.read_bytes() == file.text.encode()
                if same and path.stat().st_mode & 0o777 == file.mode:
                    continue
            readable_folder(path.parent)
            fresh = path.with_name(f".{path.name}.new")
            fresh.write_text(file.text, encoding="utf-8")
            fresh.chmod(file.mode)
            os.replace(fresh, path)
            changed.append(name)
        # Mounted with the rest of the directory, so nobody else may look into it.
        (directory / "secrets").chmod(0o700)
    except OSError as error:
        raise StackError(
            f"{error.filename or directory} cannot be written: {error.strerror}",
            hint="name a directory that you can make and write",
        ) from error
    return changed
