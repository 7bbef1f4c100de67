"""DefaultIngressClass: an Ingress without a class gets the default one.

Source: kubernetes plugin/pkg/admission/network/defaultingressclass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import is_for, rule
from admission_gateway_worker.policies.cluster import connect
from admission_gateway_worker.policies.default_class import default_class
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("ingresses", "CREATE", group="networking.k8s.io"),)
_DEFAULT: Final = "ingressclass.kubernetes.io/is-default-class"
_CLASS: Final = "kubernetes.io/ingress.class"


async def set_ingress_class(review: Review) -> None:
    """Set the class of an Ingress that has neither the field nor the annotation."""
    if not is_for(review, _RULES):
        return
    spec = review.object.setdefault("spec", {})
    annotations = (review.object.get("metadata") or {}).get("annotations") or {}
    if spec.get("ingressClassName") is not None or _CLASS in annotations:
        return
    name = default_class(await connect().objects("networking.k8s.io/v1", "ingressclasses"), _DEFAULT)
    if name is not None:
        spec["ingressClassName"] = name


DEFINITIONS = (
    Definition(
        "default-ingress-class",
        "Sets the class of an Ingress without one to the IngressClass that is marked as the default "
        "(DefaultIngressClass).",
        set_ingress_class,
        rules=_RULES,
        users_see="the Ingress with ingressClassName",
        topic="networking",
        replaces=(Replaced("Kubernetes", "DefaultIngressClass"),),
        mutating=True,
        needs_cluster=True,
        rights="list ingressclasses.networking.k8s.io",
    ),
)
