"""The digest of a configuration: equal for equal behaviour in any process, another after a change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.kubeconfig import ExecPlugin, KubeconfigUser
from gateway.config.kinds.webhook_users import WebhookUsers
from gateway.config.merge.digest import _PIECES_LEVELS, _canonical, _json, _pieces, digest
from gateway.config.merge.load import load
from gateway.config.merge.model import Config
from gateway.server.options import Options
from tests.config.test_load import NAMESPACE, POOL, configuration, joined
from tests.config.test_properties import wholes

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=10,
)
SELECTOR = "  objectSelector: {matchExpressions: [{key: a, operator: In, values: [x, y, z, w]}]}\n"
CONDITIONS = "  matchConditions: [{name: c, expression: %s}]\n"
DOCUMENTS = (
    configuration("Validating", "b", "one", "two") + SELECTOR + CONDITIONS % "'true'",
    configuration("Mutating", "a", "three"),
    POOL % ("pods", "pods"),
    NAMESPACE % "team",
)


def digest_of(folder: Path, *documents: str) -> str:
    file = folder / "config.yaml"
    file.write_text(joined(*documents))
    return digest(load([file]))


def test_it_does_not_depend_on_the_order_of_documents_or_files_or_on_the_process(tmp_path: Path) -> None:
    expected = digest_of(tmp_path, *DOCUMENTS)
    assert digest_of(tmp_path, *reversed(DOCUMENTS)) == expected
    assert len(expected) == 64
    folder = tmp_path / "split"
    folder.mkdir()
    for number, document in enumerate(DOCUMENTS):
        (folder / f"{number}.yaml").write_text(document)
    assert digest(load([folder])) == expected
    code = (
        "import sys, pathlib; from gateway.config.merge import digest, load;"
        "print(digest.digest(load.load([pathlib.Path(sys.argv[1])])))"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code, str(folder)]
        done = subprocess.run(
            command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


def test_every_change_of_behaviour_changes_it(tmp_path: Path) -> None:
    validating, *others = DOCUMENTS
    changed = [
        DOCUMENTS,
        others,
        (validating.replace("values: [x", "values: [v"), *others),
        (validating.replace("'true'", "'1 == 1'"), *others),
        (validating.replace("name: c,", "name: d,"), *others),
        (validating.replace("name: one", "name: five"), *others),
        (configuration("Validating", "b", "two", "one") + SELECTOR + CONDITIONS % "'true'", *others),
        (*DOCUMENTS, NAMESPACE % "other"),
        (*DOCUMENTS, POOL % ("other", "pods")),
    ]
    assert len({digest_of(tmp_path, *documents) for documents in changed}) == len(changed)


def test_addresses_and_secrets_are_not_part_of_it() -> None:
    def of(user: KubeconfigUser, listen: str = "0.0.0.0:8443") -> str:
        users = WebhookUsers(by_name={"*": user})
        return digest(Config(gateway=GatewaySettings(listen=listen, webhook_users=users)))

    plain = KubeconfigUser(plugin=ExecPlugin("login"))
    secret = replace(
        plain,
        token="t",
        basic=("u", "p"),
        certificate_pem=b"c",
        key_pem=b"k",
        plugin=ExecPlugin("login", variables=(("A", "b"),)),
    )
    assert of(plain) == of(secret) == of(plain, "127.0.0.1:1") == of(plain)
    assert of(plain) != of(replace(plain, plugin=ExecPlugin("other")))


def test_text_that_is_no_unicode_has_a_digest() -> None:
    assert digest(Config(configurations=frozenset({("mutate", "\ud800")}))) != digest(Config())


# -- files, folders and processes ---------------------------------------------------------------------

GATEWAY = "admission-gateway.io/v1alpha1"
PAIR = {"certFile": "tls.crt", "keyFile": "keys/tls.key"}
FILES: dict[str, Any] = {
    "tls": {**PAIR, "clientCAFile": "ca.crt"},
    "authentication": {"tokenFile": "tokens", "basicAuthFile": "./passwords"},
    "webhookKubeConfigFile": "kube/users.json",
    "kubernetes": {"kubeconfig": "kube/users.json"},
    "record": {"folder": "recordings"},
}
"""Fields with files, below the folder of the configuration."""
POOLS: tuple[dict[str, Any], ...] = (
    {"target": "unix:worker.sock"},
    {"target": "dns:///pods:1", "tls": {**PAIR, "caFile": "../ca.crt"}},
    {"command": ["python", "policies.py"]},
)
IMAGES = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: images}
webhooks:
- name: images.example.com
  clientConfig: {imageReview: {kubeConfigFile: kube/users.json}}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  sideEffects: None
  admissionReviewVersions: [v1]
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration that names files in every way, in its folder ``config``."""
    root = tmp_path_factory.mktemp("first") / "machine"
    config = root / "config"
    for folder in ("kube", "keys"):
        (config / folder).mkdir(parents=True)
    ca = trustme.CA()
    pair = ca.issue_cert("gateway.example.com")
    for file in (root / "ca.crt", config / "ca.crt", config / "kube" / "ca.crt"):
        ca.cert_pem.write_to_path(file)
    (config / "tls.crt").write_bytes(pair.cert_chain_pems[0].bytes())
    pair.private_key_pem.write_to_path(config / "keys" / "tls.key")
    for name, text in (("tokens", "secret\n"), ("passwords", "a:b\n"), ("kube/token", "secret\n")):
        (config / name).write_text(text)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login"}}
    cluster = {"server": "https://images.example.com/", "certificate-authority": "ca.crt"}
    users = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}, {"name": "*", "user": user}],
    }
    (config / "kube" / "users.json").write_bytes(orjson.dumps(users))
    gateway = {"apiVersion": GATEWAY, "kind": "GatewayConfiguration", **FILES}
    pools = [
        {"apiVersion": GATEWAY, "kind": "WorkerPool", "metadata": {"name": f"p{number}"}, "spec": spec}
        for number, spec in enumerate(POOLS)
    ]
    (config / "pools.json").write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": pools}))
    (config / "gateway.json").write_bytes(orjson.dumps(gateway))
    (config / "images.yaml").write_text(IMAGES)
    return root


def test_two_processes_in_other_places_have_one_digest(machine: Path, tmp_path: Path) -> None:
    """Folders, working folder, temporary folder, host name and the paths of the command line differ."""
    code = (
        "import sys, tempfile; from pathlib import Path; from gateway.config.merge.digest import digest;"
        "from gateway.server.options import Options; tls = Path(tempfile.mkdtemp()) / 'tls';"
        "options = Options((Path(sys.argv[1]),), tls_cert=tls, tls_key=tls, client_ca=tls);"
        "print(digest(options.load()))"
    )
    digests = []
    for name, working_folder, argument in (
        ("one", "", "config"),
        ("two", "config", "."),
        ("three", "..", ""),
    ):
        root = tmp_path / name
        shutil.copytree(machine, root)
        (root / "temporary").mkdir()
        environment = {"TMPDIR": str(root / "temporary"), "HOSTNAME": name, "HOME": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", code, argument or str(root / "config")],
            cwd=root / working_folder,
            env={**environment, "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr
        digests.append(done.stdout)
    assert len(set(digests)) == 1


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("gateway.json", '"tls.crt"', '"./keys/../tls.crt"'),
        ("gateway.json", '"clientCAFile":"ca.crt"', '"clientCAFile":"../ca.crt"'),
        ("gateway.json", '"tokens"', '"kube/token"'),
        ("gateway.json", '"kubeconfig":"kube/users.json"', '"kubeconfig":"./kube/../kube/users.json"'),
        ("pools.json", "unix:worker.sock", "unix:other.sock"),
        ("pools.json", '"policies.py"', '"other.py"'),
        ("pools.json", '"../ca.crt"', '"ca.crt"'),
        ("images.yaml", "kube/users.json", "kube/../kube/users.json"),
        ("kube/users.json", '"tokenFile":"token"', '"tokenFile":"../tokens"'),
        ("kube/users.json", "./login", "./log-in"),
    ],
)
def test_another_file_is_another_configuration(
    file: str, old: str, new: str, machine: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(machine, root)
    before = digest(load([root / "config"]))
    changed = root / "config" / file
    text = changed.read_text()
    assert text.count(old) >= 1
    changed.write_text(text.replace(old, new, 1))
    assert digest(load([root / "config"])) != before


def digest_at(place: Path, documents: list[dict[str, Any]], *, is_relative: bool, temporary: str) -> str:
    folder = place / "config"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "all.json").write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    given = Path("config") if is_relative else folder
    certificate, key = Path(temporary, "tls.crt"), Path(temporary, "tls.key")
    with chdir(place):
        return digest(Options((given,), tls_cert=certificate, tls_key=key).load())


def with_files(documents: list[dict[str, Any]], socket: str | None) -> list[dict[str, Any]]:
    pool = {"apiVersion": GATEWAY, "kind": "WorkerPool", "metadata": {"name": "a.socket"}}
    return [*documents, *([] if socket is None else [{**pool, "spec": {"target": f"unix:{socket}"}}])]


NAMES = st.from_regex(r"[a-z]{1,12}", fullmatch=True)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30, deadline=None)
@given(
    documents=wholes(),
    socket=NAMES,
    other=st.none() | NAMES,
    places=st.lists(NAMES, min_size=2, max_size=2, unique=True),
    is_relative=st.booleans(),
)
def test_it_depends_on_what_is_configured_and_on_nothing_else(
    documents: list[dict[str, Any]],
    socket: str,
    other: str | None,
    places: list[str],
    is_relative: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    first, second = (tmp_path_factory.mktemp("at") / place for place in places)
    written = with_files(documents, socket)
    expected = digest_at(first, written, is_relative=False, temporary="/tmp/a")
    assert digest_at(second, written, is_relative=is_relative, temporary="/tmp/b") == expected
    changed = digest_at(second, with_files(documents, other), is_relative=is_relative, temporary="/tmp/b")
    assert (changed == expected) == (other == socket)


@given(_JSON, st.integers(0, 4))
def test_the_pieces_of_a_document_are_its_json(document: object, levels: int) -> None:
    assert "".join(_pieces(document, levels)) == _json(document)


def test_no_piece_is_longer_for_more_webhooks(tmp_path: Path) -> None:
    """One call of the encoder keeps all other threads from running."""

    def longest(number: int) -> int:
        names = [f"w{index:04}" for index in range(number)]
        file = tmp_path / "config.yaml"
        file.write_text(joined(configuration("Validating", "b", *names), POOL % ("pods", "pods")))
        config = load([file])
        assert len(config.validating) == number
        return max(map(len, _pieces(_canonical(config, config.named_files), _PIECES_LEVELS)))

    assert longest(300) == longest(3)
