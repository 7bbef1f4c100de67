"""``GatewayConfiguration.kubernetes``, and the problems of invalid kubeconfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.base.errors import ConfigError
from gateway.config.kinds.kubeconfig import KubeconfigUser, read_kubeconfig
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.merge.load import load

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "https://10.0.0.1:6443"


def kubeconfig(**members: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "blue",
        "contexts": [
            {"name": "blue", "context": {"cluster": "one", "user": "me"}},
            {"name": "red", "context": {"cluster": "two"}},
        ],
        "clusters": [
            {"name": "one", "cluster": {"server": SERVER}},
            {"name": "two", "cluster": {"server": "http://localhost:1"}},
            {"name": "broken", "cluster": 5},
        ],
        "users": [{"name": "me", "user": {"token": "t"}}],
        **members,
    }


def write(folder: Path, kubernetes: object, content: object = None) -> Path:
    """Write a configuration, and a kubeconfig if *content* is given."""
    file = folder / "config.yaml"
    settings = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    file.write_text(yaml.safe_dump({**settings, "kubernetes": kubernetes}))
    if content is not None:
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (folder / "kube").write_text(text)
    return file


def problem(file: Path) -> str:
    """The only problem, with its field."""
    with pytest.raises(ConfigError) as caught:
        load([file])
    (found,) = caught.value.problems
    return f"{found.field}: {found.message}"


@pytest.mark.parametrize(
    ("written", "context"),
    [({"kubeconfig": "kube"}, None), ({"kubeconfig": "kube", "context": "red"}, "red")],
)
def test_a_kubeconfig_is_relative_to_the_file_that_names_it(
    tmp_path: Path, written: dict[str, str], context: str | None
) -> None:
    loaded = load([write(tmp_path, written, kubeconfig())]).gateway.kubernetes
    assert loaded == KubernetesSettings(tmp_path / "kube", context)


def test_an_empty_group_is_the_service_account_and_no_group_no_cluster(tmp_path: Path) -> None:
    assert load([write(tmp_path, {})]).gateway.kubernetes == KubernetesSettings()
    assert load([write(tmp_path, None)]).gateway.kubernetes is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (5, "kubernetes: found the number 5, expected a mapping"),
        ({"kubeconfg": "kube"}, 'kubernetes.kubeconfg: unknown field; did you mean "kubeconfig"?'),
        ({"kubeconfig": ""}, "kubernetes.kubeconfig: is empty, expected the path of a file"),
        (
            {"customResources": "yes"},
            'kubernetes.customResources: found the string "yes", expected true or false',
        ),
        (
            {"context": "red"},
            "kubernetes.context: needs kubeconfig: a pod's service account has no contexts",
        ),
        (
            {"kubeconfig": "kube", "context": ""},
            "kubernetes.context: is empty, expected the name of a context",
        ),
        (
            {"kubeconfig": "gone"},
            "kubernetes.kubeconfig: FOLDER/gone cannot be read: No such file or directory",
        ),
        (
            {"kubeconfig": "kube", "context": "rod"},
            (
                'kubernetes.context: FOLDER/kube:11:1: there is no context "rod"; expected "blue" or "red"; '
                'did you mean "red"?'
            ),
        ),
    ],
)
def test_invalid_settings(tmp_path: Path, written: object, said: str) -> None:
    assert problem(write(tmp_path, written, kubeconfig())) == said.replace("FOLDER", str(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", ":2:1: cannot be read as a kubeconfig: did not find"),
        ("", " holds 0 documents, expected one kubeconfig"),
        ("{}\n---\n{}", " holds 2 documents, expected one kubeconfig"),
        ("[]", " holds no mapping, expected a kubeconfig"),
        ("s3cret", " holds no mapping, expected a kubeconfig"),
        ("\x00", ":1:1: cannot be read as a kubeconfig: the character U+0000"),
        ({"kind": "Pod"}, ' holds the kind "Pod", expected a kubeconfig of kind Config'),
        ({}, ":1:1: found no current-context, expected one, or a context named beside kubeconfig"),
        (kubeconfig(**{"current-context": ""}), ":19:1: found no current-context"),
        (kubeconfig(**{"current-context": "x"}), ':19:1: there is no context "x"; expected "blue" or "red"'),
        (kubeconfig(contexts=None), ':12:1: there is no context "blue"'),
        (kubeconfig(contexts=[{"name": "blue"}]), ':12:3: found no cluster in context "blue", expected one'),
        (
            kubeconfig(contexts=[{"name": "blue", "context": {"cluster": "three"}}]),
            ':13:5: there is no cluster "three"; expected "one", "two" or "broken"',
        ),
        (
            kubeconfig(contexts=[{"name": "blue", "context": {"cluster": "broken"}}]),
            ':9:3: found the number 5 for the cluster "broken", expected a mapping',
        ),
        (
            kubeconfig(clusters=[{"name": "one", "cluster": {"server": "10.0.0.1"}}]),
            ':4:5: found the server "10.0.0.1" for the cluster of context "blue", expected an https URL',
        ),
        (kubeconfig(clusters=[{"name": "one"}]), ":3:3: found the server null"),
        (kubeconfig(users=[]), ':14:5: there is no user "me"'),
        (
            kubeconfig(contexts=[{"name": "blue", "context": {"cluster": "one", "user": 5}}]),
            ':14:5: found no user in context "blue"',
        ),
    ],
)
def test_invalid_kubeconfigs(tmp_path: Path, content: object, said: str) -> None:
    found = problem(write(tmp_path, {"kubeconfig": "kube"}, content))
    assert found.startswith(f"kubernetes.kubeconfig: {tmp_path / 'kube'}{said}")


def test_entries_of_other_contexts_are_not_checked(tmp_path: Path) -> None:
    users = [5, {"name": 5}, {"name": "me", "user": {"token": "t"}}, {"name": "me", "user": {"token": "u"}}]
    write(tmp_path, {}, kubeconfig(users=users))
    chosen = read_kubeconfig(tmp_path / "kube", None)
    assert (chosen.cluster.server, chosen.user.token) == (SERVER, "t")
    assert read_kubeconfig(tmp_path / "kube", "red").user == KubeconfigUser()


def test_namespace_documents_are_ignored_with_a_warning(tmp_path: Path) -> None:
    file = write(tmp_path, {"kubeconfig": "kube"}, kubeconfig())
    document = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
    with file.open("a") as appended:
        appended.write(f"---\n{document}")
    (warning,) = load([file]).warnings
    assert str(warning) == (
        f'{file}:6:1: Namespace "shop": has no effect: GatewayConfiguration.kubernetes takes '
        "namespaces from the cluster"
    )
    (tmp_path / "kube").unlink()
    file.write_text(document)
    assert load([file]).warnings == ()
