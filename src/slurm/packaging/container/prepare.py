"""The environment of a call that runs in a container: its image, its runtime, and its code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from slurm.errors import PackagingError, PythonMismatch, join_names
from slurm.launch import several_ranks
from slurm.packaging.container import engines, runtimes
from slurm.packaging.container.build import Image
from slurm.packaging.container.code import Code, find_code
from slurm.packaging.container.image import build_of, image_of
from slurm.packaging.container.runtimes import Container
from slurm.packaging.inherit import own_environment
from slurm.packaging.prepare import Prepared, Request
from slurm.packaging.remote import remote_of
from slurm.rendering import Environment, shell_quote


def prepare_container(request: Request) -> Prepared:
    """The environment of a call that runs in a container."""
    given = request.packaging.options
    _refuse_node_pythons(request)
    build = build_of(request)
    runtime, why = _runtime(request, given.get("image") if build is None else None)
    image = image_of(request, build, runtime)
    code = find_code(request)
    if code.reason and image.python is not None:
        _check_version(image, code.reason)
    container = _container(request, image.name, runtime, code)
    started = runtimes.start(container)
    env: Mapping[str, str] = given.get("env") or {}
    exports = tuple(f"export {name}={shell_quote(value)}" for name, value in env.items())
    environment = Environment(
        python=container.python,
        kind="container",
        why=f"{image.name} by {runtime} ({why})",
        path=code.path,
        setup=(*exports, *started.setup),
        digest=" ".join([image.name, *code.needs]),
        needs=code.needs,
        launch=started.launch,
        srun=started.srun,
        outside=container.outside,
        details={"image": image.name, "runtime": runtime, "options": dict(given)},
    )
    return Prepared(environment, code.reason or "", code.holds, code.deliver)


def _container(request: Request, image: str, runtime: str, code: Code) -> Container:
    if runtime == "oci" and several_ranks(request.options):
        raise PackagingError(
            "runtime='oci' starts one process: Slurm 22.05 tells ranks in its containers no number",
            hint="use podman, apptainer or pyxis for jobs with several tasks",
        )
    given, options = request.packaging.options, request.options
    named: list[str] = [*(given.get("env") or {})]
    for option in ("env", "secrets"):
        value: Any = options.get(option) or ()
        named += [str(name) for name in value]
    mounts = [runtimes.check_mount(mount) for mount in given.get("mounts") or ()]
    if request.cluster.backend.kind == "embedded":
        from slurm.api.embedded.place import find_place

        # Its socket lies there: a workflow submits from inside of the container.
        mounts.append(runtimes.check_mount(find_place(os.environ).directory))
    workdir = given.get("workdir")
    if workdir is not None and not workdir.startswith("/"):
        raise PackagingError(
            f"workdir={workdir!r} of the container is not absolute", hint="write /path"
        )
    if ":" in request.cluster.base or "," in request.cluster.base:
        raise PackagingError(
            f"job_base_dir={request.cluster.base!r} has a character that mounts cannot express",
            hint="choose a directory without colon and comma",
        )
    return Container(
        image=image,
        runtime=runtime,
        python=given.get("python", "python3"),
        outside=_outside(request),
        mounts=tuple(mounts),
        # A snapshot lies below the base directory, which is mounted anyway.
        code=() if code.needs else code.path,
        workdir=workdir,
        names=tuple(dict.fromkeys(named)),
        gpus=given.get("gpus", _wants_gpus(options)),
        tls_verify=given.get("tls_verify", True),
        extra=tuple(given.get("extra_args") or ()),
    )


def _runtime(request: Request, image: str | None) -> tuple[str, str]:
    """What starts the container on the nodes, and why."""
    asked = request.packaging.options.get("runtime", "auto")
    own = own_environment()
    if own is not None and own.kind == "container" and asked == "auto":
        return str(own.details["runtime"]), "as the job around it"
    if asked != "auto":
        return asked, f"runtime={asked!r}"
    found = request.cluster.backend.container_runtimes()
    usable = [name for name in runtimes.RUNTIMES if name in found]
    if image is not None and engines.is_file(image):
        # Files of the cluster: podman takes names only.
        usable = [name for name in usable if name != "podman"]
    if not usable:
        raise PackagingError(
            f"no container runtime was found on the cluster (looked for "
            f"{join_names(list(runtimes.RUNTIMES))})",
            hint='where compute nodes have one, name it: "runtime": "apptainer"',
        )
    return usable[0], f"found there: {found[usable[0]]}"


def _outside(request: Request) -> str:
    """A Python of the node, for what runs beside the container."""
    if request.options.get("python"):
        return str(request.options["python"])
    own = own_environment()
    if own is not None:
        return own.bare_python
    remote = remote_of(request.cluster)
    if remote is None:
        return sys.executable
    found = remote.facts()["python"]["any"]
    return str(found[0]) if found else "python3"


def _wants_gpus(options: Mapping[str, object]) -> bool:
    names = ("gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket")
    return any(options.get(name) for name in names) or "gpu" in str(options.get("gres") or "")


def _refuse_node_pythons(request: Request) -> None:
    for name in ("venv", "conda"):
        if request.options.get(name):
            raise PackagingError(
                f"{name}={request.options[name]!r} is of the node, and the function runs in a "
                "container",
                hint=f"leave {name} out; the image's own Python is used",
            )


def _check_version(image: Image, reason: str) -> None:
    assert image.python is not None
    here = sys.version_info[:2]
    if image.python != here:
        raise PythonMismatch(
            "the function travels by value ({}), pickled on Python {}.{}, but the image {} has "
            "Python {}.{}".format(reason, *here, image.name, *image.python),
            hint="use a base image with Python {}.{}, or move the function into a module that the "
            "image has".format(*here),
        )
