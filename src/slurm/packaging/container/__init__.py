"""Containers: the function runs in an image, which is used as it is or built, pushed and pinned."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurm.errors import PackagingError, PythonMismatch, join_names
from slurm.launch import several_ranks
from slurm.packaging.container import engines, runtimes
from slurm.packaging.container.build import Image, build_image, known_image, was_seen
from slurm.packaging.container.code import Code, find_code
from slurm.packaging.container.runtimes import Container
from slurm.packaging.inherit import own_environment
from slurm.packaging.prepare import Prepared, Request
from slurm.packaging.remote import remote_of
from slurm.rendering import Environment, shell_quote

__all__ = ["prepare_container"]

#: Files that a build is described by, in the order in which they are looked for.
RECIPES = ("Dockerfile", "Containerfile")


def prepare_container(request: Request) -> Prepared:
    """The environment of a call that runs in a container."""
    given = request.packaging.options
    _refuse_node_pythons(request)
    build = _build_of(request)
    runtime, why = _runtime(request, given.get("image") if build is None else None)
    image = _image(request, build, runtime)
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


# ---- the image ----------------------------------------------------------------------------------


def _build_of(request: Request) -> tuple[engines.Build, bool] | None:
    """What is to be built, and whether it is pushed; None: the image exists already."""
    given = request.packaging.options
    if "image" in given and "dockerfile" not in given and "context" not in given:
        _refuse_build_options(given)
        return None
    context, recipe = _recipe(request)
    image = given.get("image") or re.sub(r"[^a-z0-9]+", "-", os.path.basename(context).lower())
    image = engines.check_image(image.strip("-") or "app")
    if engines.is_file(image) or "@" in image:
        raise PackagingError(
            f"image={image!r} cannot be the name of an image that is built",
            hint="write REGISTRY/NAME:TAG",
        )
    tag = engines.in_registry(image, given.get("registry"))
    push = given.get("push", engines.has_registry(tag))
    if push and not engines.has_registry(tag):
        raise PackagingError(
            f"push=True, but {tag!r} names no registry",
            hint='say where it goes: registry="registry.example.org/me"',
        )
    secrets = tuple(given.get("build_secrets") or ())
    missing = [name for name in secrets if name not in os.environ]
    if missing:
        raise PackagingError(
            f"build_secrets names {join_names(missing)}, which this process's environment has not",
            hint=f"export {missing[0]}=... before you start Python",
        )
    build = engines.Build(
        engine=given.get("engine", "auto"),
        dockerfile=recipe,
        context=context,
        tag=tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest",
        build_args=given.get("build_args") or {},
        secrets=secrets,
        platform=given.get("platform") or (None if sys.platform == "linux" else "linux/amd64"),
        no_cache=bool(given.get("no_cache")),
        tls_verify=given.get("tls_verify", True),
        extra=tuple(given.get("build_extra_args") or ()),
    )
    return build, push


def _recipe(request: Request) -> tuple[str, str]:
    """The folder and the file of a build: as asked for, else found beside or above the task."""
    given = request.packaging.options
    if "dockerfile" in given or "context" in given:
        named = given.get("dockerfile")
        # A relative name is looked for here, in the context, and beside the task.
        beside = os.path.dirname(os.path.abspath(request.source))
        folders = [os.getcwd(), *filter(None, [given.get("context")]), beside]
        context = given.get("context") or ""
        places = [os.path.join(context, name) for name in RECIPES]
        if named:
            places = [os.path.join(folder, os.path.expanduser(named)) for folder in folders]
        found = next((p for p in places if os.path.isfile(p)), None)
        if found is None:
            raise PackagingError(
                f"dockerfile={named!r}: there is no such file"
                if named
                else f"context={context!r} has no {' or '.join(RECIPES)}",
                hint="write one, or name it with dockerfile=",
            )
        found = os.path.abspath(found)
        return os.path.abspath(context) if context else os.path.dirname(found), found
    folder = os.path.dirname(os.path.abspath(request.source))
    start = folder
    while True:
        for name in RECIPES:
            if os.path.isfile(os.path.join(folder, name)):
                return folder, os.path.join(folder, name)
        above = os.path.dirname(folder)
        if above == folder or os.path.isfile(os.path.join(folder, "pyproject.toml")):
            break
        folder = above
    raise PackagingError(
        f"packaging='container' names no image, and there is no {' or '.join(RECIPES)} at or above "
        f"{start}",
        hint="write packaging='container:IMAGE', or name a Dockerfile: "
        '{"type": "container", "dockerfile": "..."}',
    )


def _refuse_build_options(given: Mapping[str, Any]) -> None:
    names = ("build_args", "build_secrets", "platform", "no_cache", "push", "build_extra_args")
    found = [name for name in names if given.get(name)]
    if found:
        raise PackagingError(
            f"{join_names(found)}: of an image that is built, but {given['image']!r} is used as "
            "it is",
            hint=f'add dockerfile="Dockerfile" to build it, or leave {found[0]} out',
        )


def _image(request: Request, build: tuple[engines.Build, bool] | None, runtime: str) -> Image:
    """The image that the job runs: built and pinned, or as it was named."""
    given = request.packaging.options
    if build is None:
        name = engines.check_image(given["image"])
        if engines.is_file(name):
            return Image(_file_there(request, name))
        return Image(engines.in_registry(name, given.get("registry")))
    plan, push = build
    python = given.get("python", "python3")
    known = known_image(plan, push, python)
    if known is not None and (push or request.dry or was_seen(known)):
        return known
    if request.dry:
        return Image(f"{plan.tag} (to be built)")
    plan = replace(plan, engine=engines.find_engine(plan.engine))
    if plan.engine == "docker" and not plan.tls_verify:
        raise PackagingError(
            "tls_verify=False: docker has no such flag, its daemon decides",
            hint="add the registry to insecure-registries of the daemon and leave it out, or use "
            'engine="podman"',
        )
    shared = plan.engine in ("podman", "buildah") and runtime in ("podman", "oci")
    if not push and (remote_of(request.cluster) is not None or not shared):
        raise PackagingError(
            f"{plan.tag} is built on this machine, and the nodes ({runtime}) cannot see it",
            hint='say where it is pushed: registry="registry.example.org/me"',
        )
    return build_image(plan, push, python)


def _file_there(request: Request, name: str) -> str:
    """The absolute path of an image that is a file or a folder of the cluster."""
    remote = remote_of(request.cluster)
    if remote is not None:
        return remote.path_there(name)
    path = os.path.abspath(os.path.expanduser(name))
    if not os.path.exists(path):
        raise PackagingError(
            f"image={name!r}: there is no such file or folder", hint="check the path"
        )
    return path


# ---- the container ------------------------------------------------------------------------------


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
