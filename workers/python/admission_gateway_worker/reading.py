"""Finds functions that only read what they get, so that it need not be checked what they left.

All values that such a function reaches come from its argument, which has values of JSON, from constants, and
from built-in functions that change nothing; it calls only functions of the same sort. It has no step that
changes a container or keeps a value. Everything unknown, as a step of a later Python, counts as a change.
That a name gets another value later is not seen.

Source: the documentation of CPython's ``dis``.
"""

from __future__ import annotations

import builtins
import dis
import re
from types import CodeType, FunctionType
from typing import Any, Final

from admission_gateway_worker.review import Cause, Denied


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STEPS: Final = _words(
    # Values and names.
    "LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW "
    "LOAD_FAST_AND_CLEAR LOAD_CONST LOAD_SMALL_INT LOAD_GLOBAL LOAD_DEREF LOAD_CLOSURE LOAD_ATTR LOAD_METHOD "
    "STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_DEREF DELETE_FAST MAKE_CELL COPY_FREE_VARS "
    "COPY SWAP POP_TOP PUSH_NULL UNPACK_SEQUENCE "
    # Operators. BINARY_OP is also that of +=.
    "BINARY_OP BINARY_SUBSCR BINARY_SLICE BUILD_SLICE COMPARE_OP CONTAINS_OP IS_OP UNARY_NOT UNARY_NEGATIVE "
    "TO_BOOL FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE BUILD_STRING "
    # Containers that the function makes.
    "BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP LIST_APPEND SET_ADD MAP_ADD LIST_EXTEND "
    "SET_UPDATE LIST_TO_TUPLE "
    # Calls, loops, generators, exceptions.
    "PRECALL CALL CALL_KW KW_NAMES MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE GET_ITER FOR_ITER END_FOR POP_ITER "
    "RETURN_VALUE RETURN_CONST RETURN_GENERATOR YIELD_VALUE RESUME RAISE_VARARGS RERAISE PUSH_EXC_INFO "
    "CHECK_EXC_MATCH POP_EXCEPT CALL_INTRINSIC_1 "
    "JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP "
    "POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE "
    "POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE "
    "POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE "
    "POP_JUMP_BACKWARD_IF_NOT_NONE NOP NOT_TAKEN CACHE EXTENDED_ARG"
)
_MEMBERS: Final = _words(
    # Of a Review.
    "request object old_object operation kind resource sub_resource name namespace user_info dry_run uid "
    "namespace_object warn annotate "
    # Of values of JSON, and of patterns.
    "get items keys values count index startswith endswith removeprefix removesuffix split rsplit splitlines "
    "partition rpartition strip lstrip rstrip lower upper casefold join replace find isdigit isalnum "
    "fullmatch match search group"
)
_FUNCTIONS: Final[tuple[object, ...]] = (
    *(all, any, bool, dict, enumerate, float, frozenset, int, isinstance, len, list, max, min, range, set),
    *(sorted, str, sum, tuple, zip, Cause, Denied, KeyError, IndexError, TypeError, ValueError),
)
_CONSTANTS: Final = (type(None), bool, int, float, str, bytes, re.Pattern)


def only_reads(function: object) -> bool:
    """Whether *function* neither changes nor keeps its argument, a Review, or parts of it."""
    try:
        return _is_harmless(function, set())
    except RecursionError:
        return False


def _is_harmless(value: Any, seen: set[FunctionType]) -> bool:  # noqa: ANN401
    """Whether a function that only reads may have *value* from elsewhere than its argument."""
    if type(value) in _CONSTANTS or any(value is function for function in _FUNCTIONS):
        return True
    if type(value) in (tuple, frozenset):
        return all(_is_harmless(item, seen) for item in value)
    if type(value) is not FunctionType:
        return False
    if value in seen:
        return True
    seen.add(value)
    outer = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    try:
        outer += [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError:  # not assigned yet
        return False
    names = {**vars(builtins), **value.__globals__}
    return all(_is_harmless(item, seen) for item in outer) and _has_only_reads(value.__code__, names, seen)


def _has_only_reads(code: CodeType, names: dict[str, Any], seen: set[FunctionType]) -> bool:
    for step in dis.get_instructions(code):
        kind, name = step.opname, step.argval
        if (
            kind not in _STEPS
            or (kind in ("LOAD_ATTR", "LOAD_METHOD") and name not in _MEMBERS)
            or (kind == "LOAD_GLOBAL" and not (name in names and _is_harmless(names[name], seen)))
            or (kind == "BINARY_OP" and step.argrepr.endswith("="))
            or (kind == "STORE_DEREF" and name not in code.co_cellvars)
        ):
            return False
    return all(_has_only_reads(inner, names, seen) for inner in code.co_consts if type(inner) is CodeType)
