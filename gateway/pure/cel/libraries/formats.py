"""The named formats of Kubernetes: names of objects, labels, and formats of OpenAPI.

Source: k8s.io/apiserver pkg/cel/library/format.go; k8s.io/apimachinery pkg/util/validation,
pkg/api/validate/content; k8s.io/kube-openapi pkg/validation/strfmt.
"""

from __future__ import annotations

import math
from calendar import monthrange
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from gateway.pure.cel.functions import function
from gateway.pure.cel.libraries.urls import parse_request_uri
from gateway.pure.cel.meter import charge, count_reading
from gateway.pure.cel.regex import compile_regex
from gateway.pure.cel.values import NONE, Optional

if TYPE_CHECKING:
    from collections.abc import Callable

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_ENDS: Final = "and must start and end with an alphanumeric character"
_LABEL_TEXT: Final = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
    f" (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT: Final = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
    f" (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_DNS1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    f"validation is '{_DNS1035}')"
)
_KEY_TEXT: Final = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
    f" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)
_WITH_PREFIX: Final = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_VALUE_TEXT: Final = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
    f" (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_KEY})?')"
)
_UUID: Final = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
_TIME: Final = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format. Formats are equal if their names are."""

    cel_type: ClassVar[str] = "kubernetes.NamedFormat"
    name: str
    problems: Callable[[str], list[str]] = field(compare=False)
    """Returns the problems of a text."""
    pattern_size: int = field(compare=False)
    """Characters of the regular expression, for its cost in Kubernetes."""


def _fits(text: str, pattern: str) -> bool:
    return compile_regex(pattern).search(text) is not None


def _checked(text: str, pattern: str, longest: int, problem: str) -> list[str]:
    problems = [f"must be no more than {longest} bytes"] if len(text.encode()) > longest else []
    if not _fits(text, f"^{pattern}$"):
        problems.append(problem)
    return problems


def _label(text: str) -> list[str]:
    problems = _checked(text, _LABEL, 63, _LABEL_TEXT)
    if problems[-1:] == [_LABEL_TEXT] and _fits(text, f"^{_SUBDOMAIN}$"):
        problems[-1] = "must not contain dots"
    return problems


def _subdomain(text: str) -> list[str]:
    return _checked(text, _SUBDOMAIN, 253, _SUBDOMAIN_TEXT)


def _dns1035(text: str) -> list[str]:
    return _checked(text, _DNS1035, 63, _DNS1035_TEXT)


def _prefix(check: Callable[[str], list[str]], text: str) -> list[str]:
    # A dash at the end of generateName is not the last character of the name.
    return check(
        f"{text.encode()[:-2].decode(errors='replace')}a" if len(text) > 1 and text.endswith("-") else text
    )


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [f"a valid label key {_KEY_TEXT}{_WITH_PREFIX}"]
    problems: list[str] = []
    if slash:
        problems += [
            f"prefix part {one}" for one in (_subdomain(prefix) if prefix else ["must be non-empty"])
        ]
    if not name:
        problems.append("name part must be non-empty")
    return problems + [f"name part {one}" for one in _checked(name, _KEY, 63, _KEY_TEXT)]


def _label_value(text: str) -> list[str]:
    return _checked(text, f"({_KEY})?", 63, _VALUE_TEXT)


def _uri(text: str) -> list[str]:
    problem = parse_request_uri(text)
    return [] if problem is None else [problem]


def _whole(pattern: str, problem: str, text: str) -> list[str]:
    return [] if _fits(text, pattern) else [problem]


def _is_date(text: str) -> bool:
    if not _fits(text, "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"):
        return False
    year, month, day = (int(part) for part in text.split("-"))
    # The year 0 is a leap year, as 4 is; calendar begins with 1.
    return 1 <= month <= 12 and 1 <= day <= monthrange(year or 4, month)[1]


def _date(text: str) -> list[str]:
    return [] if _is_date(text) else ["invalid date"]


def _date_time(text: str) -> list[str]:
    date, _, rest = text.lower().partition("t")
    time = rest.partition("t")[0]
    within = time[:2] <= "23" and time[3:5] <= "59" and time[6:8] <= "59"
    return [] if _is_date(date) and _fits(time, _TIME) and within else ["invalid datetime"]


FORMATS: Final = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _dns1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", partial(_prefix, _label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", partial(_prefix, _subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", partial(_prefix, _dns1035), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", partial(_whole, _UUID, "does not match the UUID format"), len(_UUID)),
    "byte": NamedFormat("byte", partial(_whole, _BASE64, "invalid base64"), 84),
    "date": NamedFormat("date", _date, len(_TIME)),
    "datetime": NamedFormat("datetime", _date_time, len(_TIME)),
}


def _named(name: str) -> Optional:
    charge(1)
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _validate(which: NamedFormat, text: str) -> Optional:
    charge(math.ceil((1 + len(text)) * 0.1) * math.ceil(which.pattern_size * 0.25))
    count_reading(text, 4)
    problems = which.problems(text)
    return Optional(problems) if problems else NONE


def _constant(which: NamedFormat) -> Callable[[], NamedFormat]:
    def constant() -> NamedFormat:
        charge(1)
        return which

    return constant


FUNCTIONS: Final = (
    *(
        function(f"format.{name}", f"format.{name}() -> kubernetes.NamedFormat", _constant(which))
        for name, which in FORMATS.items()
    ),
    function("format-named", "format.named(string) -> optional_type(kubernetes.NamedFormat)", _named),
    function(
        "format-validate",
        "kubernetes.NamedFormat::validate(string) -> optional_type(list(string))",
        _validate,
    ),
)
