"""The syntax of Kubernetes names: each function returns the problem of a text, None if it is valid.

Source: k8s.io/apimachinery pkg/util/validation/validation.go; RFC 1035, RFC 1123.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.base.text import shown
from gateway.config.kinds.declare import Text, Texts
from gateway.config.yaml.fields import child

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.config.yaml.fields import Problems

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""Pattern of a DNS label. This and those below are for RE2 too, in which the API server has them."""
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
WEBHOOK_NAME = rf"{LABEL}(\.{LABEL}){{2,}}"
NAME_PART = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""A label's value, and its key behind the slash."""
QUALIFIED = f"({SUBDOMAIN}/)?{NAME_PART}"
"""A label's key."""
ANNOTATION_KEY = f"({SUBDOMAIN.replace('a-z', 'A-Za-z')}/)?{NAME_PART}"
"""An annotation's key: the API server makes it lower case before it checks the prefix."""
_DNS_1123_LABEL = re.compile(LABEL)
_DNS_1123_SUBDOMAIN = re.compile(SUBDOMAIN)
_DNS_1035_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_NAME_PART = re.compile(NAME_PART)

_CONFIG_MAP_KEY = re.compile(r"[-._A-Za-z0-9]+")

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
KEY_LENGTH = SUBDOMAIN_LENGTH + 1 + LABEL_LENGTH
"""Characters of a label's key."""
ANNOTATIONS_BYTES = 256 * 1024
"""All keys and values of an object's annotations together (TotalAnnotationSizeLimitB in apimachinery)."""


def dns_1123_label(text: str) -> str | None:
    """A name such as ``kube-system``."""
    if len(text) <= LABEL_LENGTH and _DNS_1123_LABEL.fullmatch(text):
        return None
    return (
        f'found {shown(text)}, expected a name of at most {LABEL_LENGTH} lower-case letters, digits and "-", '
        "with a letter or digit at both ends"
    )


def dns_1035_label(text: str) -> str | None:
    """A name such as ``v1beta1``."""
    if len(text) <= LABEL_LENGTH and _DNS_1035_LABEL.fullmatch(text):
        return None
    return (
        f'found {shown(text)}, expected a name of at most {LABEL_LENGTH} lower-case letters, digits and "-", '
        "with a letter first and a letter or digit last"
    )


def dns_1123_subdomain(text: str) -> str | None:
    """A name such as ``pod-policies.example.com``."""
    if len(text) <= SUBDOMAIN_LENGTH and _DNS_1123_SUBDOMAIN.fullmatch(text):
        return None
    return (
        f"found {shown(text)}, expected a name of at most {SUBDOMAIN_LENGTH} lower-case letters, digits, "
        '"-" and ".", with a letter or digit at both ends of each part'
    )


def group_version(text: str) -> str | None:
    """Check an apiVersion."""
    group, slash, version = text.rpartition("/")
    if "/" in group or not version:
        return f"found {shown(text)}, expected VERSION or GROUP/VERSION"
    return (dns_1123_subdomain(group) if slash and group else None) or dns_1035_label(version)


def config_map_key(text: str) -> str | None:
    """A key of a Secret or ConfigMap, such as ``ca.crt``."""
    if len(text) <= SUBDOMAIN_LENGTH and _CONFIG_MAP_KEY.fullmatch(text) and text not in (".", ".."):
        return None
    return f'found {shown(text)}, expected a key of letters, digits, "-", "_" and "."'


def webhook_name(text: str) -> str | None:
    """A fully qualified name such as ``images.policies.example.com``."""
    if message := dns_1123_subdomain(text):
        return message
    if text.count(".") < 2:
        return f"found {shown(text)}, expected three or more parts between dots, as in images.example.com"
    return None


NAME_OF_WEBHOOK: Final = Text(
    "DNS name with at least three parts",
    webhook_name,
    maxLength=SUBDOMAIN_LENGTH,
    pattern=f"^{WEBHOOK_NAME}$",
)
_MOST: Final = 16
NAMES_OF_WEBHOOKS: Final = Texts(
    f"list of 1 to {_MOST} names of webhooks",
    webhook_name,
    (1, _MOST),
    maxLength=SUBDOMAIN_LENGTH,
    pattern=f"^{WEBHOOK_NAME}$",
)


def configuration_name(text: str) -> str | None:
    """The name of a webhook configuration, an admission policy, or the binding of one."""
    if text.endswith(".static.k8s.io"):
        return (
            f"found {shown(text)}, expected another name: names that end in .static.k8s.io are "
            "reserved for kube-apiserver's manifest files"
        )
    return dns_1123_subdomain(text)


def qualified_name(text: str) -> str | None:
    """A label key such as ``app`` or ``example.com/team``."""
    prefix, slash, name = text.rpartition("/")
    if slash and (not prefix or dns_1123_subdomain(prefix)):
        return f"found {shown(text)}, expected one slash, after a DNS name, as in example.com/team"
    if _NAME_PART.fullmatch(name):
        return None
    return (
        f'found {shown(text)}, expected a name of 1 to {LABEL_LENGTH} letters, digits, "-", "_" and ".", '
        "with a letter or digit at both ends, and perhaps a DNS name and a slash before it"
    )


def annotation_key(text: str) -> str | None:
    """A key of an annotation: that of a label, in capital letters as well."""
    return qualified_name(text.lower())


def label_value(text: str) -> str | None:
    """A label's value; it may be empty."""
    if not text or _NAME_PART.fullmatch(text):
        return None
    return (
        f'found {shown(text)}, expected nothing or at most {LABEL_LENGTH} letters, digits, "-", "_" and ".", '
        "with a letter or digit at both ends"
    )


def check_labels(labels: Mapping[str, str], path: str, problems: Problems) -> None:
    """Problems the problems of the keys and values of *labels*, at *path*."""
    for key, value in labels.items():
        for message in (qualified_name(key), label_value(value)):
            if message:
                problems.add(child(path, key), message)


def check_annotations(annotations: Mapping[str, str], path: str, problems: Problems) -> None:
    """Problems the problems of the keys and the total size of *annotations*, at *path*."""
    for key in annotations:
        if message := annotation_key(key):
            problems.add(child(path, key), message)
    total_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if total_bytes > ANNOTATIONS_BYTES:
        problems.add(path, f"found {total_bytes} bytes, expected at most {ANNOTATIONS_BYTES}")
