"""``deprecated-api-versions``: requests use no version that a coming Kubernetes does not serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import deny
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from admission_gateway_worker import Review


class Removal(NamedTuple):
    """The end of some kinds in one version of a group."""

    group: str
    version: str
    kinds: tuple[str, ...]
    minor: int
    """The minor version of Kubernetes 1 that no longer serves them."""
    instead: str
    """The group and version that serves them instead; empty if there is none yet."""


def _removal(group_version: str, minor: int, instead: str, kinds: str) -> Removal:
    group, _, version = group_version.rpartition("/")
    return Removal(group, version, tuple(kinds.split()), minor, instead)


REMOVALS: Final = (
    _removal("extensions/v1beta1", 16, "apps/v1", "DaemonSet Deployment ReplicaSet"),
    _removal("extensions/v1beta1", 16, "networking.k8s.io/v1", "NetworkPolicy"),
    _removal("extensions/v1beta1", 22, "networking.k8s.io/v1", "Ingress"),
    _removal("apps/v1beta1", 16, "apps/v1", "ControllerRevision Deployment StatefulSet"),
    _removal("apps/v1beta2", 16, "apps/v1", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"),
    _removal(
        "admissionregistration.k8s.io/v1beta1",
        22,
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    ),
    _removal(
        "admissionregistration.k8s.io/v1beta1",
        34,
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    ),
    _removal(
        "admissionregistration.k8s.io/v1beta1",
        40,
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding",
    ),
    _removal("certificates.k8s.io/v1beta1", 22, "certificates.k8s.io/v1", "CertificateSigningRequest"),
    _removal(
        "certificates.k8s.io/v1beta1",
        40,
        "certificates.k8s.io/v1",
        "ClusterTrustBundle PodCertificateRequest",
    ),
    _removal("coordination.k8s.io/v1beta1", 22, "coordination.k8s.io/v1", "Lease"),
    _removal("coordination.k8s.io/v1beta1", 39, "", "LeaseCandidate"),
    _removal("networking.k8s.io/v1beta1", 22, "networking.k8s.io/v1", "Ingress IngressClass"),
    _removal("networking.k8s.io/v1beta1", 37, "networking.k8s.io/v1", "IPAddress ServiceCIDR"),
    _removal(
        "rbac.authorization.k8s.io/v1beta1",
        22,
        "rbac.authorization.k8s.io/v1",
        "ClusterRole ClusterRoleBinding Role RoleBinding",
    ),
    _removal("scheduling.k8s.io/v1beta1", 22, "scheduling.k8s.io/v1", "PriorityClass"),
    _removal("scheduling.k8s.io/v1beta1", 43, "", "PodGroup Workload"),
    _removal(
        "storage.k8s.io/v1beta1", 22, "storage.k8s.io/v1", "CSIDriver CSINode StorageClass VolumeAttachment"
    ),
    _removal("storage.k8s.io/v1beta1", 27, "storage.k8s.io/v1", "CSIStorageCapacity"),
    _removal("storage.k8s.io/v1beta1", 37, "storage.k8s.io/v1", "VolumeAttributesClass"),
    _removal("batch/v1beta1", 25, "batch/v1", "CronJob"),
    _removal("discovery.k8s.io/v1beta1", 25, "discovery.k8s.io/v1", "EndpointSlice"),
    _removal("events.k8s.io/v1beta1", 25, "events.k8s.io/v1", "Event"),
    _removal("node.k8s.io/v1beta1", 25, "node.k8s.io/v1", "RuntimeClass"),
    _removal("policy/v1beta1", 25, "policy/v1", "Eviction PodDisruptionBudget"),
    *(
        _removal(
            f"flowcontrol.apiserver.k8s.io/{version}",
            minor,
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema PriorityLevelConfiguration",
        )
        for version, minor in (("v1beta1", 26), ("v1beta2", 29), ("v1beta3", 32))
    ),
    *(
        _removal(
            f"resource.k8s.io/{version}",
            minor,
            "resource.k8s.io/v1",
            "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
        )
        for version, minor in (("v1beta1", 38), ("v1beta2", 39))
    ),
    _removal("resource.k8s.io/v1beta2", 42, "", "DeviceTaintRule"),
    _removal("storagemigration.k8s.io/v1beta1", 40, "storagemigration.k8s.io/v1", "StorageVersionMigration"),
)
"""Persistent kinds of versions that are not alpha, up to Kubernetes 1.37 and its plans for later ones.

Source: k8s.io/api v0.37.1, the APILifecycleRemoved of each type.
"""
_BY_KIND: Final = {(each.group, each.version, kind): each for each in REMOVALS for kind in each.kinds}


def deprecated_api_versions(review: Review) -> None:
    """Deny versions that Kubernetes 1.``review.parameters`` no longer serves, and warn of those after it."""
    # The kind of the request; `kind` may be the version that a rule of the webhook names.
    kind = review.request.get("requestKind") or review.kind
    key = (kind.get("group", ""), kind.get("version", ""), kind.get("kind", ""))
    found = _BY_KIND.get(key)
    if found is None or review.operation not in ("CREATE", "UPDATE"):
        return
    advice = f"; use {found.instead}" if found.instead else ""
    message = f"{found.group}/{found.version} {key[2]} is removed in Kubernetes 1.{found.minor}{advice}"
    if found.minor <= review.parameters:
        deny([Cause(message, "apiVersion", "FieldValueNotSupported")])
    review.warn(message)


DEFINITIONS = (
    Definition(
        name="deprecated-api-versions",
        summary="Requests do not use versions of the API that a coming Kubernetes no longer serves.",
        function=deprecated_api_versions,
        rules=(
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": sorted({each.group for each in REMOVALS}),
                "apiVersions": sorted({each.version for each in REMOVALS}),
                "resources": ["*"],
            },
        ),
        users_see="apiVersion: policy/v1beta1 PodDisruptionBudget is removed in Kubernetes 1.25; "
        "use policy/v1",
        topic="certificates and the API",
        replaces=(
            Replaced("Kyverno", "check-deprecated-apis", "versions that end later are warned of"),
            Replaced("Gatekeeper", "VerifyDeprecatedAPI", "the list of versions comes with the policy"),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "required": ["kubernetes"],
            "properties": {
                "kubernetes": {
                    "type": "string",
                    "pattern": r"^1\.[0-9]{1,3}$",
                    "description": "The Kubernetes version of the next upgrade. Versions that it no longer "
                    "serves are denied; users are warned of versions that end later.",
                }
            },
        },
        prepare=lambda parameters: int(parameters["kubernetes"].removeprefix("1.")),
        example={"kubernetes": "1.38"},
    ),
)
