"""What the API server's own plug-ins add to a new Pod before webhooks are called.

Source: k8s.io/kubernetes pkg/kubeapiserver/options/plugins.go (the order), admission.go in
plugin/pkg/admission/serviceaccount, priority and defaulttolerationseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.workloads.default_rules import part, parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.review import Json

_MIRROR: Final = "kubernetes.io/config.mirror"
_TOKEN_VOLUME: Final = "kube-api-access-"
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_SUFFIX: Final = "xxxxx"
"""In place of the five random characters of a name."""
_TOKEN_S: Final = 3607
_CRITICAL: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority by the name of a class that every cluster has."""
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED_S: Final = 300


def before_webhooks(pod: Json, priorities: Mapping[str, int] | None = None) -> Json:
    """Return *pod*, which has its defaults, with what the API server adds before mutating webhooks see it.

    These are the ServiceAccount ``default``, a volume with its token that each container mounts, a priority,
    and tolerations of nodes that are not ready. The ServiceAccount is taken for one that sets neither
    ``imagePullSecrets`` nor ``automountServiceAccountToken``. A Pod with a PriorityClass that is neither in
    *priorities* nor built in gets no priority. A LimitRange, a RuntimeClass and plug-ins that are off by
    default are not considered.
    """
    spec = part(pod, "spec")
    if not spec:
        return pod
    spec = dict(spec)
    if _MIRROR not in part(pod, "metadata", "annotations"):
        _add_account(spec)
    _add_priority(spec, priorities or {})
    _add_tolerations(spec)
    return {**pod, "spec": spec}


def _add_account(spec: Json) -> None:
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    if spec.get("automountServiceAccountToken") is False:
        return
    names = [str(each.get("name", "")) for each in parts(spec, "volumes")]
    found = next((name for name in names if name.startswith(_TOKEN_VOLUME)), "")
    name = found or f"{_TOKEN_VOLUME}{_SUFFIX}"
    is_mounted = False
    for field in ("initContainers", "containers"):
        changed = []
        for container in parts(spec, field):
            mounts = parts(container, "volumeMounts")
            if all(each.get("mountPath") != _TOKEN_PATH for each in mounts):
                is_mounted = True
                mount = {"name": name, "readOnly": True, "mountPath": _TOKEN_PATH}
                changed.append({**container, "volumeMounts": [*mounts, mount]})
            else:
                changed.append(container)
        if changed:
            spec[field] = changed
    if is_mounted and not found:
        spec["volumes"] = [*parts(spec, "volumes"), _token_volume(name)]


def _token_volume(name: str) -> Json:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


def _add_priority(spec: Json, priorities: Mapping[str, int]) -> None:
    name = spec.get("priorityClassName")
    priority = {**_CRITICAL, **priorities}.get(name) if isinstance(name, str) and name else 0
    if priority is not None:
        spec.setdefault("priority", priority)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _add_tolerations(spec: Json) -> None:
    known = parts(spec, "tolerations")
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_S}
        for key in _TOLERATED
        if not any(
            each.get("key") in (None, "", key) and each.get("effect") in (None, "", "NoExecute")
            for each in known
        )
    ]
    if added:
        spec["tolerations"] = [*known, *added]
