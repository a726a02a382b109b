"""`cluster.toml`: what is accepted, and what each wrong file is told."""

# ruff: noqa: E501 - a wrong file and what it is told are one line

from __future__ import annotations

import dataclasses
import re
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import ConfigError
from slurm.model.units import GpuRequest
from slurm.stack.plan import container_plan
from slurm.stack.read import parse_topology, read_topology
from slurm.stack.toml_lines import key_lines
from slurm.stack.topology import Topology

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NODES = '[[nodes]]\nnames = "n[1-4]"\n'
TWO_HOSTS = """\
[network]
address = "10.1.1.1"
[[nodes]]
names = "a"
[[nodes]]
names = "b"
host = "mac"
[[hosts]]
name = "mac"
address = "10.1.1.2"
"""

#: A wrong file, the line at fault, words of the message, words of the fix.
WRONG = {
    "no value": ("name =\n", 1, "not valid TOML", "quotes"),
    "open text": ('name = "lab\n', 1, "not valid TOML", "quotes"),
    "open list": ('[conf]\nslurm = ["A=1"\n', 3, "not valid TOML", "tables look like"),
    "key twice": ('name = "a"\nname = "b"\n', 2, "not valid TOML", "tables look like"),
    "unknown key": ('name = "a"\nverson = "24.11"\n', 2, "'verson'", "did you mean version?"),
    "unknown table": ("[logn]\nenabled = true\n", 1, "'logn'", "did you mean login?"),
    "Slurm's word": (NODES + "RealMemory = 4000\n", 3, "'RealMemory'", "did you mean memory?"),
    "nothing like it": ("[rest]\nzzzqqq = 1\n", 2, "'zzzqqq' in [rest]", "has enabled, port"),
    "number in quotes": (NODES + 'cpus = "four"\n', 3, "must be a whole number", "without quotes"),
    "too many CPUs": (NODES + "cpus = 0\n", 3, "0 is not a whole number from 1", "from 1 to 4096"),
    "true for a number": (NODES + "cpus = true\n", 3, "not True", "such as 1"),
    "flag in quotes": ('[login]\nenabled = "yes"\n', 2, "must be true or false", "no quotes"),
    "wrong engine": ('engine = "podmam"\n', 1, "'podmam' is not one of", 'mean "podman"?'),
    "wrong version": ('version = "23.02"\n', 1, "'23.02' is not one of", '"'),
    "version as number": ("version = 24.11\n", 1, "in quotes, not 24.11", '"..."'),
    "bad cluster name": ('name = "My Lab"\n', 1, "'My Lab' is not a name", "lower case"),
    "bad host list": ('[[nodes]]\nnames = "n[1-"\n', 2, "is not closed", "n[1-4]"),
    "no node": ('[[nodes]]\nnames = ""\n', 2, "names no node", "n[1-4]"),
    "upper case node": ('[[nodes]]\nnames = "Node1"\n', 2, "not a host name", "lower case"),
    "nodes without names": ("[[nodes]]\ncpus = 2\n", 1, "names is missing", "add names ="),
    "node twice": (NODES + '[[nodes]]\nnames = "n4"\n', 4, "n4 is also in nodes[0]", "one name"),
    "bad memory": (NODES + 'memory = "2 gallons"\n', 3, "not an amount of memory", "8GiB"),
    "little memory": (NODES + 'memory = "1MiB"\n', 3, "too little", "64MiB"),
    "bad GPUs": (NODES + 'gpus = "a100:two:3"\n', 3, "not a number of GPUs", "a100:2"),
    "unknown host": (NODES + 'host = "macbok"\n', 3, 'no host "macbok"', "known: none"),
    "one table for many": ('[nodes]\nnames = "n1"\n', 1, "must be a list of tables", "[[nodes]]"),
    "many tables for one": ("[[login]]\nenabled = true\n", 1, "must be a table", "[login]"),
    "partition's node": (NODES + '[[partitions]]\nname = "a"\nnodes = "n9"\n', 5, '"n9"', "n1"),
    "two defaults": (
        '[[partitions]]\nname = "a"\ndefault = true\n[[partitions]]\nname = "b"\ndefault = true\n',
        6, '"a" is the default partition already', "one partition",
    ),
    "partition twice": ('[[partitions]]\nname = "a"\n[[partitions]]\nname = "a"\n', 4, "twice", ""),
    "bad time": ('[[partitions]]\nname = "a"\nmax_time = "soon"\n', 3, "is not a time", "90min"),
    "times": (
        '[[partitions]]\nname = "a"\nmax_time = "1h"\ndefault_time = "2h"\n', 4, "longer", "at most"
    ),
    "QOS of nobody": ('[[partitions]]\nname = "a"\nqos = "fast"\n', 3, 'no QOS "fast"', "normal"),
    "parent of nobody": ('[[accounts]]\nname = "a"\nparent = "b"\n', 3, 'no account "b"', "root"),
    "circle of accounts": (
        '[[accounts]]\nname = "a"\nparent = "b"\n[[accounts]]\nname = "b"\nparent = "a"\n',
        3, "circle", 'parent = "root"',
    ),
    "user of nobody": (
        '[[users]]\nname = "ada"\nuid = 1000\n[[accounts]]\nname = "a"\nusers = ["adda"]\n',
        6, 'no user "adda"', 'did you mean "ada"?',
    ),
    "uid twice": (
        '[[users]]\nname = "a"\nuid = 1000\n[[users]]\nname = "b"\nuid = 1000\n',
        6, "1000 is the uid of a too", "each user",
    ),
    "user of the system": ('[[users]]\nname = "slurm"\nuid = 1000\n', 2, "account of the", "person"),
    "uid of root": ('[[users]]\nname = "ada"\nuid = 0\n', 3, "from 1000", "1000"),
    "auth/slurm too early": (
        'version = "22.05"\n[auth]\nkind = "slurm"\n', 3, "came with 23.11", "munge"
    ),
    "REST without tokens": ("[rest]\nenabled = true\n[auth]\njwt = false\n", 4, "tokens", "true"),
    "external without host": ('[database]\nkind = "external"\n', 1, "host is missing", "host ="),
    "external on itself": (
        '[database]\nkind = "external"\nhost = "localhost"\n', 3, "container itself", "address"
    ),
    "host without external": ('[database]\nhost = "db"\n', 2, 'only with kind = "external"', "kind"),
    "password": ('[database]\npassword = "x"\n', 2, "no secret belongs", "generated"),
    "accounts without database": (
        '[database]\nkind = "none"\n[[accounts]]\nname = "a"\n', 3, "needs accounting", "database"
    ),
    "large buffer pool": ('[database]\nbuffer_pool = "2GiB"\n', 2, "too little", "three quarters"),
    "bad address": ('[rest]\naddress = "localhost"\n', 2, "not an IPv4 address", "192.168"),
    "bad subnet": ('[network]\nsubnet = "10.0.0.1/24"\n', 2, "not an IPv4 network", "/24"),
    "small subnet": ('[network]\nsubnet = "10.0.0.0/28"\n', 2, "no room for 2 nodes", "wider"),
    "port twice": (
        "[rest]\nenabled = true\nport = 2222\n[login]\nenabled = true\nport = 2222\n",
        6, "2222 is also rest.port", "own port",
    ),
    "port among srun's": ("[controller]\nport = 60500\n", 2, "lies in network.srun_ports", "outside"),
    "host without address": (
        NODES + 'host = "mac"\n[network]\naddress = "10.1.1.1"\n[[hosts]]\nname = "mac"\n',
        6, "address is missing", "add address",
    ),
    "hosts without own address": (
        NODES + 'host = "mac"\n[[hosts]]\nname = "mac"\naddress = "10.1.1.2"\n',
        3, "need network.address", "[network]",
    ),
    "mixed partition": (
        '[network]\naddress = "10.1.1.1"\n[[hosts]]\nname = "mac"\naddress = "10.1.1.2"\n'
        'shared = false\n[[nodes]]\nnames = "a"\n[[nodes]]\nnames = "b"\nhost = "mac"\n'
        '[[partitions]]\nname = "all"\nnodes = "a,b"\n',
        14, "b has no shared directory", "partition of its own",
    ),
    "joined host with a volume of the first": (
        TWO_HOSTS, 8, 'the volume "home" is not on mac', "shared = false",
    ),
    "joined host and a backup": (
        TWO_HOSTS + "shared = false\n[controller]\nbackup = true\n",
        13, "cannot both be published", "remove it",
    ),
    "joined host and an old release": (
        'version = "20.11"\n' + TWO_HOSTS + "shared = false\n", 8, "came with 22.05", "later",
    ),
    "two nodes of a joined host and an old release": (
        'version = "22.05"\n' + TWO_HOSTS.replace('"b"', '"b[1-2]"') + "shared = false\n",
        8, "lets one node of mac join", "larger node",
    ),
    "too few ports for srun": (
        TWO_HOSTS.replace('1.1"', '1.1"\nsrun_ports = "60001-60006"') + "shared = false\n",
        3, "6 ports are too few for 1 nodes", "8 or more",
    ),
    "shared system directory": ('[shared]\npath = "/etc"\n', 2, "belongs to each container", "/home"),
    "path with blanks": ('[shared]\npath = "/my home"\n', 2, "not an absolute path", "absolute"),
    "wrong placeholder": ('[images]\nbase = "debian:{release}"\n', 2, "{release}", "{suite}"),
    "unknown line": ('[conf]\nslurm = [\n  "MaxArraySiz=5",\n]\n', 3, "no key", "MaxArraySize?"),
    "line too new": ('[conf]\nslurm = ["MetricsType=x"]\n', 2, "came with Slurm 25.11", "later"),
    "line of ours": ('[conf]\nslurm = ["ClusterName=x"]\n', 2, "decided by the topology", "keys"),
    "line that is none": ('[conf]\ncgroup = ["yes please"]\n', 2, "is not KEY=VALUE", "such as"),
    "password as a line": ('[conf]\nslurmdbd = ["StoragePass=x"]\n', 2, "no secret", "secrets"),
    "backup of native": (
        'engine = "native"\n[controller]\nbackup = true\n', 3, "a backup controller", "podman"
    ),
    "list for a text": ('name = ["a"]\n', 1, "in quotes, not ['a']", '"..."'),
    "text for a list": (NODES + 'features = "gpu"\n', 3, "must be a list", "['gpu']"),
    "feature twice": (NODES + 'features = ["a", "a"]\n', 3, "twice", "remove one"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_with_its_line_and_what_to_write(name: str) -> None:
    text, line, what, fix = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        parse_topology(text, "lab.toml")
    assert caught.value.message.startswith(f"lab.toml, line {line}: "), caught.value
    assert what in caught.value.message
    assert caught.value.hint and fix in caught.value.hint
    assert "Traceback" not in str(caught.value)


def test_there_are_at_least_forty_wrong_files() -> None:
    assert len(WRONG) >= 40


def test_all_problems_of_a_file_are_told_at_once() -> None:
    text = NODES + 'cpus = "x"\nmemory = []\n[logn]\n'
    with pytest.raises(ConfigError) as caught:
        parse_topology(text)
    told = str(caught.value)
    assert "line 3: nodes[0].cpus" in told
    assert "also line 4: nodes[0].memory" in told and "also line 5: logn" in told


def test_no_file_and_an_empty_file_are_a_cluster_of_two_nodes(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("")
    assert read_topology() == read_topology(tmp_path) == Topology()
    plan = container_plan(read_topology())
    assert [node.name for node in plan.nodes] == ["n1", "n2"]
    assert [part.name for part in plan.partitions] == ["main"]


def test_values_are_read_with_their_units() -> None:
    text = """
        [[nodes]]
        names = "n[01-03],g1"
        memory = "1.5GiB"
        gpus = "a100:2"
        [[partitions]]
        name = "debug"
        max_time = "1-12:00:00"
        [network]
        srun_ports = "50001-50100"
        """
    found = parse_topology(textwrap.dedent(text))
    assert found.nodes[0].names == ("n01", "n02", "n03", "g1")
    assert found.nodes[0].memory == 1536
    assert found.nodes[0].gpus == (GpuRequest("a100", 2),)
    assert found.partitions[0].max_time == 36 * 3600
    assert found.network.srun_ports == (50001, 50100)


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_topology(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b'name = "a"\n# \xff\n')
    with pytest.raises(ConfigError, match=r"bad\.toml, line 2: not UTF-8"):
        read_topology(tmp_path / "bad.toml")


def test_every_key_of_the_schema_has_a_kind_and_a_meaning() -> None:
    def visit(cls: type) -> int:
        count = 0
        for field in dataclasses.fields(cls):
            assert field.metadata["doc"], f"{cls.__name__}.{field.name}"
            below = field.metadata.get("table") or field.metadata.get("tables")
            count += visit(below) if below else 1
            assert below or field.metadata["kind"].words
        return count

    assert visit(Topology) > 80


# ---- the reader never breaks, whatever it is given ----------------------------------------------

_WORDS = st.sampled_from(
    ["name", "nodes", "names", "cpus", "login", "enabled", "conf", "slurm", "x", '"a b"', "'q.r'"]
)
_KEYS = st.lists(_WORDS, min_size=1, max_size=3).map(".".join)
_PLAIN = st.one_of(
    st.integers().map(str),
    st.booleans().map(lambda b: str(b).lower()),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=12).map(lambda s: '"' + re.sub(r'[\x00-\x1f\x7f"\\]', "_", s) + '"'),
    st.sampled_from(
        ['"n[1-3]"', '"""a\n#b\n"""', "'''x\n]'''", "1979-05-27", "07:32:00", '"2GiB"']
    ),
)
_VALUES = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda xs: "[\n" + ",\n # c\n".join(xs) + "\n]"),
        st.lists(st.tuples(_WORDS, inner), max_size=3).map(
            lambda xs: "{" + ", ".join(f"{k} = {v}" for k, v in xs) + "}"
        ),
    ),
    max_leaves=6,
)
_LINES = st.one_of(
    st.tuples(_KEYS, _VALUES).map(lambda kv: f"{kv[0]} = {kv[1]}"),
    _KEYS.map(lambda key: f"[{key}]"),
    _KEYS.map(lambda key: f"[[ {key} ]] # c"),
    st.just("# a comment"),
)
_DOCUMENTS = st.lists(_LINES, max_size=8).map("\n".join)


@given(st.one_of(_DOCUMENTS, st.text(max_size=200)))
def test_any_text_gives_a_topology_or_an_error_of_ours(text: str) -> None:
    try:
        parse_topology(text)
    except ConfigError as error:
        assert re.match(r"cluster\.toml, line \d+: ", error.message)
        assert error.hint


@given(_DOCUMENTS)
def test_every_key_of_a_readable_text_has_a_line_that_names_it(text: str) -> None:
    try:
        data = tomllib.loads(text)
    except ValueError:
        return
    lines = key_lines(text)
    source = text.split("\n")

    def visit(value: object, way: tuple[str | int, ...]) -> None:
        if way:
            assert way in lines, (way, lines)
            if isinstance(way[-1], str):
                assert way[-1] in source[lines[way] - 1]
        if isinstance(value, dict):
            for key, below in value.items():
                visit(below, (*way, key))
        elif isinstance(value, list):
            for number, below in enumerate(value):
                visit(below, (*way, number))

    visit(data, ())
