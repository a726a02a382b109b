"""One gate of trust: what is run, imported or unpickled was looked at before, place by place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm

pytestmark = pytest.mark.attack
SOURCE = Path(str(slurm.__file__)).parent

_PICKLES = {"pickle", "_pickle", "cloudpickle", "marshal", "shelve", "dill"}
_OWN_LOADERS = {"load_pickle", "pickle_load"}
_STARTERS = {
    "run",
    "Popen",
    "popen",
    "call",
    "check_call",
    "check_output",
    "create_subprocess_exec",
}


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _kind(node: ast.AST, loads: set[str]) -> str:
    """What a node does that runs code which lies somewhere; "" where it does not."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            while isinstance(target, ast.Subscript):
                target = target.value
            if _dotted(target) in ("sys.path", "sys.meta_path", "__path__"):
                return "sys.path"
    if not isinstance(node, ast.Call):
        return ""
    name = _dotted(node.func)
    first, _, last = name.rpartition(".")
    if first in _PICKLES and last in ("load", "loads", "Unpickler"):
        return "unpickles"
    if last in _OWN_LOADERS or name in loads or (not first and last == "Unpickler"):
        return "unpickles"
    if name in ("exec", "eval", "compile") or first == "runpy":
        return "exec"
    if name == "__import__" or last in ("import_module", "spec_from_file_location"):
        return "imports" if not _is_text(node.args[0]) else ""
    if first in ("sys.path", "sys.meta_path") and last in ("insert", "append", "extend"):
        return "sys.path"
    executes = name.startswith(("os.exec", "os.posix_spawn"))
    if executes or (first in ("subprocess", "starting") and last in _STARTERS):
        return "" if _starts_known(node) else "starts"
    return ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _starts_known(call: ast.Call) -> bool:
    """Whether the program is a word in the text, found on PATH."""
    words = call.args[0] if call.args else None
    if isinstance(words, ast.List) and words.elts:
        words = words.elts[0]
        return isinstance(words, ast.Constant) and "/" not in str(words.value)
    return False


def _own_loads(tree: ast.Module) -> set[str]:
    """The names under which a module knows `slurm.runner.values.loads`."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("slurm.runner.values", "pickle")
        for alias in node.names
        if alias.name in ("loads", "load")
    }


def _places() -> Iterator[tuple[str, str]]:
    """Each place that runs code which lies somewhere: `file:function`, and what it does."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        loads = _own_loads(tree)
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            kind = _kind(node, loads)
            if not kind:
                continue
            names, above = [], parents.get(node)
            while above is not None:
                if isinstance(above, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                    names.append(above.name)
                above = parents.get(above)
            yield f"{path.relative_to(SOURCE)}:{'.'.join(reversed(names)) or '-'}", kind


#: What refuses that which is not ours alone: all of it asks `slurm.rundir.private`.
GATE = {
    "check_private", "check_place", "check_file", "read_checked", "check_base", "check_script",
    "check_code",
    "open_trusted", "read_trusted", "open_unchanged", "read_own",
}  # fmt: skip

#: (why it may, the function that asks the gate before: `file:function`, or "") -> the places.
ALLOWED = {
    (
        "imports a part of this package by a name in the text",
        "",
    ): (
        "__init__.py:_public.get imports",
        "api/__init__.py:__getattr__ imports",
        "callbacks/__init__.py:__getattr__ imports",
        "cli/mcp.py:tool_of imports",
        "cli/schema.py:answers imports",
        "packaging/container/__init__.py:__getattr__ imports",
        "packaging/prepare.py:prepare imports",
        "submitit/__init__.py:__getattr__ imports",
    ),
    (
        "what every other place here starts goes through it",
        "",
    ): ("api/starting.py:popen starts",),
    (
        "a program of the table found on PATH; its words are ours",
        "",
    ): (
        "api/door.py:run starts",
        "api/embedded/host.py:_output starts",
        "api/places.py:find_slurm starts",
        "api/runtimes.py:_help starts",
        "api/ssh.py:_run starts",
        "api/link.py:Link.__init__ starts",
        "cli/cluster_life.py:_inside starts",
        "cli/cluster_life.py:logs starts",
        "cli/cluster_native.py:run_inside starts",
        "cli/cluster_native.py:show_logs starts",
        "cli/forward.py:_relay starts",
        "cli/login.py:_run starts",
        "callbacks/notify.py:NotifyCallback._mail starts",
        "callbacks/notify.py:NotifyCallback._run starts",
        "packaging/container/build.py:_ask starts",
        "packaging/container/build.py:_follow starts",
        "packaging/container/build.py:_look_inside starts",
        "packaging/container/engines.py:works starts",
        "packaging/build.py:_run starts",
        "packaging/wheel.py:_from_uv starts",
        "runner/bundle.py:_said starts",
        "runner/bundle.py:_unpack starts",
        "runner/usage.py:read_gpus starts",
        "stack/build.py:_call starts",
        "stack/engine.py:Engine.call starts",
        "stack/join.py:_remote starts",
        "stack/layout.py:make_database starts",
        "stack/life.py:_login_keys starts",
        "stack/life.py:write_files starts",
        "stack/native.py:installed_version starts",
        "stack/preflight.py:_firewall starts",
        "stack/probes.py:_command starts",
        "stack/processes.py:launch starts",
        "stack/site.py:find_gpus starts",
        "submitit/core/watching.py:InfoWatcher._ask starts",
        "submitit/helpers.py:RsyncSnapshot.__enter__ starts",
        "submitit/slurm/slurm.py:SlurmJob._interrupt starts",
        "submitit/slurm/watching.py:SlurmInfoWatcher._ask starts",
        "web/helper.py:_act starts",
        "web/sessions.py:run_as starts",
    ),
    (
        "a command that this user gave: `cluster.run`, a job's own words, CommandFunction",
        "",
    ): (
        "api/agent.py:Agent.run starts",
        "api/embedded/srun.py:Step._become_rank starts",
        "runner/torchrun.py:_start starts",
        "runner/torchrun.py:main starts",
        "submitit/core/commands.py:CommandFunction.__call__ starts",
        "submitit/helpers.py:run_cmd starts",
        "cli/run.py:_in_background starts",
    ),
    (
        "the words come of `inside.py`, which reads the run's interpreter through the gate",
        "inside.py:python_there",
    ): ("cli/shell.py:shell starts",),
    (
        "an interpreter that this user named, or one found on PATH",
        "",
    ): (
        "api/pythons.py:_ask starts",
        "api/pythons.py:succeeds starts",
        "packaging/none.py:python_version starts",
    ),
    (
        "this process's own interpreter with a file of this package",
        "",
    ): ("api/embedded/client.py:_spawn starts",),
    (
        "a script of a job of this user's own queue, in a directory of mode 0700",
        "",
    ): ("api/embedded/supervisor.py:_spawn starts",),
    (
        "the store's program, after a look at base and store",
        "api/store.py:make",
    ): ("api/store.py:make starts",),
    (
        "programs of the recipe, in a base that was looked at before the submission",
        "api/run_files.py:check_base",
    ): ("runner/install.py:Programs.__call__ starts",),
    (
        "a file or function that this user named on the command line or in the program",
        "",
    ): (
        "cli/plan.py:plan_script exec",
        "cli/plan.py:plan_script sys.path",
        "cli/run.py:_run_script exec",
        "cli/run.py:_run_script sys.path",
        "cli/run.py:load_task imports",
        "cli/run.py:load_task sys.path",
        "task.py:_task_by_name imports",
        "packaging/function.py:_is_context exec",
    ),
    (
        "callbacks of a Slurmfile that is this user's",
        "config.py:_check_owner",
    ): ("config.py:_callback imports",),
    (
        "the function of a run that is ours alone",
        "current.py:current_function",
    ): (
        "current.py:current_function imports",
        "current.py:current_function sys.path",
    ),
    (
        "the function of a run that is ours alone",
        "current.py:_script",
    ): ("current.py:_script sys.path",),
    (
        "bytes that this process pickled itself",
        "",
    ): (
        "debug.py:_with_results unpickles",
        "kept.py:KeptCall._load unpickles",
        "packaging/arguments.py:_copy unpickles",
        "runner/exceptions.py:pickled unpickles",
        "submitit/core/records.py:RecordJob.submission unpickles",
    ),
    (
        "records that `read_run` or the cache read through the gate",
        "rundir/records.py:new_records",
    ): (
        "packed_run.py:PackedRun.value unpickles",
        "results.py:Results._exception unpickles",
        "returned.py:load unpickles",
    ),
    (
        "records that the cache read through the gate",
        "runner/cache.py:_record",
    ): ("cachedmap.py:FoundItems.value unpickles",),
    (
        "arguments of a run that is ours alone",
        "postmortem.py:arguments_of",
    ): ("postmortem.py:arguments_of unpickles",),
    (
        "only compiled, to compare it with what this process has loaded of the same module",
        "",
    ): ("content/patched.py:_written exec",),
    (
        "a line of ours that raises; the run's words are its file's name only",
        "",
    ): ("postmortem.py:_frame exec",),
    (
        "the head of a function file, whose readers come through the gate",
        "rundir/call.py:read_function",
    ): ("rundir/call.py:decode_function unpickles",),
    (
        "captured code, opened through the gate",
        "runner/captured.py:Finder.__init__",
    ): (
        "runner/captured.py:_read_index unpickles",
        "runner/captured.py:Finder.find_spec imports",
        "runner/captured.py:install sys.path",
    ),
    (
        "the run's own function and arguments, read through the gate at the job's start",
        "runner/run.py:load",
    ): (
        "runner/run.py:get_function imports",
        "runner/run.py:get_function unpickles",
        "runner/run.py:extend_path sys.path",
        "runner/run.py:call_arguments unpickles",
        "runner/arguments.py:_load unpickles",
        "runner/children.py:load unpickles",
        "runner/children.py:install sys.path",
        "runner/children.py:_Later.find_spec sys.path",
        "callbacks/travel.py:load_callbacks unpickles",
    ),
    (
        "calls of a block's inbox, opened through the gate",
        "runner/block.py:_read_inbox",
    ): ("runner/workers.py:Calls.arguments unpickles",),
    (
        "the one place where values are unpickled; who calls it is in this table",
        "",
    ): (
        "runner/values.py:loads unpickles",
        "runner/values.py:loads.load unpickles",
    ),
    (
        "the SDK's copy puts itself first on the path of its own process",
        "",
    ): (
        "api/embedded/__main__.py:start sys.path",
        "runner/__main__.py:_main sys.path",
        "runner/advance.py:- sys.path",
        "runner/environment.py:- sys.path",
        "runner/retry.py:- sys.path",
        "runner/torchrun.py:- sys.path",
    ),
    (
        "a pickle of submitit's folder, opened through the gate",
        "submitit/core/utils.py:pickle_load",
    ): (
        "submitit/core/utils.py:pickle_load unpickles",
        "submitit/core/utils.py:DelayedSubmission.load unpickles",
        "submitit/core/jobs.py:Job._get_outcome_and_result unpickles",
    ),
    (
        "a call that the runner read through the gate",
        "rundir/call.py:read_function",
    ): ("submitit/core/submission.py:run_item unpickles",),
    (
        "the job's own working directory, as submitit has it",
        "",
    ): ("submitit/core/submission.py:run_call sys.path",),
}


def _asks(place: str) -> bool:
    """Whether a function asks the gate itself."""
    file, _, function = place.partition(":")
    tree = ast.parse((SOURCE / file).read_text())
    wanted = function.rpartition(".")[2]
    return any(
        isinstance(inner, ast.Call) and _dotted(inner.func).rpartition(".")[2] in GATE
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == wanted
        for inner in ast.walk(node)
    )


def test_no_place_runs_imports_or_unpickles_what_did_not_pass_the_gate() -> None:
    allowed = {place for places in ALLOWED.values() for place in places}
    found = {f"{place} {kind}" for place, kind in _places()}
    assert found - allowed == set(), "say why these may, and which function asks the gate before"
    assert allowed - found == set(), "these are gone"


def test_each_gate_that_is_named_is_asked() -> None:
    named = {gate for _, gate in ALLOWED if gate}
    assert {gate for gate in named if not _asks(gate)} == set()


def test_a_new_place_would_be_found() -> None:
    """The search itself is tried on what it has to find, and on what it need not."""
    for text in (
        "pickle.load(f)", "cloudpickle.loads(x)", "Unpickler(f).load()", "exec(text)", "eval(x)",
        "runpy.run_path(p)", "importlib.import_module(name)", "sys.path.insert(0, folder)",
        "sys.path[:0] = [x]", "subprocess.run([program])",
        "starting.popen(words)", "subprocess.Popen(words)",
        "os.execv(path, words)", "subprocess.run(['/tmp/x'])", "spec_from_file_location(n, p)",
    ):  # fmt: skip
        tree = ast.parse(text)
        assert any(_kind(node, set()) for node in ast.walk(tree)), text
    for text in ("subprocess.run(['squeue', '-h'])", "import_module('slurm.x')", "json.loads(x)"):
        assert not any(_kind(node, set()) for node in ast.walk(ast.parse(text))), text
