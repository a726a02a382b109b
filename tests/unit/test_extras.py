"""Without an extra every verb shows its help, and what needs it names it and the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from slurm.errors import UsageError
from slurm.extras import EXTRAS, install_command, needs_extra

ROOT = Path(__file__).parents[2]
WHEEL = "slurm_sdk-1.0.0-py3-none-any.whl"


def _closure(names: set[str]) -> set[str]:
    """Distributions and all that they need, without the needs of extras."""
    done: set[str] = set()
    while names - done:
        name = (names - done).pop()
        done.add(name)
        try:
            needs = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue  # needed by another Python or another system
        names |= {re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need}
    return done


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a real environment with the package's own needs and none of its extras."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, with_pip=False, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    needs = [
        need for need in metadata.distribution("slurm-sdk").requires or [] if "extra ==" not in need
    ]
    for name in _closure({re.split(r"[^\w.-]", need)[0] for need in needs}):
        try:
            files = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            continue
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if source.exists() and not (packages / top).exists():
                (packages / top).symlink_to(source)
    (packages / "slurm").symlink_to(ROOT / "src" / "slurm")
    # As pip leaves it behind after the installation of a wheel.
    noted = packages / "slurm_sdk-1.0.0.dist-info"
    noted.mkdir()
    (noted / "METADATA").write_text("Metadata-Version: 2.1\nName: slurm-sdk\nVersion: 1.0.0\n")
    (noted / "direct_url.json").write_text(
        json.dumps({"url": f"file:///srv/{WHEEL}", "archive_info": {}})
    )
    return place / "bin" / "python"


def _slurm(bare: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [bare, "-m", "slurm.cli", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(bare.parent)},
        cwd=bare.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words",
    [["top"], ["dashboard"], ["bridge"], ["bridge", "run"], ["monitor", "serve"]],
    ids=" ".join,
)
def test_without_an_extra_a_verb_still_shows_its_help(bare: Path, words: list[str]) -> None:
    done = _slurm(bare, *words, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["top"], "tui"),
        (["dashboard", "--port", "0"], "web"),
        (["bridge", "render"], "bridge"),
        (["monitor", "serve", "--port", "0", "--web-config", "web.yml"], "monitor"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_verb_without_its_extra_names_it_and_the_command(
    bare: Path, words: list[str], extra: str
) -> None:
    (bare.parent / "web.yml").write_text("basic_auth_users: {}\n")
    done = _slurm(bare, *words)
    assert done.returncode != 0
    assert f"needs the extra '{extra}'" in done.stderr
    assert f"pip install '/srv/{WHEEL}[{extra}]'" in done.stderr


def test_a_callback_without_its_extra_names_it_and_the_command(bare: Path) -> None:
    code = "from slurm.callbacks import OpenTelemetryCallback; OpenTelemetryCallback()"
    done = subprocess.run([bare, "-c", code], capture_output=True, text=True, timeout=60)
    assert "needs the extra 'otel'" in done.stderr
    assert f"pip install '/srv/{WHEEL}[otel]'" in done.stderr


def test_the_command_fits_how_the_package_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    plain = {"url": clone.as_uri(), "dir_info": {}}
    editable = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    web = {"url": f"https://example.org/{WHEEL}", "archive_info": {}}
    assert install_command("web", plain) == f"pip install '{clone}[web]'"
    assert install_command("web", editable) == f"pip install -e '{clone}[web]'"
    assert install_command("web", web) == f"pip install 'slurm-sdk[web] @ {web['url']}'"
    assert install_command("web", None) == f"pip install '{WHEEL}[web]'"
    monkeypatch.chdir(clone)
    assert install_command("web", plain) == "pip install '.[web]'"
    assert install_command("web", editable) == "pip install -e '.[web]'"


def test_an_import_that_fails_for_another_reason_is_not_called_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), needs_extra("web", "a verb"):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    refused = pytest.raises(UsageError, match="needs the extra 'web': starlette is not installed")
    with refused, needs_extra("web", "a verb"):
        raise ModuleNotFoundError("No module", name="starlette.routing")


def test_the_table_holds_the_extras_of_the_project_and_all_holds_every_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = project["optional-dependencies"]
    modules = {
        "pyyaml": "yaml",
        "prometheus-client": "prometheus_client",
        "opentelemetry-api": "opentelemetry",
    }
    everything = found.pop("all")
    assert everything == ["slurm-sdk[" + ",".join(sorted(found)) + "]"]
    assert {
        name: {modules.get(n, n) for n in (re.split(r"[^\w-]", need)[0] for need in needs)}
        for name, needs in found.items()
    } == EXTRAS
    for page in ("README.md", "docs/start.md"):
        text = (ROOT / page).read_text()
        for name in [*found, "all"]:
            assert f"`{name}`" in text, f"{page} does not list the extra {name}"
