"""The function libraries that Kubernetes adds to CEL, in the versions of kube-apiserver 1.37.

Source: k8s.io/apiserver pkg/cel/environment/base.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.libraries import (
    addresses,
    formats,
    lists,
    listsext,
    quantity,
    regexes,
    semver,
    sets,
    strings,
    urls,
)

if TYPE_CHECKING:
    from gateway.pure.cel.functions import Function

FUNCTIONS: Final[tuple[Function, ...]] = (
    *urls.FUNCTIONS,
    *regexes.FUNCTIONS,
    *lists.FUNCTIONS,
    *quantity.FUNCTIONS,
    *strings.FUNCTIONS,
    *sets.FUNCTIONS,
    *addresses.FUNCTIONS,
    *formats.FUNCTIONS,
    *semver.FUNCTIONS,
    *listsext.FUNCTIONS,
)
"""The functions of all libraries except the authorizer's (``gateway.pure.cel.authorizer``)."""
