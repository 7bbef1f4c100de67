"""The Go types that the variables of expressions have in an API server of Kubernetes 1.37, by the schemas.

Source: k8s.io/apiserver pkg/admission/plugin/cel/activation.go, pkg/admission/conversion.go (CELValue),
pkg/cel/common/valuesschemalesstyped.go, pkg/admission/plugin/policy/validating/dispatcher.go (wrappedParam);
k8s.io/api admission/v1/types.go.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.cel.environment import GLOBALS
from gateway.pure.cel.go_types import LIST, MAP
from gateway.pure.cel.meter import count_values
from gateway.pure.openapi.documents import built_in_schemas
from gateway.pure.openapi.schemas import GroupVersionKind, UnknownKindError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.openapi.types import Facts

    Schema = Mapping[str, Any]

_REFERENCE: Final = "#/components/schemas/"
_UNTYPED: Final = ("RawExtension", "FieldsV1", "JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool")
"""Go types with JSON of their own: what they contain has no Go type."""
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_REQUEST: Final[Mapping[str, Schema]] = {
    "v1.AdmissionRequest": {
        "properties": {
            "kind": {"$ref": "v1.GroupVersionKind"},
            "requestKind": {"$ref": "v1.GroupVersionKind"},
            "resource": {"$ref": "v1.GroupVersionResource"},
            "requestResource": {"$ref": "v1.GroupVersionResource"},
            "userInfo": {"$ref": "v1.UserInfo"},
        }
    },
    "v1.GroupVersionKind": {"properties": {}},
    "v1.GroupVersionResource": {"properties": {}},
    "v1.UserInfo": {"properties": {"groups": _TEXTS, "extra": {"additionalProperties": _TEXTS}}},
}
_NAMESPACE: Final = GroupVersionKind("", "v1", "Namespace")
_OBJECTS: Final = tuple(map(GLOBALS.index, ("object", "oldObject")))
_REQUEST_SLOT, _NAMESPACE_SLOT, _PARAMS = map(GLOBALS.index, ("request", "namespaceObject", "params"))
_CONTAINERS: Final = frozenset({list, dict})
_WITHOUT_EMPTY: Final = "without empty"
_NO_MAP: Final[dict[str, Any]] = {}
_NO_LIST: Final[list[Any]] = []


_WRITTEN_EMPTY: Final = frozenset(
    f"{kind}.{field}"
    for field, kinds in {
        "addresses": "Endpoint",
        "admissionReviewVersions": "MutatingWebhook ValidatingWebhook",
        "apiGroups": "ResourcePolicyRule",
        "audiences": "TokenRequestSpec",
        "command": "PodExecOptions",
        "conditions": "AllocatedDeviceStatus",
        "containers": "PodSpec",
        "currentMetrics": "HorizontalPodAutoscalerStatus",
        "drivers": "CSINodeSpec",
        "endpoints": "EndpointSlice",
        "limits": "LimitRangeSpec",
        "monitors": "CephFSPersistentVolumeSource CephFSVolumeSource "
        "RBDPersistentVolumeSource RBDVolumeSource",
        "names": "ContainerImage",
        "namespaces": "ResourcePolicyRule",
        "nodeSelectorTerms": "NodeSelector",
        "nonResourceRules": "SubjectRulesReviewStatus",
        "nonResourceURLs": "NonResourcePolicyRule",
        "paths": "HTTPIngressRuleValue",
        "podGroupTemplates": "WorkloadSpec",
        "ports": "EndpointSlice",
        "requestMappings": "PodExtendedResourceClaimStatus",
        "requests": "DeviceClaim",
        "resourceRules": "SubjectRulesReviewStatus",
        "resources": "ResourcePolicyRule",
        "rules": "ClusterRole PodFailurePolicy Role SuccessPolicy",
        "sources": "ProjectedVolumeSource",
        "subjects": "PolicyRulesWithSubjects",
        "topologyKeys": "CSINodeDriver",
        "values": "PodFailurePolicyOnExitCodesRequirement TopologySelectorLabelRequirement",
        "verbs": "NonResourcePolicyRule NonResourceRule PolicyRule ResourcePolicyRule ResourceRule",
    }.items()
    for kind in kinds.split()
)
"""The lists of structs that Go writes even if they are empty. It leaves out others, and all empty maps."""


class _GoType:
    """The type of a list or map."""

    __slots__ = ("element", "fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        """As in ``gateway.pure.cel.go_types``."""
        self.element: _GoType | None = None
        """The type of all elements of a slice, or of all values of a map."""
        self.fields: dict[str, _GoType] = {}
        """The types of a struct's fields that are lists or maps."""


class _Reader:
    """Makes types of *schemas*, each once."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas
        self._known: dict[str, _GoType | None] = {}

    def named(self, name: str) -> _GoType | None:
        """Return the type of the schema *name*, or None if its values, or their parts, have no Go type."""
        if name not in self._known:
            schema = self._schemas.get(name, {})
            if name.rpartition(".")[2] in _UNTYPED:
                self._known[name] = None
            elif "properties" in schema or (schema.keys() == {"type"} and schema["type"] == "object"):
                # Before its fields, which may have the same type.
                found = self._known[name] = _GoType(name)
                fields = ((key, self._read(each)) for key, each in schema.get("properties", {}).items())
                found.fields = {key: each for key, each in fields if each is not None}
            else:
                self._known[name] = self._read(schema)
        return self._known[name]

    def _read(self, schema: Schema) -> _GoType | None:
        for reference in (schema, *schema.get("allOf", ())):
            if "$ref" in reference:
                return self.named(reference["$ref"].removeprefix(_REFERENCE))
        if schema.get("type") == "array":
            found = _GoType(LIST)
            found.element = self._read(schema.get("items", {}))
            return found
        if schema.get("type") == "object" or "additionalProperties" in schema:
            found = _GoType(MAP)
            found.element = self._read(schema.get("additionalProperties", {}))
            return found
        return None


_OF_REQUEST: Final = _Reader(_REQUEST).named("v1.AdmissionRequest")


def in_conditions(frame: Sequence[object]) -> dict[int, str]:
    """Return the Go types of the values of *frame*, and of all their parts, by the ``id`` of each.

    The parameters of a ValidatingAdmissionPolicy have none, since the API server adds their kind.
    """
    return _types(frame, *_OBJECTS)


class InMutations:
    """Does as :func:`in_conditions`, for mutations: parameters have Go types, but the objects have none.

    One is for the expressions of one review, whose request and namespace are read once.
    """

    __slots__ = ("_known", "_namespace", "_request")

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._request: object = None
        self._namespace: object = None

    def __call__(self, frame: Sequence[object]) -> dict[int, str]:
        """Return the types of the values of *frame*."""
        request, namespace, param = frame[_REQUEST_SLOT], frame[_NAMESPACE_SLOT], frame[_PARAMS]
        if request is not self._request or namespace is not self._namespace:
            self._request, self._namespace = request, namespace
            self._known = _types(frame)
        if param is None:
            return self._known
        found = self._known.copy()
        _add(found, param, _of_object(param))
        return found


def in_conditions_of_mutations(frame: Sequence[object]) -> dict[int, str]:
    """Do as :func:`in_conditions`, for matchConditions of a MutatingAdmissionPolicy.

    The objects have their Go types from then on, in the mutations, too.
    """
    return _types(frame, *_OBJECTS, _PARAMS)


def without_empty(document: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Return *document*, an object, without the empty lists and maps that Go leaves out when it writes one.

    The objects of custom resources keep them. *document* is not changed; the result shares parts with it.
    *facts* are those of the review.
    """
    of_document = _of_object(document)
    if of_document is None:
        return document
    known, known_type = facts.get(_WITHOUT_EMPTY, (None, None))
    found = _map_without_empty(document, of_document, known if known_type is of_document else None)
    facts[_WITHOUT_EMPTY] = found, of_document
    return found


def _part_without_empty(value: object, of_value: _GoType, known: object) -> object:
    """Return *value* without what is empty, itself if nothing is or if it is no list or map.

    *known* is such a value, of the same type, which is never changed: parts that *value* shares with it at
    the same place are not read again. It is anything else if there is no such value.
    """
    if type(value) is dict:
        return _map_without_empty(value, of_value, known)
    return _list_without_empty(value, of_value, known) if type(value) is list else value


def _list_without_empty(value: list[Any], of_value: _GoType, known: object) -> list[Any]:
    element = of_value.element
    if element is None:
        return value
    earlier = known if type(known) is list else _NO_LIST
    # Elements that were added at the head or in the middle move those behind them.
    moved = len(value) - len(earlier)
    changed: list[Any] | None = None
    for index, each in enumerate(value):
        same_place = earlier[index] if index < len(earlier) else None
        if each is same_place or (0 <= index - moved < len(earlier) and each is earlier[index - moved]):
            continue
        part = _part_without_empty(each, element, same_place)
        if part is not each:
            changed = list(value) if changed is None else changed
            changed[index] = part
    return value if changed is None else changed


def _map_without_empty(value: dict[str, Any], of_value: _GoType, known: object) -> dict[str, Any]:
    fields, element = of_value.fields, of_value.element
    if not fields and element is None:
        return value
    earlier = known if type(known) is dict else _NO_MAP
    changed: dict[str, Any] | None = None
    for key, each in value.items():
        if type(each) not in _CONTAINERS:
            continue
        same_place = earlier.get(key)
        of_part = fields.get(key, element)
        if of_part is None or each is same_place:
            continue
        part: Any = _part_without_empty(each, of_part, same_place)
        is_left_out = not part and key in fields and of_part.name in (LIST, MAP)
        is_left_out = is_left_out and f"{of_value.name.rpartition('.')[2]}.{key}" not in _WRITTEN_EMPTY
        if is_left_out or part is not each:
            changed = dict(value) if changed is None else changed
            changed[key] = part
            if is_left_out:
                del changed[key]
    return value if changed is None else changed


def _types(frame: Sequence[object], *slots: int) -> dict[int, str]:
    found: dict[int, str] = {}
    _add(found, frame[_REQUEST_SLOT], _OF_REQUEST)
    if frame[_NAMESPACE_SLOT] is not None:
        _add(found, frame[_NAMESPACE_SLOT], _of_kind(_NAMESPACE))
    for slot in slots:
        _add(found, frame[slot], _of_object(frame[slot]))
    return found


def _of_object(value: object) -> _GoType | None:
    """Return the type of *value*, an object; None for that of a custom resource."""
    if not isinstance(value, dict):
        return None
    group, _, version = str(value.get("apiVersion", "")).rpartition("/")
    return _of_kind(GroupVersionKind(group, version, str(value.get("kind", ""))))


@lru_cache(maxsize=1024)
def _of_kind(kind: GroupVersionKind) -> _GoType | None:
    try:
        _, name = built_in_schemas().definition(kind)
    except UnknownKindError:
        # Options of subresources have no schema.
        return _GoType(kind.kind) if kind[:2] == ("", "v1") else None
    return _reader().named(name)


@cache
def _reader() -> _Reader:
    schemas, _ = built_in_schemas().definition(_NAMESPACE)
    return _Reader(schemas)


def _add(found: dict[int, str], value: object, of_value: _GoType | None) -> None:
    """Put the Go types of *value* and its parts into *found*."""
    if of_value is None or type(value) not in _CONTAINERS:
        return
    waiting: list[tuple[Any, _GoType]] = [(value, of_value)]
    number = 0
    while waiting:
        part, of_part = waiting.pop()
        number += len(part) + 1
        found[id(part)] = of_part.name
        if of_part.fields:
            fields = of_part.fields
            for key, each in part.items():
                if type(each) in _CONTAINERS and key in fields:
                    waiting.append((each, fields[key]))
        elif (element := of_part.element) is not None:
            for each in part.values() if type(part) is dict else part:
                if type(each) in _CONTAINERS:
                    waiting.append((each, element))
    count_values(number)
