"""The digest of a configuration: equal for equal behaviour in any process, another after a change."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.config.digest import digest
from gateway.config.kubeconfig import ExecPlugin, KubeconfigUser
from gateway.config.load import load
from gateway.config.model import Config, GatewaySettings
from gateway.config.webhook_users import WebhookUsers
from tests.config.test_load import NAMESPACE, POOL, configuration, joined

if TYPE_CHECKING:
    from pathlib import Path

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
        "import sys, pathlib; from gateway.config import digest, load;"
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
