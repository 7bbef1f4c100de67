"""Small functions of Kyverno: service accounts, hashes, rounding, lists of objects and times.

Source: github.com/kyverno/sdk extensions/cel/libs (user, hash, math, transform, time); Go math/pow.go.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.libraries.mathext import round_half_away
from gateway.pure.cel.meter import count_look_up, count_reading, count_steps, count_text, count_values
from gateway.pure.cel.times import SECOND
from gateway.pure.cel.types import STRING, Type
from gateway.pure.cel.values import Duration, Struct, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVICE_ACCOUNT: Final = Type("user.ServiceAccount")
FIELDS: Final[Mapping[str, Mapping[str, Type]]] = {
    SERVICE_ACCOUNT.name: {"Name": STRING, "Namespace": STRING},
}
"""The fields of the types."""
_PREFIX: Final = "system:serviceaccount:"
_BEFORE_1970: Final = 62_135_596_800 * SECOND
"""Nanoseconds from the beginning of the year 1, from which Go counts what it truncates."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _service_account(user: str) -> Struct:
    """Return name and namespace of the service account *user*, both empty for another user."""
    count_text(len(user), user)
    namespace, colon, name = user.removeprefix(_PREFIX).partition(":")
    is_account = user.startswith(_PREFIX) and colon
    fields: dict[str, object] = {"Name": name, "Namespace": namespace}
    return Struct(SERVICE_ACCOUNT.name, fields if is_account else dict.fromkeys(fields, ""))


def _hash(algorithm: str) -> Callable[[str], str]:
    def digest(text: str) -> str:
        count_reading(text, 8)
        return hashlib.new(algorithm, text.encode(), usedforsecurity=False).hexdigest()

    return digest


def _power_of_ten(exponent: int) -> float:
    """Return Go's ``math.Pow(10, exponent)``, which is not always the nearest number."""
    left = abs(exponent)
    if left >= 1 << 63:
        return 0.0
    factor, power = 1.0, 0
    base, base_power = math.frexp(10.0)
    while left:
        if abs(base_power) > 1 << 12:
            power += base_power
            break
        if left & 1:
            factor *= base
            power += base_power
        base, base_power = base * base, base_power << 1
        if base < 0.5:
            base, base_power = base + base, base_power - 1
        left >>= 1
    if exponent < 0:
        factor, power = 1 / factor, -power
    try:
        return math.ldexp(factor, power)
    except OverflowError:
        return math.inf


def _round(value: float, places: int) -> float:
    shift = _power_of_ten(places)
    return round_half_away(value * shift) / shift if shift else math.nan


def _map_of_objects(
    keys: list[object], values: list[object], key_name: str, value_name: str
) -> dict[object, object]:
    """Return the map from the field *key_name* of *keys* to *value_name* of *values*, pair by pair."""
    if len(keys) != len(values):
        sizes = f"list1: {len(keys)}, list2: {len(values)}"
        raise EvaluationError(f"listObjToMap must take lists of equal length. {sizes}")
    # Each pair is looked at, and takes a place in a new map.
    count_values(8 * len(keys))
    count_steps(((len(key_name) + len(value_name)) >> 4) * len(keys))
    found: dict[object, object] = {}
    for one, other in zip(keys, values, strict=True):
        if not isinstance(one, dict) or not isinstance(other, dict):
            raise EvaluationError("internal error: interface conversion: an element is not a map")
        key = one.get(key_name)
        if type(key) is not str:
            problem = "the passed key name cannot be handled as a string in the key object list"
            raise EvaluationError(problem)
        count_look_up(key)
        found[key] = other.get(value_name)
    return found


def _truncate(time: Timestamp, to: Duration) -> Timestamp:
    if to.ns <= 0:
        return time
    return Timestamp(time.ns - (time.ns + _BEFORE_1970) % to.ns)


def _cron(time: Timestamp) -> str:
    """Return the schedule of a job that runs at *time*, in UTC."""
    at = _EPOCH + timedelta(seconds=time.ns // SECOND)
    return f"{at.minute} {at.hour} {at.day} {at.month} {at.isoweekday() % 7}"


FUNCTIONS: Final[tuple[Function, ...]] = (
    *(
        function(
            f"parse_service_account_string_{suffix}",
            f"{prefix}parseServiceAccount(string) -> {SERVICE_ACCOUNT.name}",
            _service_account,
            1,
        )
        for prefix, suffix in (("", "non_prefixed"), ("user.", "prefixed"))
    ),
    *(
        function(f"{name}_string_{suffix}", f"{prefix}{name}(string) -> string", _hash(name), 1)
        for name in ("md5", "sha1", "sha256")
        for prefix, suffix in (("", "non_prefixed"), ("hash.", "prefixed"))
    ),
    function("math_round_float_int", "math.round(double, int) -> double", _round, 1),
    *(
        function(
            f"list_of_object_to_map_{suffix}",
            f"{prefix}listObjToMap(list(dyn), list(dyn), string, string) -> map(dyn, dyn)",
            _map_of_objects,
            1,
        )
        for prefix, suffix in (("", "non_prefixed"), ("transform.", "prefixed"))
    ),
    function("time_truncate", "time.truncate(timestamp, duration) -> timestamp", _truncate, 1),
    function("time_to_cron", "time.toCron(timestamp) -> string", _cron, 1),
)
