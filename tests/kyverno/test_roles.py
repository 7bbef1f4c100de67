"""``roles`` and ``clusterRoles`` of ClusterPolicies: where the bindings are from, and what is without them.

What matches is recorded from Kyverno in ``tests/recorded/other_engines/cel_rules.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.admission_policies.params import FixedObjects, UnreadParamsError
from gateway.pure.core.conditions import FoundParam, NotMatched, ParamLookup, PolicyResult, Unresolved
from gateway.pure.core.role_bindings import BINDINGS, ROLE_PATHS, VERSION, RoleIndex, entries_of
from gateway.pure.core.verdict import Denied, Failed
from tests.config.documents import load_documents, problems_of
from tests.kit import call_command
from tests.kyverno.test_cluster_policy import REQUEST, loaded, reviewed

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.pure.core.policy import ParamKind, ParamPaths, PolicyInput

Json = dict[str, Any]

CLUSTER: Json = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "kubernetes": {},
}
LOOKUPS = tuple(ParamLookup(*kind, "", "") for kind in BINDINGS)


def policy(match: Json | None = None, exclude: Json | None = None, **spec: Any) -> Json:
    """A policy that refuses Pods that *match*, and are not excluded."""
    block = {"resources": {"kinds": ["Pod"]}, **(match or {})}
    rule = {
        "name": "r",
        "match": {"any": [block]},
        "validate": {"cel": {"expressions": [{"expression": "false", "message": "no"}]}},
        **({"exclude": exclude} if exclude else {}),
    }
    spec = {"validationFailureAction": "Enforce", "rules": [rule], **spec}
    return {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": spec}


def binding(role: str, user: str = "ann", kind: str = "ClusterRoleBinding") -> Json:
    """A binding of the cluster role *role* for *user*."""
    return {
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": {"name": role, "namespace": "n"} if kind == "RoleBinding" else {"name": role},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }


class Cluster:
    """The bindings of a cluster: a ``Params``."""

    def __init__(self, *bindings: Json, is_read: bool = True, has_kinds: bool = True) -> None:
        self.is_read = is_read
        self._has_kinds = has_kinds
        self._bindings = bindings

    def of(self, kind: ParamKind, paths: ParamPaths) -> FixedObjects | None:
        assert paths == ROLE_PATHS
        if not self.is_read:
            raise UnreadParamsError(ParamLookup(kind.api_version, kind.kind, "", ""))
        index = RoleIndex()
        for each in self._bindings:
            if each["kind"] == kind.kind:
                index.change((), entries_of((kind.api_version, kind.kind), each))
        return FixedObjects(is_namespaced=True, by_namespace={}, roles=index) if self._has_kinds else None


def asked(cluster: Cluster | None) -> PolicyInput:
    """The input for a Pod of ann, with the bindings of *cluster*."""
    policy_input = reviewed(REQUEST, {})
    policy_input.params = cluster
    return policy_input


ADMINS: Json = {"clusterRoles": ["admin"]}


def verdict(found: object) -> object:
    assert isinstance(found, PolicyResult)
    return found.verdict


def test_bindings_come_from_the_cluster_unless_files_have_some() -> None:
    written = loaded(policy(ADMINS), CLUSTER)
    assert written.reads == tuple((kind, ROLE_PATHS) for kind in BINDINGS)
    assert not written.can_allow_fast
    assert isinstance(verdict(written.evaluate(asked(Cluster(binding("admin"))), {})), Denied)
    assert isinstance(written.evaluate(asked(Cluster(binding("admin", "joe"))), {}), NotMatched)
    for files in ([binding("admin")], [binding("admin", kind="RoleBinding")]):
        with_files = loaded(policy(ADMINS), CLUSTER, *files)
        assert with_files.reads == ()
        assert isinstance(verdict(with_files.evaluate(asked(Cluster(is_read=False)), {})), Denied)
    assert loaded(policy(), CLUSTER).reads == ()


def test_a_policy_waits_for_both_kinds_of_bindings() -> None:
    written, cluster = loaded(policy(ADMINS), CLUSTER), Cluster(binding("admin"), is_read=False)
    policy_input = asked(cluster)
    found = written.evaluate(policy_input, {})
    assert isinstance(found, Unresolved)
    assert tuple(found.lookups) == LOOKUPS
    cluster.is_read = True
    policy_input.found_params = {each: FoundParam() for each in LOOKUPS}
    assert isinstance(verdict(written.evaluate(policy_input, {})), Denied)


@pytest.mark.parametrize("error", ["answers 403", ""])
def test_the_failure_policy_decides_without_the_bindings(error: str) -> None:
    written = loaded(policy(None, ADMINS, failurePolicy="Ignore"), CLUSTER)
    assert written.webhook().failure_policy == "Ignore"
    policy_input = asked(Cluster(is_read=False))
    policy_input.found_params = {each: FoundParam(error=error) for each in LOOKUPS}
    failed = verdict(written.evaluate(policy_input, {}))
    assert isinstance(failed, Failed)
    reason = error or "they are read again"
    assert failed.cause == (
        f"the roles of the user are not known: the gateway has not read each RoleBinding yet: {reason}"
    )


def test_a_cluster_without_the_kinds_has_no_roles_that_are_known() -> None:
    for cluster, reason in (
        (Cluster(has_kinds=False), f"the API server does not have RoleBinding of {VERSION}"),
        (None, "no cluster is followed, and no file has bindings"),
    ):
        failed = verdict(loaded(policy(ADMINS), CLUSTER).evaluate(asked(cluster), {}))
        assert isinstance(failed, Failed)
        assert failed.cause == f"the roles of the user are not known: {reason}"


def test_roles_are_not_asked_for_unless_they_decide() -> None:
    unread = asked(Cluster(is_read=False))
    other_name = {"resources": {"kinds": ["Pod"], "names": ["b"]}, **ADMINS}
    for match, exclude in (
        (other_name, None),
        ({"subjects": [{"kind": "User", "name": "joe"}], **ADMINS}, None),
        (other_name, ADMINS),
    ):
        assert isinstance(loaded(policy(match, exclude), CLUSTER).evaluate(unread, {}), NotMatched)
    excluded = {"any": [other_name, {"subjects": [{"kind": "Group", "name": "g"}], **ADMINS}]}
    assert isinstance(verdict(loaded(policy(None, excluded), CLUSTER).evaluate(unread, {})), Denied)


def test_without_a_cluster_and_bindings_a_policy_with_roles_is_refused() -> None:
    message = (
        "found roles or clusterRoles, for which RoleBindings and ClusterRoleBindings have to be known; "
        "expected GatewayConfiguration.kubernetes to name a cluster, or such bindings among the documents"
    )
    for match in (ADMINS, {"roles": ["n:dev"]}):
        assert problems_of(policy(match)) == [("spec", message)]
        assert problems_of(policy(None, match)) == [("spec", message)]
    exception = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "x"},
        "spec": {"match": {"any": [ADMINS]}, "exceptions": [{"policyName": "p", "ruleNames": ["r"]}]},
    }
    assert problems_of(policy(), exception) == [("spec", message)]
    assert problems_of(policy(), exception, binding("view")) == []
    assert problems_of(policy(ADMINS), binding("view")) == []


def test_bindings_without_a_policy_that_needs_them_are_of_an_unknown_kind() -> None:
    ((path, message),) = problems_of(policy(), binding("view"))
    assert path == "kind"
    assert message.startswith('found the unknown kind "ClusterRoleBinding"')


def test_roles_have_a_namespace_and_a_warning_for_wildcards() -> None:
    for role in ("dev", "n:dev:x", ""):
        assert (
            "spec.rules[0].match.any[0].roles[0]",
            f'found "{role}", expected NAMESPACE:NAME of a Role',
        ) in (problems_of(policy({"roles": [role]}), binding("view")))
    written = policy({"roles": ["*:dev"]}, {"clusterRoles": ["view", "ad?"]})
    found = load_documents(written, binding("view")).warnings
    assert [(each.field, each.message) for each in found] == [
        (
            "spec.rules[0].match.any[0].roles",
            'found "*:dev", which is compared as it is: Kyverno knows no wildcards here',
        ),
        (
            "spec.rules[0].exclude.clusterRoles",
            'found "ad?", which is compared as it is: Kyverno knows no wildcards here',
        ),
    ]


def test_cases_of_a_policy_test_have_the_bindings_among_their_objects(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    written = policy(ADMINS)
    documents = json.dumps(written) + "\n---\n" + json.dumps(CLUSTER)
    (tmp_path / "config" / "config.yaml").write_text(documents)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"}}
    cases = [
        {"name": user, "object": pod, "user": user, "objects": [binding("admin")], "expect": {"allowed": ok}}
        for user, ok in (("ann", False), ("joe", True))
    ]
    suite = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "PolicyTest",
        "metadata": {"name": "t"},
        "config": ["config"],
        "cases": cases,
    }
    (tmp_path / "policy-test.yaml").write_text(json.dumps(suite))
    done = call_command("test", tmp_path)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
