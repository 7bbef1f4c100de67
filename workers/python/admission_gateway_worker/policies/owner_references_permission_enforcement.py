"""OwnerReferencesPermissionEnforcement: changes of owner references need rights on object and owner.

- A change of ``ownerReferences`` needs the right to delete the object.
- A new ``blockOwnerDeletion: true`` needs the right to update ``finalizers`` of the owner.

Source: kubernetes plugin/pkg/admission/gc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import forbidden, quoted
from admission_gateway_worker.policies.cluster import connect
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review
    from admission_gateway_worker.policies.cluster import Decision

Reference = dict[str, Any]


async def check_owner_references(review: Review) -> None:
    """Deny changes of owner references by users without the rights."""
    found = review.object
    if review.operation not in ("CREATE", "UPDATE") or not isinstance(found, dict):
        return
    resource = review.resource
    if (resource.get("group", ""), resource.get("resource"), review.sub_resource) == ("", "pods", "status"):
        return
    before, after = _references(review.old_object or {}), _references(found)
    if before == after:
        return
    if review.operation == "UPDATE":
        decision = await connect().access_review(
            review.user_info,
            verb="delete",
            namespace=review.namespace,
            group=resource.get("group", ""),
            version=resource.get("version", ""),
            resource=resource.get("resource", ""),
            subresource=review.sub_resource,
            name=review.name,
        )
        if not decision.is_allowed:
            raise forbidden(
                review, f"cannot set an ownerRef on a resource you can't delete: {_reason(decision)}"
            )
    blocking = _newly_blocking(before, after)
    if blocking and not await _may_finalize_anything(review):
        for reference in blocking:
            await _check_blocking(review, reference)


def _references(found: dict[str, Any]) -> list[Reference]:
    references: list[Reference] = (found.get("metadata") or {}).get("ownerReferences") or []
    return references


def _newly_blocking(before: list[Reference], after: list[Reference]) -> list[Reference]:
    old = {each.get("uid"): each for each in before}
    return [
        each
        for each in after
        if each.get("blockOwnerDeletion") is True
        and old.get(each.get("uid"), {}).get("blockOwnerDeletion") is not True
    ]


async def _may_finalize_anything(review: Review) -> bool:
    decision = await connect().access_review(
        review.user_info,
        verb="update",
        group="*",
        version="*",
        resource="*",
        subresource="finalizers",
        name="*",
    )
    return decision.is_allowed


async def _check_blocking(review: Review, reference: Reference) -> None:
    api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
    group, _, version = api_version.rpartition("/")
    resources = await connect().resources(api_version) if api_version.count("/") < 2 else ()
    mapped = [each for each in resources if each.get("kind") == kind and "/" not in each.get("name", "")]
    if not mapped:
        problem = (
            f"no matches for kind {quoted(kind)} in version {quoted(api_version)}"
            if api_version.count("/") < 2
            else f"unexpected GroupVersion string: {api_version}"
        )
        raise forbidden(
            review,
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
            f"{api_version} Kind {kind}: {problem}",
        )
    for each in mapped:
        decision = await connect().access_review(
            review.user_info,
            verb="update",
            namespace=review.namespace if each.get("namespaced") else "",
            group=group,
            version=version,
            resource=each["name"],
            subresource="finalizers",
            name=reference.get("name", ""),
        )
        if not decision.is_allowed:
            raise forbidden(
                review,
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set "
                f"finalizers on: {_reason(decision)}",
            )


def _reason(decision: Decision) -> str:
    """Return reason and error as Go prints them."""
    return f"{decision.reason}, {decision.error or '<nil>'}"


_EVERYTHING: Final = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*/*"],
}

DEFINITIONS = (
    Definition(
        "owner-references-permission-enforcement",
        "Denies changes of owner references by users who may not delete the object, or may not set "
        "finalizers of an owner whose deletion they block (OwnerReferencesPermissionEnforcement).",
        check_owner_references,
        rules=(_EVERYTHING,),
        users_see='pods "web" is forbidden: cannot set an ownerRef on a resource you can\'t delete: , <nil>',
        topic="metadata and ownership",
        replaces=(Replaced("Kubernetes", "OwnerReferencesPermissionEnforcement"),),
        needs_cluster=True,
        notes="Every write of the cluster is a call. This condition leaves out most of them:\n\n"
        "```yaml\n"
        "matchConditions:\n"
        "- name: owners\n"
        "  expression: has(object.metadata.ownerReferences) ||\n"
        "    oldObject != null && has(oldObject.metadata.ownerReferences)\n"
        "```\n",
        rights="create subjectaccessreviews.authorization.k8s.io; discovery is open to all users",
    ),
)
