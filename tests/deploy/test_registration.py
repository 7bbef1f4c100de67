"""registration.yaml is valid, refused without a CA, and covers the configuration of the ConfigMap."""

from __future__ import annotations

import base64
import binascii
import shlex
from itertools import product
from typing import TYPE_CHECKING

import pytest

from gateway.config.merge.load import load
from gateway.engine.paths import Paths
from gateway.tools.cli import main
from tests.deploy.cluster import (
    CA_PLACEHOLDER,
    GATEWAY,
    REGISTRATION,
    WORKER,
    objects,
    only,
    write_config_map,
)

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Rule


def entries() -> list[tuple[str, dict[str, object]]]:
    """Every registered webhook with its phase."""
    phases = {"MutatingWebhookConfiguration": "mutate", "ValidatingWebhookConfiguration": "validate"}
    return [(phases[o["kind"]], webhook) for o in objects(REGISTRATION) for webhook in o["webhooks"]]


def covers(registered: Rule, configured: Rule) -> bool:
    """Return whether *registered* matches every request that *configured* matches."""
    return (
        all(
            set(getattr(registered, dimension)) & {"*", wanted}
            for dimension in ("operations", "api_groups", "api_versions")
            for wanted in getattr(configured, dimension)
        )
        and all(
            any(resource_covers(entry, wanted) for entry in registered.resources)
            for wanted in configured.resources
        )
        and registered.scope in ("*", configured.scope)
    )


def resource_covers(entry: str, wanted: str) -> bool:
    """``*`` stands for all resources, and ``*/*`` and ``pods/*`` for subresources and what they belong to."""
    (name, _, sub_name), (wanted_name, _, wanted_sub_name) = entry.partition("/"), wanted.partition("/")
    return name in ("*", wanted_name) and sub_name in ("*", wanted_sub_name)


def split(rule: Rule) -> list[Rule]:
    """Split *rule* into rules with one entry in each field, which different registered rules may cover."""
    return [
        type(rule)((operation,), (group,), (version,), (resource,), rule.scope)
        for operation, group, version, resource in product(
            rule.operations, rule.api_groups, rule.api_versions, rule.resources
        )
    ]


def test_the_api_servers_own_checks_find_nothing(tmp_path: Path, authority: trustme.CA) -> None:
    """The gateway's reader has all of them."""
    file = tmp_path / "registration.yaml"
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    file.write_text(REGISTRATION.read_text().replace(f"caBundle: {CA_PLACEHOLDER}", f"caBundle: {bundle}"))
    config = load([file])
    assert len(config.mutating) + len(config.validating) == len(entries())


def test_without_a_ca_filled_in_the_api_server_refuses_every_entry() -> None:
    """An empty or wrong bundle would be accepted, and every call would fail."""
    for _, entry in entries():
        client_config = entry["clientConfig"]
        assert isinstance(client_config, dict)
        assert client_config["caBundle"] == CA_PLACEHOLDER
    with pytest.raises(binascii.Error):
        base64.b64decode(CA_PLACEHOLDER, validate=True)


def test_the_command_in_the_file_that_fills_in_the_ca_changes_no_other_field() -> None:
    text = REGISTRATION.read_text()
    assert f'sed "s|{CA_PLACEHOLDER}|' in text
    lines = [line for line in text.splitlines() if CA_PLACEHOLDER in line and not line.startswith("#")]
    assert [line.strip() for line in lines] == [f"caBundle: {CA_PLACEHOLDER}"] * len(entries())


def test_the_file_is_what_the_command_in_it_prints(
    tmp_path: Path, authority: trustme.CA, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has a placeholder for the CA, and comments at its beginning."""
    command = REGISTRATION.read_text().partition("admission-gateway manifests ")[2].partition("\n#\n")[0]
    arguments = shlex.split(command.replace("\\\n#", " "))
    ca_file = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(ca_file))
    files = {"config": str(write_config_map(tmp_path)), "certs/ca.crt": str(ca_file)}
    with pytest.raises(SystemExit) as end:
        main(["manifests", *(files.get(argument, argument) for argument in arguments)])
    printed, said = capsys.readouterr()
    assert end.value.code == 0
    lost = "namespaces admission-gateway, kube-system, kube-public, kube-node-lease excluded: 3 webhooks"
    assert [line.partition(" are not called")[0] for line in said.splitlines()] == [f"warning: {lost}"]
    bundle = base64.b64encode(ca_file.read_bytes()).decode()
    assert without_head(REGISTRATION.read_text()) == without_head(printed.replace(bundle, CA_PLACEHOLDER))


def without_head(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def test_every_entry_calls_the_path_of_its_own_failure_policy(config: Config) -> None:
    (port,) = only("Service", GATEWAY)["spec"]["ports"]
    paths = Paths(config)
    for phase, entry in entries():
        client_config = entry["clientConfig"]
        assert isinstance(client_config, dict)
        path = "/mutate" if phase == "mutate" else f"/validate.{str(entry['failurePolicy']).lower()}"
        assert client_config["service"] == {
            "namespace": GATEWAY,
            "name": GATEWAY,
            "port": port["port"],
            "path": path,
        }
        assert paths[path].webhooks, f"{path} is registered and selects nothing"


def test_every_configured_webhook_is_registered_with_all_its_rules(
    config: Config, registered: Config
) -> None:
    for hook in (*config.mutating, *config.validating):
        offered = [
            rule
            for entry in (*registered.mutating, *registered.validating)
            if (entry.phase, entry.failure_policy) == (hook.phase, hook.failure_policy)
            for rule in entry.rules
        ]
        for rule in hook.rules:
            for part in split(rule):
                assert any(covers(offer, part) for offer in offered), (hook.name, part)


def test_the_gateways_own_namespace_and_the_clusters_are_left_out(registered: Config) -> None:
    label = "kubernetes.io/metadata.name"
    assert only("Namespace", GATEWAY)["metadata"]["labels"][label] == GATEWAY
    assert {only("Deployment", name)["metadata"]["namespace"] for name in (GATEWAY, WORKER)} == {GATEWAY}
    for entry in (*registered.mutating, *registered.validating):
        for name in (GATEWAY, "kube-system", "kube-public", "kube-node-lease"):
            assert not entry.namespace_selector.matches({label: name})
        assert entry.namespace_selector.matches({label: "default"})


def test_all_entries_leave_the_same_namespaces_out(registered: Config) -> None:
    assert len({entry.namespace_selector for entry in (*registered.mutating, *registered.validating)}) == 1


def test_entries_are_dry_run_safe_and_follow_conversion(registered: Config) -> None:
    for entry in (*registered.mutating, *registered.validating):
        assert entry.side_effects == "None"
        assert entry.match_policy == "Equivalent"


def test_the_api_server_waits_longer_than_the_workers_may_take(config: Config, registered: Config) -> None:
    """Mutating webhooks may be called one after another, with IfNeeded twice; validating ones at once."""
    reserve_s = config.gateway.deadline_reserve_s
    needed_s = {
        "mutate": sum(h.timeout_s * (1 + (h.reinvocation_policy == "IfNeeded")) for h in config.mutating),
        "validate": max(hook.timeout_s for hook in config.validating),
    }
    for entry in (*registered.mutating, *registered.validating):
        assert entry.timeout_s > needed_s[entry.phase] + min(reserve_s, entry.timeout_s / 5)


@pytest.mark.parametrize(
    ("entry", "wanted", "is_covered"),
    [
        ("pods", "pods", True),
        ("pods", "pods/status", False),
        ("pods/*", "pods", True),
        ("pods/*", "pods/status", True),
        ("*", "pods", True),
        ("*", "pods/status", False),
        ("*/*", "pods/status", True),
        ("*/status", "pods/status", True),
        ("*/status", "pods", False),
        ("pods", "*", False),
        ("pods/*", "pods/*", True),
    ],
)
def test_what_covers_a_resource(entry: str, wanted: str, is_covered: bool) -> None:
    assert resource_covers(entry, wanted) is is_covered
