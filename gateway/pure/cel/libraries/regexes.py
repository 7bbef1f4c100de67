"""The regex functions of Kubernetes.

Source: k8s.io/apiserver pkg/cel/library/regex.go.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.meter import charge, count_reading, count_text
from gateway.pure.cel.regex import Regex, compile_regex


def _compiled(text: str, pattern: str) -> Regex:
    charge(math.ceil((1 + len(text)) * 0.1) * math.ceil(len(pattern) * 0.25))
    count_reading(text)
    try:
        return compile_regex(pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    regex, raw = _compiled(text, pattern), text.encode()
    found = regex.find(raw)
    return "" if found is None else raw[slice(*found.span())].decode()


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    regex, raw = _compiled(text, pattern), text.encode()
    matches: list[str] = []
    if limit == 0:
        return matches
    for found in regex.find_all(raw):
        start, end = found.span()
        count_text(end - start)
        matches.append(raw[start:end].decode())
        if len(matches) == limit:
            break
    return matches


FUNCTIONS: Final = (
    function("string_find_string", "string::find(string) -> string", _find),
    function("string_find_all_string", "string::findAll(string) -> list(string)", _find_all),
    function("string_find_all_string_int", "string::findAll(string, int) -> list(string)", _find_all),
)
