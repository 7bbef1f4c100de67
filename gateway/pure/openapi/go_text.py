"""Values as the messages of structured merge show them, which is as Go prints them.

Source: sigs.k8s.io/structured-merge-diff/v6 value/value.go (ToString); Go fmt.
"""

from __future__ import annotations

from gateway.pure.cel.values import format_double, quoted


def shown(value: object) -> str:
    """Return *value* as a path shows it in the key of an element."""
    match value:
        case None:
            return "null"
        case str():
            return quoted(value)
        case list():
            return f"[{','.join(map(shown, value))}]"
        case dict():
            return "".join(f"{name}={shown(each)}" for name, each in value.items())
        case _:
            return _plain(value)


def printed(value: object) -> str:
    """Return *value* as ``%v`` prints it."""
    match value:
        case None:
            return "<nil>"
        case str():
            return value
        case list():
            return f"[{' '.join(map(printed, value))}]"
        case dict():
            return f"map[{' '.join(f'{name}:{printed(each)}' for name, each in sorted(value.items()))}]"
        case _:
            return _plain(value)


def syntax(value: object) -> str:
    """Return *value* as ``%#v`` prints it."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return quoted(value)
        case list():
            return f"{go_type(value)}{{{', '.join(map(syntax, value))}}}"
        case dict():
            fields = (f"{quoted(name)}:{syntax(each)}" for name, each in sorted(value.items()))
            return f"{go_type(value)}{{{', '.join(fields)}}}"
        case _:
            return _plain(value)


def go_type(value: object) -> str:
    """Return the type of *value* as ``%T`` prints it."""
    match value:
        case str():
            return "string"
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case list():
            return "[]interface {}"
        case dict():
            return "map[string]interface {}"
        case _:
            return "<nil>"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_double(value) if isinstance(value, float) else str(value)
