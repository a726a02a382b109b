"""Which image a job runs in: one that is named, or one that is built, pushed and pinned."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurm.errors import PackagingError, join_names
from slurm.here import working_directory
from slurm.packaging.container import engines
from slurm.packaging.container.build import Image, build_image, known_image, was_seen
from slurm.packaging.prepare import Request
from slurm.packaging.project import check_found
from slurm.packaging.remote import remote_of

#: Files that a build is described by, in the order in which they are looked for.
RECIPES = ("Dockerfile", "Containerfile")


def build_of(request: Request) -> tuple[engines.Build, bool] | None:
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
        folders = [working_directory(), *filter(None, [given.get("context")]), beside]
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
        if named and not os.path.isabs(os.path.expanduser(named)):
            _check(found, request.source)
        return os.path.abspath(context) if context else os.path.dirname(found), found
    folder = os.path.dirname(os.path.abspath(request.source))
    start = folder
    while True:
        for name in RECIPES:
            found = os.path.join(folder, name)
            if os.path.isfile(found):
                _check(found, request.source)
                return folder, found
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


def _check(found: str, source: str) -> None:
    fix = f'if you trust it, name it whole: {{"type": "container", "dockerfile": "{found}"}}'
    check_found(found, source, fix)


def _refuse_build_options(given: Mapping[str, Any]) -> None:
    names = ("build_args", "build_secrets", "platform", "no_cache", "push", "build_extra_args")
    found = [name for name in names if given.get(name)]
    if found:
        raise PackagingError(
            f"{join_names(found)}: of an image that is built, but {given['image']!r} is used as "
            "it is",
            hint=f'add dockerfile="Dockerfile" to build it, or leave {found[0]} out',
        )


def image_of(request: Request, build: tuple[engines.Build, bool] | None, runtime: str) -> Image:
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
