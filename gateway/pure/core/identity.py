"""A check of the patched object: it must be the same object, with metadata that can be decoded.

The API server decodes the result of a webhook's patch, and refuses another object, or object metadata of
wrong types. Behind the gateway it would refuse the gateway's own patch, and no failurePolicy would apply. The
schemas and the validation of kinds are left to the API server. So is what it corrects itself: a broken
``managedFields`` entry, the namespace of a Scale.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go (ObjectMeta); kubernetes/apiserver registry/rest,
create.go and update.go; tests/e2e/test_identity.py compares with API servers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.pure.core.review import shown_briefly

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.core.review import AdmissionRequest, Json

_INT64: Final = 1 << 63
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d([.,]\d+)?(Z|[+-]([01]\d|2[0-4]):([0-5]\d|60))\Z",
    re.ASCII,
)
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class PatchRefused(ValueError):
    """The patch applies, and its result would be refused by the API server."""


def check_identity(request: AdmissionRequest, before: Json, after: Json) -> None:
    """Check that *after* is the same object as *before*, with metadata that can be decoded.

    Raises:
        PatchRefused: it is not; the text names the field, the found and the expected value.
    """
    for field in ("apiVersion", "kind"):
        expected, found = before.get(field), after.get(field)
        # The API server takes built-in types from the request, if the object does not name its type.
        is_filled_in = found in (None, "") and _is_built_in(before.get("apiVersion"))
        if expected and found != expected and not is_filled_in:
            raise _refused(field, found, shown_briefly(expected))
    old, new = before.get("metadata"), after.get("metadata")
    if not isinstance(old, dict):
        # The options of CONNECT have no metadata.
        return
    if new is old:
        # A patch that changes nothing in it leaves the same dict.
        return
    if new is None:
        new = {}
    if not isinstance(new, dict):
        raise _refused("metadata", new, "an object")
    for field, check in _MEMBERS.items():
        value = new.get(field)
        if value is None or value is old.get(field):
            continue
        if value == old.get(field) and field not in _NOT_ONLY_TEXT:
            continue
        try:
            check(f"metadata.{field}", value)
        except PatchRefused:
            # The API server corrects some mistakes of clients; such a mistake is not the webhook's.
            if _is_sound(check, old.get(field)):
                raise
    # In `review`, an object may have less metadata than in a cluster.
    _check_names(request, old, new, needs_name=bool(before.get("kind")))


def _check_names(request: AdmissionRequest, old: Json, new: Json, *, needs_name: bool) -> None:
    """Check that name, namespace and uid changed only where the API server allows it."""
    # The name of a TokenRequest is that of the ServiceAccount in the path.
    needs_name = needs_name and request.sub_resource != "token"
    is_new = request.operation == "CREATE" and not request.sub_resource
    if is_new and needs_name and not _has_name(new) and _has_name(old):
        raise _refused("metadata.name", None, "a name, or metadata.generateName")
    stored = (request.old_object or {}).get("metadata")
    for field in ("namespace",) if is_new else _KEPT.get(request.sub_resource, ("name", "namespace", "uid")):
        expected, found = _text(old, field), _text(new, field)
        if found == expected:
            continue
        if field == "namespace":
            # Namespaces are in no namespace, although the request has one.
            expected = "" if request.resource[2] == "namespaces" else request.namespace
        else:
            expected = expected or _text(stored, field)
        # The API server fills in an absent value, except for a name.
        is_right = found == expected if found else field != "name" or not needs_name
        if expected and not is_right:
            raise _refused(f"metadata.{field}", found or None, shown_briefly(expected))


def _is_sound(check: Callable[[str, object], None], value: object) -> bool:
    try:
        if value is not None:
            check("", value)
    except PatchRefused:
        return False
    return True


def _has_name(metadata: Json) -> bool:
    return _text(metadata, "name") != "" or _text(metadata, "generateName") != ""


def _is_built_in(api_version: object) -> bool:
    """Whether the API server has a built-in type for objects of this apiVersion, judged by its group."""
    group = api_version.rpartition("/")[0] if isinstance(api_version, str) else ""
    return "." not in group or group.endswith(".k8s.io")


def _text(value: object, field: str) -> str:
    """Return a *field* of an object; empty if it is not a string."""
    text = value.get(field) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def _refused(path: str, found: object, expected: str) -> PatchRefused:
    return PatchRefused(f"{path}: found {shown_briefly(found)}, expected {expected}")


def _check_text(path: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise _refused(path, value, "a string")


def _check_flag(path: str, value: object) -> None:
    if value is not None and not isinstance(value, bool):
        raise _refused(path, value, "true or false")


def _check_number(path: str, value: object) -> None:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise _refused(path, value, "a whole number of 64 bits")


def _check_time(path: str, value: object) -> None:
    match = _TIME.match(value) if isinstance(value, str) else None
    if value is None or (match is not None and _is_day(*map(int, match.group(1, 2, 3)))):
        return
    raise _refused(path, value, "a time such as 2030-01-31T12:00:00Z")


def _is_day(year: int, month: int, day: int) -> bool:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] - (month == 2 and not is_leap)


def _check_texts(path: str, value: object) -> None:
    if not isinstance(value, dict):
        raise _refused(path, value, "an object of strings")
    for key, text in value.items():
        if text is not None and not isinstance(text, str):
            raise _refused(f"{path}[{shown_briefly(key)}]", text, "a string")


def _check_list(path: str, value: object) -> None:
    if not isinstance(value, list):
        raise _refused(path, value, "an array of strings")
    for index, text in enumerate(value):
        _check_text(f"{path}[{index}]", text)


def _check_entries(members: dict[str, Callable[[str, object], None]]) -> Callable[[str, object], None]:
    """Return the check of an array of objects whose *members* have the given checks."""

    def check(path: str, value: object) -> None:
        if not isinstance(value, list):
            raise _refused(path, value, "an array of objects")
        for index, entry in enumerate(value):
            if entry is not None and not isinstance(entry, dict):
                raise _refused(f"{path}[{index}]", entry, "an object")
            for field, item in (entry or {}).items():
                if field in members:
                    members[field](f"{path}[{index}].{field}", item)

    return check


_KEPT: Final = {"scale": ("uid",), "eviction": ("name",), "binding": ("name", "uid")}
"""Fields that may not change in requests for a subresource; for all others name, namespace and uid."""

_NOT_ONLY_TEXT: Final = {"generation", "deletionGracePeriodSeconds", "ownerReferences"}
"""Fields whose values may be equal in Python and different in JSON, as ``1`` and ``true``."""

_MEMBERS: Final[dict[str, Callable[[str, object], None]]] = {
    **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _check_text),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _check_number),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _check_time),
    **dict.fromkeys(("labels", "annotations"), _check_texts),
    "finalizers": _check_list,
    "ownerReferences": _check_entries(
        {
            **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _check_text),
            **dict.fromkeys(("controller", "blockOwnerDeletion"), _check_flag),
        }
    ),
    "managedFields": _check_entries(
        {
            **dict.fromkeys(("manager", "operation", "apiVersion", "fieldsType", "subresource"), _check_text),
            "time": _check_time,
        }
    ),
}
"""The fields of ObjectMeta. Null counts as absent."""
