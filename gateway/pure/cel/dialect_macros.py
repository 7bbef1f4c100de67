"""Macros that other engines have beside those of Kubernetes. Each takes the call of a member.

Source: github.com/kyverno/kyverno pkg/cel/compiler/env.go (orValueCompatMacro).
"""

from __future__ import annotations

from gateway.pure.cel.libraries.optional_values import OR_VALUE
from gateway.pure.cel.syntax import Call, Node


def or_value(call: Call) -> Node:
    """Return the expansion of ``x.orValue(y)``, which is x if x is no optional value."""
    if call.target is None or len(call.arguments) != 1:
        return call
    return Call(call.at, OR_VALUE, None, [call.target, *call.arguments])
