"""The API server's own admission plug-ins that are on by default, around the webhooks.

Not among them: NamespaceLifecycle, PodSecurity, NodeRestriction, ResourceQuota, and those for certificates.

Source: k8s.io/kubernetes pkg/kubeapiserver/options/plugins.go; plugin/pkg/admission/storage/storageclass,
storage/storageobjectinuseprotection and network/defaultingressclass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.workloads.default_rules import part
from gateway.pure.workloads.defaults import kind_of
from gateway.pure.workloads.known import INGRESS_CLASS, LIMIT_RANGE, STORAGE_CLASS
from gateway.pure.workloads.limit_ranges import claim_refusals
from gateway.pure.workloads.pods import admitted_pod, refused_pod

if TYPE_CHECKING:
    from gateway.pure.core.review import Json
    from gateway.pure.workloads.known import KnownObjects, Refusal

PLUG_INS: Final = ("LimitRanger", "Priority", "RuntimeClass", "ServiceAccount")
"""Those that refuse objects."""
_POD: Final = ("", "Pod")
_CLAIM: Final = ("", "PersistentVolumeClaim")
_VOLUME: Final = ("", "PersistentVolume")
_INGRESS: Final = ("networking.k8s.io", "Ingress")
_STORAGE: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_CLAIM_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_INGRESS_DEFAULT: Final = "ingressclass.kubernetes.io/is-default-class"
_INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
_PROTECTED: Final = {_CLAIM: "kubernetes.io/pvc-protection", _VOLUME: "kubernetes.io/pv-protection"}


def admitted(found: Json, known: KnownObjects) -> tuple[Json, list[Refusal]]:
    """Return *found*, which has its defaults, as mutating webhooks see it, and why it is refused before."""
    kind = kind_of(found)
    of = kind.group, kind.kind
    if of == _POD:
        return admitted_pod(found, known)
    if of == _INGRESS:
        found = _with_ingress_class(found, known)
    elif of == _CLAIM:
        found = _with_storage_class(found, known)
    return (_with_finalizer(found, _PROTECTED[of]) if of in _PROTECTED else found), []


def refused(found: Json, known: KnownObjects, kubernetes: int) -> list[Refusal]:
    """Return why Kubernetes 1.*kubernetes* refuses *found* between the mutating and validating webhooks."""
    kind = kind_of(found)
    of = kind.group, kind.kind
    if of == _POD:
        return refused_pod(found, known, kubernetes)
    return [*claim_refusals(found, known.all(LIMIT_RANGE))] if of == _CLAIM else []


def _with_storage_class(claim: Json, known: KnownObjects) -> Json:
    spec = part(claim, "spec")
    has_class = (
        _CLAIM_CLASS in part(claim, "metadata", "annotations") or spec.get("storageClassName") is not None
    )
    name = "" if has_class else known.default_class(STORAGE_CLASS, _STORAGE)
    return {**claim, "spec": {**spec, "storageClassName": name}} if name else claim


def _with_ingress_class(ingress: Json, known: KnownObjects) -> Json:
    spec = part(ingress, "spec")
    has_class = (
        _INGRESS_CLASS in part(ingress, "metadata", "annotations") or spec.get("ingressClassName") is not None
    )
    name = "" if has_class else known.default_class(INGRESS_CLASS, (_INGRESS_DEFAULT,))
    return {**ingress, "spec": {**spec, "ingressClassName": name}} if name else ingress


def _with_finalizer(found: Json, name: str) -> Json:
    metadata = part(found, "metadata")
    known = metadata.get("finalizers")
    finalizers = known if isinstance(known, list) else []
    if name in finalizers:
        return found
    return {**found, "metadata": {**metadata, "finalizers": [*finalizers, name]}}
