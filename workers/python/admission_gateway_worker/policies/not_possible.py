"""Built-in controllers without a policy, with the reason and what to use.

Nothing outside the API server can replace some of them; others are part of a feature, and on with it.

Source: kubernetes plugin/pkg/admission; pkg/kubeapiserver/options/plugins.go (order and defaults).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class NotPossible(NamedTuple):
    """A row of the catalogue."""

    controller: str
    """Name in ``--enable-admission-plugins``."""
    reason: str
    instead: str


NOT_POSSIBLE: Final = (
    NotPossible(
        "ClusterTrustBundleAttest",
        "It is on by default in every API server that serves ClusterTrustBundles: no request is left to "
        "refuse.",
        "The built-in controller, and the right `attest` for signers.",
    ),
    NotPossible(
        "NamespaceAutoProvision",
        "NamespaceLifecycle, which is part of every API server, refuses a request in a namespace that does "
        "not exist before it calls webhooks.",
        "Create namespaces before their objects, for example with the tool that deploys.",
    ),
    NotPossible(
        "NamespaceExists",
        "NamespaceLifecycle, which is part of every API server, makes the same check before webhooks are "
        "called: no request is left to refuse.",
        "Nothing: the check is always on.",
    ),
    NotPossible(
        "NamespaceLifecycle",
        "It knows of deletions in the same API server before they are stored. A webhook sees a Namespace "
        "that may be seconds old, so that objects could be created while their namespace is emptied.",
        "The built-in controller: it is on by default, and only the API server's flags can disable it.",
    ),
    NotPossible(
        "NodeDeclaredFeatureValidator",
        "It derives from the code of its Kubernetes version which features of a node a change of a Pod "
        "needs, and is on by default in every API server with the feature.",
        "The built-in controller.",
    ),
    NotPossible(
        "NodeRestriction",
        "Nodes register, and start the pods of the gateway, by the requests that it checks. While the "
        "gateway is down, a webhook would block all nodes or let a stolen credential of a node pass.",
        "The built-in controller with --authorization-mode=Node,RBAC, as kubeadm and managed clusters have.",
    ),
    NotPossible(
        "PodGroupProtection",
        "It adds a finalizer that a controller of the same feature, off by default, removes: without it "
        "PodGroups could not be deleted. It is on by default in every API server with the feature.",
        "The built-in controller.",
    ),
    NotPossible(
        "PodResizeValidator",
        "It is on by default in every API server in which Pods are resized: no request is left to refuse.",
        "Nothing: the check is always on. `limit-ranger-validate` bounds resizes.",
    ),
    NotPossible(
        "ResourceQuota",
        "It reserves the usage in the status of the ResourceQuota in one transaction after all other checks. "
        "A webhook does not know whether the request will be stored, and counts of several replicas race.",
        "ResourceQuota objects; the built-in controller is on by default.",
    ),
    NotPossible(
        "ServiceAccount",
        "It gives pods the credentials with which they reach the API server, those of the gateway included: "
        "a webhook would have to run before it can start. It runs before webhooks in every cluster.",
        "The built-in controller, which is on by default. To forbid tokens, write a policy for "
        "automountServiceAccountToken.",
    ),
)
