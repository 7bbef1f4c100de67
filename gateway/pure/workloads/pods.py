"""What the API server's own plug-ins do to a new Pod: before webhooks, and after the mutating ones.

They are LimitRanger, ServiceAccount, Priority, DefaultTolerationSeconds and RuntimeClass, those of them that
are on by default and concern Pods, in this order.

Source: k8s.io/kubernetes pkg/kubeapiserver/options/plugins.go (the order), admission.go in
plugin/pkg/admission/serviceaccount, priority, defaulttolerationseconds and runtimeclass;
pkg/util/tolerations/tolerations.go.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from gateway.pure.workloads.default_rules import part, parts
from gateway.pure.workloads.known import (
    LIMIT_RANGE,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
    KnownObjects,
    Refusal,
)
from gateway.pure.workloads.limit_ranges import pod_refusals, with_limits
from gateway.pure.workloads.quantities import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.pure.core.review import Json

_MIRROR: Final = "kubernetes.io/config.mirror"
_TOKEN_VOLUME: Final = "kube-api-access-"
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_SUFFIX: Final = "xxxxx"
"""In place of the five random characters of a name."""
_TOKEN_S: Final = 3607
_CRITICAL: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority by the name of a class that every cluster has."""
_ACCOUNTS: Final = "ServiceAccount"
_PRIORITY: Final = "Priority"
_RUNTIMES: Final = "RuntimeClass"
_DEFAULT_ACCOUNT: Final = "default"
_PULL_SECRETS: Final = "imagePullSecrets"
_ENFORCED: Final = "kubernetes.io/enforce-mountable-secrets"
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
"""What Go reads as true."""
_PREEMPTION: Final = "PreemptLowerPriority"
_OTHER_OVERHEAD: Final = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED_S: Final = 300


def admitted_pod(pod: Json, known: KnownObjects) -> tuple[Json, list[Refusal]]:
    """Return *pod*, which has its defaults, as mutating webhooks see it, and why plug-ins refuse it.

    Plug-ins after one that refuses it do nothing. A ServiceAccount that is not known is taken for one that
    sets nothing; a Pod with a PriorityClass or RuntimeClass that is not known gets nothing from it.
    """
    if not part(pod, "spec"):
        return pod, []
    pod = with_limits(pod, known.all(LIMIT_RANGE))
    spec = dict(part(pod, "spec"))
    is_mirror = _MIRROR in part(pod, "metadata", "annotations")
    refusals: list[Refusal] = []
    for plug_in in (_add_account, _add_priority, _add_tolerations, _add_runtime_class):
        if not (is_mirror and plug_in is _add_account):
            refusals = [*plug_in(spec, known)]
        if refusals:
            break
    return {**pod, "spec": spec}, refusals


def refused_pod(pod: Json, known: KnownObjects, kubernetes: int) -> list[Refusal]:
    """Return why plug-ins of Kubernetes 1.*kubernetes* refuse *pod* after the mutating webhooks."""
    spec = part(pod, "spec")
    refusals = [*pod_refusals(pod, known.all(LIMIT_RANGE), kubernetes)]
    if _MIRROR not in part(pod, "metadata", "annotations"):
        refusals += _account_refusals(spec, known)
    return [*refusals, *_overhead_refusals(spec, known)]


def _add_account(spec: Json, known: KnownObjects) -> Iterator[Refusal]:
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = _DEFAULT_ACCOUNT
    account = known.get(SERVICE_ACCOUNT, spec["serviceAccountName"]) or {}
    mounts = spec.get("automountServiceAccountToken")
    if mounts is None:
        mounts = account.get("automountServiceAccountToken")
    if mounts is not False:
        _mount_token(spec)
    secrets = parts(account, _PULL_SECRETS)
    if secrets and not parts(spec, _PULL_SECRETS):
        spec[_PULL_SECRETS] = [dict(each) for each in secrets]
    yield from _account_refusals(spec, known)


def _account_refusals(spec: Json, known: KnownObjects) -> Iterator[Refusal]:
    name = spec.get("serviceAccountName")
    account = known.get(SERVICE_ACCOUNT, name)
    if account is None:
        # A controller makes the default one in each namespace.
        if name != _DEFAULT_ACCOUNT and known.is_missing(SERVICE_ACCOUNT, name):
            which = f"error looking up service account {known.namespace}/{name}"
            message = f'{which}: serviceaccount "{name}" not found'
            yield Refusal(_ACCOUNTS, message, "spec.serviceAccountName")
    elif part(account, "metadata", "annotations").get(_ENFORCED) in _TRUE:
        # The first one is what the API server says.
        yield from islice(_secrets_not_listed(spec, account), 1)


def _secrets_not_listed(spec: Json, account: Json) -> Iterator[Refusal]:
    """Yield the references to Secrets that *account*, which has to list all, does not have."""
    listed = {each.get("name") for each in parts(account, "secrets")}
    by = f"because service account {part(account, 'metadata').get('name')} does not reference that"
    for who, secret, field in _secrets(spec):
        if secret not in listed:
            message = f'{who} secret.secretName="{secret}" is not allowed {by} secret'
            yield Refusal(_ACCOUNTS, message, f"spec.{field}")
    pulled = {each.get("name") for each in parts(account, _PULL_SECRETS)}
    for index, each in enumerate(parts(spec, _PULL_SECRETS)):
        if each.get("name") not in pulled:
            which = f'imagePullSecrets[{index}].name="{each.get("name", "")}"'
            message = f"{which} is not allowed {by} imagePullSecret"
            yield Refusal(_ACCOUNTS, message, f"spec.{_PULL_SECRETS}[{index}]")


def _secrets(spec: Json) -> Iterator[tuple[str, object, str]]:
    """Yield each reference to a Secret in *spec*: who has it, the name, and the field in *spec*."""
    for index, volume in enumerate(parts(spec, "volumes")):
        if "secret" in volume:
            yield "volume with", part(volume, "secret").get("secretName", ""), f"volumes[{index}]"
    for field, shown in (("initContainers", "init container"), ("containers", "container")):
        for index, container in enumerate(parts(spec, field)):
            who, at = f"{shown} {container.get('name')} with", f"{field}[{index}]"
            for number, variable in enumerate(parts(container, "env")):
                if reference := part(variable, "valueFrom", "secretKeyRef"):
                    of = f"{who} envVar {variable.get('name')} referencing"
                    yield of, reference.get("name", ""), f"{at}.env[{number}]"
            for number, source in enumerate(parts(container, "envFrom")):
                if reference := part(source, "secretRef"):
                    yield f"{who} envFrom referencing", reference.get("name", ""), f"{at}.envFrom[{number}]"


def _mount_token(spec: Json) -> None:
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


def _add_priority(spec: Json, known: KnownObjects) -> Iterator[Refusal]:
    name = spec.get("priorityClassName")
    found = known.get(PRIORITY_CLASS, name)
    if name and found is None and name not in _CRITICAL:
        if known.is_missing(PRIORITY_CLASS, name):
            message = f"no PriorityClass with name {name} was found"
            yield Refusal(_PRIORITY, message, "spec.priorityClassName")
        return
    if not name:
        defaults = [one for one in known.all(PRIORITY_CLASS) if one.get("globalDefault") is True]
        found = min(defaults, key=_value, default=None)
    if found is None:
        priority, policy = _CRITICAL.get(str(name), 0), _PREEMPTION
    else:
        priority, policy = _value(found), found.get("preemptionPolicy", _PREEMPTION)
        spec["priorityClassName"] = part(found, "metadata")["name"]
    computed = "must not be provided in pod spec; priority admission controller computed"
    class_name = "from the given PriorityClass name"
    is_certain = found is not None or PRIORITY_CLASS in known.whole
    own = spec.setdefault("priority", priority)
    if own != priority and is_certain:
        message = f"the integer value of priority ({own}) {computed} {priority} {class_name}"
        yield Refusal(_PRIORITY, message, "spec.priority")
        return
    own = spec.setdefault("preemptionPolicy", policy)
    if own != policy and is_certain:
        message = f"the string value of PreemptionPolicy ({own}) {computed} {policy} {class_name}"
        yield Refusal(_PRIORITY, message, "spec.preemptionPolicy")


def _value(priority_class: Json) -> int:
    value = priority_class.get("value")
    return value if isinstance(value, int) else 0


def _add_tolerations(spec: Json, _: KnownObjects) -> Iterable[Refusal]:
    own = parts(spec, "tolerations")
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_S}
        for key in _TOLERATED
        if not any(
            each.get("key") in (None, "", key) and each.get("effect") in (None, "", "NoExecute")
            for each in own
        )
    ]
    if added:
        spec["tolerations"] = [*own, *added]
    return ()


def _add_runtime_class(spec: Json, known: KnownObjects) -> Iterator[Refusal]:
    name = spec.get("runtimeClassName")
    if name is None:
        return
    found = known.get(RUNTIME_CLASS, name)
    if found is None:
        if known.is_missing(RUNTIME_CLASS, name):
            message = f'pod rejected: RuntimeClass "{name}" not found'
            yield Refusal(_RUNTIMES, message, "spec.runtimeClassName")
        return
    overhead = _overhead(found)
    if overhead is not None:
        if spec.get("overhead") and not _same(spec["overhead"], overhead):
            yield Refusal(_RUNTIMES, _OTHER_OVERHEAD, "spec.overhead")
            return
        spec["overhead"] = dict(overhead)
    scheduling = part(found, "scheduling")
    if not scheduling:
        return
    selector = dict(part(spec, "nodeSelector"))
    for key, value in sorted(part(scheduling, "nodeSelector").items()):
        if selector.get(key, value) != value:
            message = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            yield Refusal(_RUNTIMES, message, "spec.nodeSelector")
            return
        selector[key] = value
    tolerations = _merged([*parts(spec, "tolerations"), *parts(scheduling, "tolerations")])
    spec |= {name: of for name, of in (("nodeSelector", selector), ("tolerations", tolerations)) if of}


def _overhead_refusals(spec: Json, known: KnownObjects) -> Iterator[Refusal]:
    name, own = spec.get("runtimeClassName"), spec.get("overhead")
    found = known.get(RUNTIME_CLASS, name)
    if found is None and name is not None:
        return  # refused before, or not known
    overhead = None if found is None else _overhead(found)
    if overhead is None:
        if own is not None:
            message = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            yield Refusal(_RUNTIMES, message, "spec.overhead")
    elif not _same(own, overhead):
        yield Refusal(_RUNTIMES, _OTHER_OVERHEAD, "spec.overhead")


def _overhead(runtime_class: Json) -> Json | None:
    """Return the resources that *runtime_class* adds to each Pod; None if it adds none."""
    return part(runtime_class, "overhead", "podFixed") if "overhead" in runtime_class else None


def _same(one: object, other: Json) -> bool:
    """Whether two lists of resources have the same quantities."""
    found = one if isinstance(one, dict) else {}
    return {k: canonical(v) for k, v in found.items()} == {k: canonical(v) for k, v in other.items()}


def _merged(tolerations: list[Json]) -> list[Json]:
    """Return *tolerations* without those that others include."""
    merged: list[Json] = []
    for index, one in enumerate(tolerations):
        following = tolerations[index + 1 :]
        if any(_includes(each, one) for each in merged):
            continue
        if not any(_normal(each) != _normal(one) and _includes(each, one) for each in following):
            merged.append(one)
    return merged


def _normal(toleration: Json) -> Json:
    return {name: value for name, value in toleration.items() if value not in (None, "")}


def _includes(wide: Json, other: Json) -> bool:
    """Whether the toleration *wide* tolerates all that *other* does."""
    if _normal(wide) == _normal(other):
        return True
    (key, effect, operator), others = (
        [each.get(name) or "" for name in ("key", "effect", "operator")] for each in (wide, other)
    )
    if key != others[0] and (key or operator != "Exists"):
        return False
    if effect not in ("", others[1]):
        return False
    seconds, other_seconds = wide.get("tolerationSeconds"), other.get("tolerationSeconds")
    if effect == "NoExecute" and isinstance(seconds, int):
        others_end = isinstance(other_seconds, int) and other_seconds <= seconds
        if not others_end:
            return False
    if operator in ("", "Equal"):
        return others[2] == "Equal" and (wide.get("value") or "") == (other.get("value") or "")
    return operator == "Exists"
