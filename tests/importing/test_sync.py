"""``admission-gateway sync`` on a cluster whose objects change at the same time."""

from __future__ import annotations

import base64
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.kinds.metadata import read_selector
from gateway.config.yaml.fields import Fields, Problems
from gateway.tools.importing.objects import cleaned
from gateway.tools.registration.unregistered import LABEL, is_unregistered, registered_again, unregistered
from tests.importing.kit import MUTATING, VALIDATING, configuration, configurations, entry, registering, run
from tests.kit import Process, call_command
from tests.kubernetes.server import ApiServer
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    Json = dict[str, Any]

GROUP = "/apis/admissionregistration.k8s.io/v1"
CUSTOM = "/apis/admission-gateway.io/v1alpha1"
FILE = "validating-policies.yaml"
AT = f"{GROUP}/validatingwebhookconfigurations/policies"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def hold(server: ApiServer, *documents: Json) -> None:
    """Have *server* hold these objects, and no others of their kinds."""
    for kind in (MUTATING, VALIDATING):
        path = f"{GROUP}/{kind.lower()}s"
        items = [one for one in documents if one["kind"] == kind]
        server.objects[path] = {"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items}
        server.objects.update((f"{path}/{one['metadata']['name']}", one) for one in items)


def written(caller: CompletedProcess[str]) -> list[str]:
    return caller.stdout.splitlines()


class ImportedFolder:
    """A folder that was imported from a cluster with the object ``policies`` and a registered gateway."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder / "config"
        self.kubeconfig = server.kubeconfig(folder)
        self.hold()
        assert run("--kubeconfig", self.kubeconfig, "--output", self.folder).returncode == 0

    def hold(self, *documents: Json) -> None:
        """Have the cluster hold *documents*, else ``policies`` as it was imported, and the gateway."""
        hold(self.server, registering(), *(documents or (configuration(),)))

    def sync(self, *arguments: object) -> CompletedProcess[str]:
        options = ("--kubeconfig", self.kubeconfig, "--output", self.folder)
        return call_command("sync", *options, *arguments)

    @property
    def text(self) -> str:
        return (self.folder / FILE).read_text()


@pytest.fixture
def imports(server: ApiServer, tmp_path: Path) -> ImportedFolder:
    return ImportedFolder(server, tmp_path)


def test_changes_by_a_controller_are_written_once(imports: ImportedFolder) -> None:
    bundle = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    service = entry()["clientConfig"]["service"]
    rule = {**entry()["rules"][0], "resources": ["secrets"]}
    changed = entry(clientConfig={"service": service, "caBundle": bundle}, rules=[rule])
    imports.hold(configuration(VALIDATING, "policies", changed), configuration(MUTATING, "another"))
    done = imports.sync()
    assert done.returncode == 0, done.stderr
    assert written(done) == [f"{imports.folder}/{FILE} written: clientConfig, rules"]
    assert "rules or selectors have changed: apply the output of manifests again" in done.stderr
    assert yaml.safe_load(imports.text)["webhooks"] == [changed]
    assert [file.name for file in imports.folder.iterdir()] == [FILE], "only import takes further objects"
    assert written(imports.sync()) == []


def test_a_followed_bundle_stays_followed_and_a_fixed_one_fixed(imports: ImportedFolder) -> None:
    """A gateway without a cluster cannot follow: sync adds no caBundleFrom to a file without one."""
    bundle = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    client = {"service": entry()["clientConfig"]["service"], "caBundle": bundle}
    owned: Json = {"f:webhooks": {'k:{"name":"a.policies.test"}': {"f:clientConfig": {"f:caBundle": {}}}}}
    managed = {"managedFields": [{"manager": "cainjector", "fieldsV1": owned}]}
    imports.hold(configuration(VALIDATING, "policies", entry(clientConfig=client), **managed))
    assert written(imports.sync()) == [f"{imports.folder}/{FILE} written: clientConfig"]
    assert yaml.safe_load(imports.text)["webhooks"][0]["clientConfig"] == client
    assert run("--kubeconfig", imports.kubeconfig, "--output", imports.folder, "--force").returncode == 0
    assert "caBundleFrom" in imports.text
    assert written(imports.sync()) == []
    client["caBundle"] = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    imports.hold(configuration(VALIDATING, "policies", entry(clientConfig=client), **managed))
    assert written(imports.sync()) == []


def test_invalid_changes_are_not_written(imports: ImportedFolder) -> None:
    before = imports.text
    imports.hold(configuration(VALIDATING, "policies", entry(timeoutSeconds=31)))
    done = imports.sync()
    assert (done.returncode, done.stdout, imports.text) == (1, "", before)
    assert f'error: {VALIDATING} "policies": webhooks[0].timeoutSeconds: found the number 31' in done.stderr


def test_files_of_removed_objects_stay_until_pruned(imports: ImportedFolder) -> None:
    (imports.folder / "gateway.yaml").write_text("kind: GatewayConfiguration")
    imports.hold(configuration(MUTATING, "another"))
    done = imports.sync()
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {imports.folder}/{FILE} is kept although its object no longer exists" in done.stderr
    assert imports.sync("--exclude", "polic*").returncode == 0
    done = imports.sync("--prune")
    assert done.returncode == 0, done.stderr
    assert [file.name for file in imports.folder.iterdir()] == ["gateway.yaml"]


def test_a_cluster_that_is_away_changes_nothing(imports: ImportedFolder) -> None:
    before = imports.text
    imports.kubeconfig.write_text(
        imports.kubeconfig.read_text().replace(imports.server.url, "http://127.0.0.1:1")
    )
    done = imports.sync("--prune", "--unregister")
    assert (done.returncode, done.stdout, imports.text) == (1, "", before)
    assert len(done.stderr.splitlines()) == 1


def test_an_object_is_unregistered_followed_and_restored(imports: ImportedFolder) -> None:
    before, text = imports.server.objects[AT], imports.text
    assert (
        "called directly by the API server, too: ValidatingWebhookConfiguration/policies"
        in imports.sync().stderr
    )
    done = imports.sync("--unregister")
    assert done.returncode == 0, done.stderr
    assert written(done) == [
        f"{VALIDATING}/policies unregistered: the API server no longer calls it directly"
    ]
    (hook,) = imports.server.objects[AT]["webhooks"]
    assert is_unregistered(hook)
    imports.hold(imports.server.objects[AT])
    again = imports.sync("--unregister")
    assert (again.returncode, again.stdout, again.stderr, imports.text) == (0, "", "", text)
    imported = run("--kubeconfig", imports.kubeconfig)
    assert imported.stdout == text, "the mark is not imported"
    (imports.folder / FILE).unlink()
    assert imports.sync().returncode == 0
    assert imports.text == text, "no other component checks unregistered webhooks"
    restored = call_command("sync", "--kubeconfig", imports.kubeconfig, "--restore")
    assert restored.returncode == 0, restored.stderr
    assert written(restored) == [f"{VALIDATING}/policies registered again: the API server calls it directly"]
    assert imports.server.objects[AT]["webhooks"] == before["webhooks"]


def test_nothing_is_unregistered_before_the_gateway_has_it(imports: ImportedFolder) -> None:
    """A change is written first, and the object is unregistered when it is found unchanged."""
    imports.hold(configuration(VALIDATING, "policies", entry(failurePolicy="Ignore")))
    done = imports.sync("--unregister")
    assert done.returncode == 1
    assert "not unregistered until the gateway has loaded the new configuration" in done.stderr
    assert not is_unregistered(imports.server.objects[AT]["webhooks"][0])
    assert imports.sync("--unregister").returncode == 0
    assert is_unregistered(imports.server.objects[AT]["webhooks"][0])


def test_nothing_is_unregistered_where_no_gateway_is_registered(imports: ImportedFolder) -> None:
    hold(imports.server, configuration())
    done = imports.sync("--unregister")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no object was unregistered, because no gateway is registered" in done.stderr
    hold(imports.server, unregistered(configuration()))
    done = imports.sync()
    assert done.returncode == 1
    assert f"not called at all: {VALIDATING}/policies; use manifests, or sync --restore" in done.stderr


def test_a_conflicting_write_is_retried_with_the_current_object(imports: ImportedFolder) -> None:
    imports.server.faults["put"].append(lambda handler: handler.refuse(409, "the object has been modified"))
    done = imports.sync("--unregister")
    assert done.returncode == 0, done.stderr
    assert is_unregistered(imports.server.objects[AT]["webhooks"][0])


def test_a_command_runs_until_it_has_worked(imports: ImportedFolder, tmp_path: Path) -> None:
    done = imports.sync("--then", f"touch '{tmp_path}/the file'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "the file").exists()
    done = imports.sync("--then", "false", "--unregister")
    assert done.returncode == 1
    assert "error: --then false failed with 1" in done.stderr
    assert not is_unregistered(imports.server.objects[AT]["webhooks"][0]), (
        "the registration may be an old one"
    )


def test_a_running_command_is_ended_with_the_synchronization(imports: ImportedFolder, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/ended; exit' TERM; touch {tmp_path}/begun; while :; do sleep 0.01; done"
    options = ("--kubeconfig", str(imports.kubeconfig), "--output", str(imports.folder), "--watch")
    watching = Process(sys.executable, "-m", "gateway", "sync", *options, "--then", f'sh -c "{script}"')
    try:
        eventually((tmp_path / "begun").exists)
        watching.signal(signal.SIGTERM)
        assert watching.wait() == 0, watching.log
        assert (tmp_path / "ended").exists()
    finally:
        watching.stop()


def test_custom_resources_are_followed_in_the_cluster(server: ApiServer, tmp_path: Path) -> None:
    marked = unregistered(configuration())
    hold(server, registering(), marked)
    kubeconfig = server.kubeconfig(tmp_path)
    sync = ("sync", "--kubeconfig", kubeconfig, "--as", "CustomResources")
    done = call_command(*sync)
    assert done.returncode == 0, done.stderr
    made = server.objects[f"{CUSTOM}/validatingwebhookconfigurations/policies"]
    assert made["webhooks"] == cleaned(configuration(), as_resource=True)["webhooks"]
    assert written(call_command(*sync)) == []
    marked["webhooks"][0]["timeoutSeconds"] = 7
    done = call_command(*sync)
    assert written(done) == ["custom resource policies written: timeoutSeconds"], done.stderr
    made = server.objects[f"{CUSTOM}/validatingwebhookconfigurations/policies"]
    assert made["webhooks"][0]["timeoutSeconds"] == 7


@pytest.mark.parametrize("arguments", [(), ("--restore", "--watch"), ("--restore", "--unregister")])
def test_options_that_contradict_each_other_are_refused(arguments: tuple[str, ...]) -> None:
    done = call_command("sync", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


# -- the mark --------------------------------------------------------------------------------------

labels = st.dictionaries(st.sampled_from([LABEL, "team", "kind"]), st.sampled_from(["", "a", "b"]))


@settings(max_examples=60)
@given(configurations(), labels)
def test_unregistered_webhooks_match_nothing_and_can_be_restored(
    documents: list[Json], found: dict[str, str]
) -> None:
    for document in documents:
        marked = unregistered(document)
        assert unregistered(marked) == marked
        for hook in marked["webhooks"]:
            assert is_unregistered(hook)
            for field in ("namespaceSelector", "objectSelector"):
                problems = Problems("")
                selector = read_selector(Fields(hook[field], "", problems))
                assert not problems.found
                assert not selector.matches(found)
        restored = registered_again(marked)
        for before, after in zip(document["webhooks"], restored["webhooks"], strict=True):
            assert {"namespaceSelector": {}, "objectSelector": {}, **before} == after
