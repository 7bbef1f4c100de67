"""The secret values of a document, which ``gateway.observe.decisions.redaction`` replaces wherever they
occur.

``Redactor.redacted`` replaces each of them as a whole where it stands.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

import orjson

from gateway.observe.decisions.credential_forms import (
    credentials_in,
    credentials_of_arguments,
    is_credential_name,
    is_named_credential,
    is_reference,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    Known = dict[int, object]
    """Lists and maps whose values are known, by identity. It keeps them: a new one has no such identity."""

EARLIER_VERSION: Final = re.compile(r"last-applied|/applied\Z|/original\Z")
"""The key of an annotation with an earlier version of its object."""
_SHORT_ANNOTATION: Final = 256
"""A longer annotation of a Secret may contain a version of it in any encoding."""
_PUBLIC_ANNOTATION: Final = re.compile(r"(?:[\w-]+\.)*(?:kubernetes\.io|k8s\.io|helm\.sh|cert-manager\.io)/")
"""Annotations of a Secret that stay. Policies, replayed ones too, may need the name of a service account or
of a release."""
_MAX_TEXT_CHARS: Final = 64 * 1024
"""The longest text that is searched for credentials."""


def is_private(key: str, text: str) -> bool:
    """Whether the annotation *key* of a Secret is replaced."""
    return len(text) > _SHORT_ANNOTATION or _PUBLIC_ANNOTATION.match(key) is None


class Encoded(str):
    """A text that is base64."""

    __slots__ = ()


def secret_values(document: object, known: Known | None = None) -> Iterator[str]:
    """Yield the secret values of *document*, and the credentials in its other texts.

    Parts that *known* has are left out, and the others are added to it.
    """
    if isinstance(document, str):
        yield from credentials_in(document[:_MAX_TEXT_CHARS])
        yield from secret_values(json_of(document))
    elif isinstance(document, list):
        yield from _values_of_list(document, None, known)
    elif isinstance(document, dict):
        is_secret, is_credential = document.get("kind") == "Secret", is_named_credential(document)
        for name, value in document.items():
            if is_secret and name == "data":
                yield from map(Encoded, texts_in(value))
            elif name == "stringData" or (is_credential and name == "value"):
                yield from texts_in(value)
            elif is_credential_name(name):
                yield from _values_below(value, known)
            elif is_secret and name == "metadata" and isinstance(value, dict):
                yield from _values_of_annotations(value.get("annotations"), is_secret=True)
            elif name == "annotations":
                yield from _values_of_annotations(value, is_secret=False)
            elif name == "args" and isinstance(value, list):
                yield from _values_of_list(value, document.get("command"), known)
            elif name != "managedFields" and not _is_known(value, known):
                yield from secret_values(value, known)


def _is_known(value: object, known: Known | None) -> bool:
    """Whether *known* has *value*; if not, it gets it."""
    if known is None or not isinstance(value, list | dict):
        return False
    if id(value) in known:
        return True
    known[id(value)] = value
    return False


def _values_of_list(items: list[object], command: object, known: Known | None) -> Iterator[str]:
    for item, found in zip(items, credentials_of_arguments(items, command), strict=True):
        if found:
            yield found
        elif not _is_known(item, known):
            yield from secret_values(item, known)


def _values_below(value: object, known: Known | None) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _values_below(item, known)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from secret_values(item, known) if is_reference(key) else _values_below(item, known)


def _values_of_annotations(annotations: object, *, is_secret: bool) -> Iterator[str]:
    for key, text in annotations.items() if isinstance(annotations, dict) else ():
        if not isinstance(text, str):
            yield from secret_values(text)
        elif EARLIER_VERSION.search(key):
            yield from secret_values(json_of(text))
        elif is_credential_name(key) or (is_secret and is_private(key, text)):
            yield text
        else:
            yield from secret_values(text)


def credentials_of_json(text: str) -> Iterator[str]:
    """Yield the credentials in *text* if it is JSON, such as the passwords of a ``.dockerconfigjson``."""
    found = json_of(text)
    for inner in secret_values(found):
        yield inner
        if plain := decoded(inner):
            yield plain
    auths = found.get("auths") if isinstance(found, dict) else None
    for account in auths.values() if isinstance(auths, dict) else ():
        auth = account.get("auth") if isinstance(account, dict) else None
        if isinstance(auth, str):
            yield auth
            yield decoded(auth)
            yield decoded(auth).partition(":")[2]


def json_of(text: str) -> object:
    """Return the object or list that *text* is the JSON of; None if it is not."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return None


def texts_in(value: object) -> Iterator[str]:
    """Yield the texts in *value*, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)


def decoded(text: str) -> str:
    """Return what *text* is the base64 of; empty if it is not base64 of a text."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def as_bytes(text: str) -> str:
    """Return the bytes of *text*, base64, with surrogates for what is not UTF-8; empty if it is not that."""
    try:
        return base64.b64decode(text, validate=True).decode(errors="surrogateescape")
    except (binascii.Error, ValueError):
        return ""
