"""Names and forms by which a credential is recognised in an object or a text."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import re2

from gateway.observe.decisions.command_lines import (
    AFTER_VALUE,
    HINTS,
    MARK,
    ORDINARY,
    PROGRAMS,
    password_spans,
    passwords_of_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NAME: Final = (
    r"(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|credential|authorization|cookie|jwt|dsn"
    r"|connection[-_.]?string|dockerconfigjson|dockercfg"
    # Neither bypass nor compass.
    r"|(?:\b|[_0-9])pass|(?-i:[a-z]P)ass"
    r"|(?:api|access|private|signing|encryption|secret|client|account|storage|master|ssh|tls|hmac|session"
    r"|shared|deploy)[-_.]?key|sshpass|(?:bind|root|admin|user|db)[-_.]?pw)"
    r"(?:s|[-_.]?(?:value|data|pem|base64|string))?(?:_?[0-9]{1,2})?"
)
"""Regular expression of the end of a name, without regard to case."""
_CREDENTIAL_NAME: Final = re.compile(_NAME + r"\Z", re.IGNORECASE)
_LONGEST_NAME: Final = 253
"""The longest name of a field or an environment variable. A longer text would fill the cache."""
_REFERENCE_KEYS: Final = re.compile(
    r"(?:algorithm|apiGroup|apiVersion|audience|defaultMode|description|encoding|expirationSeconds|file|items|key"
    r"|kind|mode|mountPath|name|namespace|optional|path|rotationPolicy|sameSite|secretName|size|ttl|type|version"
    r"|.*(?:Ref|Refs|From|Selector|Name|Namespace))"
)
"""Members of a mapping with the name of a credential that say where the credential is, and of which kind."""
_OPTION: Final = re.compile(rf"--?[\w.-]{{0,60}}?{_NAME}\Z", re.IGNORECASE)
_USER_OPTIONS: Final = frozenset({"-u", "-U", "--user", "--proxy-user"})
_CREDENTIAL: Final = re.compile(
    rf"""
    (?P<jwt>(?<![\w-])eyJ[\w-]{{8,}}\.[\w-]{{8,}}\.[\w-]*)
    | (?P<pem>-----BEGIN[ ][A-Z ]{{0,40}}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
        (?:(?!-----END)[\s\S]){{0,16000}}(?:-----END[ A-Z]{{0,60}}-----)?)
    | (?<=://)(?P<url>[^\s/@:]{{0,200}}+:(?!\d{{1,5}}/)[^\s@"'<>]{{1,500}}+)(?=@)
    # Such as the data source name of a Go driver. An address of mail has neither port nor path.
    | (?<![\w/:])[\w.%+-]{{1,64}}+:(?P<dsn>[^\s/@:'"]{{1,500}}+)@(?:\w{{0,9}}\(|[\w.-]{{1,200}}(?::\d|/))
    | (?:(?<=bearer[ ])(?P<bearer>[\w.~+/=-]{{8,}}) | (?<=basic[ ])(?P<basic>[\w+/=-]{{8,}}))
    | (?<![\w-])(?:-u|-U|--user|--proxy-user)(?:[ =]|["'],[ ]?)?["']?
        (?!\d+:\d+\b)[^\s:"']{{1,100}}:(?P<user>[^\s"']{{1,500}})
    # Not after a full stop, so that a long row of full stops and dashes is read once.
    | (?<![\w.-])--?[\w.-]{{0,60}}?(?:{_NAME})(?:[ ]{{1,3}}|["'],[ ]?)["']?
        (?P<option>(?!-|{ORDINARY})[^\s"',;&]+)
    | (?:{_NAME})(?:\\*["'][ ]{{0,3}}:(?!\s{{0,3}}[{{\[])|\s{{0,3}}(?::=|[=:](?!=)))\s{{0,3}}
        (?:(?P<bars>\\*)(?P<mark>["'])(?!{MARK}(?P=bars)(?P=mark))(?P<quoted>.{{1,500}}?)(?P=bars)(?P=mark)
        |(?:\\*["'])?(?P<assigned>(?!{ORDINARY}|{MARK}{AFTER_VALUE})[^\s,;&"'\\]+))
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""The credential is the last group."""
_HINTS: Final = (
    *HINTS,
    *("eyj", "private key", "://", "@", "bearer ", "basic ", "-u", "--user", "--proxy-user", "pass", "pw"),
    *("secret", "token", "credential", "authorization", "cookie", "jwt", "dsn", "string", "docker", "key"),
)
"""Every text with a credential contains one of these, in lower case. Most texts contain none."""

# -- The same in JSON -----------------------------------------------------------------------------------

_TEXTS: Final = (
    r'eyj[^".\s\\]{8,}\.[^".\s\\]{8,}\.'  # a JSON Web Token
    r"|private key"
    r'|://(?:[^\s/@"\\]|\\.)*:(?:[^\s@"\\]|\\.)*@'  # credentials in a URL
    r'|[\w.%+-]:(?:[^\s/@:"\\]|\\.)+@(?:\w*\(|[\w.-]+(?::\d|/))'
    r'|(?:bearer|basic) [^\s"]'
    r'|(?:-u|--user|--proxy-user)(?:"\s*,\s*"|(?:[ =]|\\"|\')*[^\s":]+:)'
    rf'|(?:[^\w-])--?[\w.-]*{_NAME}(?:"\s*,|\\?[\s"\']|\\[ntr])'
    rf"|{_NAME}(?:\\+\"|\\*')?(?:\s|\\[nrtf])*[=:]"
    rf"|{PROGRAMS}"
)
"""At least the texts in which :func:`credentials_in` finds something."""
_IN_TEXT: Final = re2.compile(f"(?i){_TEXTS}")
_LONG_TEXT: Final = 4096
_UNUSUAL: Final = (
    r"[\n\r]"  # would end the line of the recording
    r"|\\/"
    # An escape that Go's encoder does not write and that could hide a name. It writes \u0026, \u003c, \u003e,
    # \u2028, \u2029 and control characters.
    r"|\\u(?:[13-9a-f]|2[1-9a-f]|20[013-9a-f]|202[0-7a-f]|0[1-9a-f]|00[4-9a-f]|002[0-57-9a-f]|003[0-9abdf])"
    "|[\u0130\u0131]"  # which Python's re counts as i
)
_SUSPICIOUS: Final = re2.compile(
    r'(?i)"kind"\s*:\s*"secret"|"stringdata"|last-applied|/(?:applied|original)"'
    rf'|{_NAME}"\s*:\s*"'  # a field
    rf'|"(?:name|key)"\s*:\s*"(?:[^"\\]|\\.)*{_NAME}"'  # such as an environment variable
    rf"|{_TEXTS}|{_UNUSUAL}"
)
_REFERENCE_MAPPING: Final = (
    r'\{\s*(?:"(?:audience|defaultMode|expirationSeconds|name|namespace|optional|path|secretName)"\s*:\s*'
    r'(?:"[^"\\]*"|[0-9a-z]+)\s*,?\s*)*\}'
)
_CONTAINER: Final = re2.compile(rf'(?i){_NAME}"\s*:\s*[\[{{]')
_REFERENCES: Final = re2.compile(
    rf'(?i){_NAME}"\s*:\s*(?:{_REFERENCE_MAPPING}|\[\s*(?:{_REFERENCE_MAPPING}\s*,?\s*)*\])'
)
"""The containers of most objects that have no credential, such as ``imagePullSecrets``."""


def is_clean(document: bytes) -> bool:
    """Whether the JSON *document* has no name and form of a credential, no Secret, and no earlier version.

    It takes a tenth of the time that parsing takes. A large part of other objects is not clean either.
    """
    if _SUSPICIOUS.search(document) is not None:
        return False
    containers = sum(1 for _ in _CONTAINER.finditer(document))
    return not containers or containers == sum(1 for _ in _REFERENCES.finditer(document))


# -- In objects and texts -------------------------------------------------------------------------------


@lru_cache(1024)
def is_credential_name(name: str) -> bool:
    """Whether *name* is that of a credential."""
    return len(name) <= _LONGEST_NAME and _CREDENTIAL_NAME.search(name) is not None


def is_reference(key: str) -> bool:
    """Whether the member *key* of a credential says where it is, or of which kind."""
    return _REFERENCE_KEYS.fullmatch(key) is not None


def is_named_credential(document: dict[str, object]) -> bool:
    """Whether *document* is a named value, such as an environment variable, with the name of a credential."""
    return any(
        isinstance(name, str) and is_credential_name(name)
        for name in (document.get("name"), document.get("key"))
    )


def credentials_of_arguments(arguments: Sequence[object], command: object = None) -> Iterator[str]:
    """Yield the credential at the end of each of *arguments* of a command, an empty text for one without.

    *command* has the program, if it is a list beside *arguments*.
    """
    before: object = None
    for argument, password in zip(arguments, passwords_of_arguments(arguments, command), strict=True):
        yield password or (_credential_after(before, argument) if isinstance(argument, str) else "")
        before = argument


def _credential_after(before: object, argument: str) -> str:
    if not isinstance(before, str) or len(before) > _LONGEST_NAME:
        return ""
    if before in _USER_OPTIONS:
        return argument.partition(":")[2]
    return argument if before.startswith("-") and _OPTION.match(before) is not None else ""


def has_hint(text: str) -> bool:
    """Whether *text* may have a credential."""
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS)


def may_have_credentials(text: str) -> bool:
    """Whether *text*, which may be long, may have a credential; has_hint() is faster for a short one."""
    return _IN_TEXT.search(json.dumps(text).encode()) is not None


def credentials_in(text: str) -> Iterator[str]:
    """Yield the credentials in *text* that are recognised by their form."""
    if has_hint(text) and (len(text) <= _LONG_TEXT or may_have_credentials(text)):
        for found in _CREDENTIAL.finditer(text):
            yield found[found.lastgroup or 0]
            if found["url"]:
                yield found["url"].partition(":")[2]
        for begin, end in password_spans(text):
            yield text[begin:end]


def without_credentials(text: str, mark: Callable[[str], str]) -> str:
    """Return *text* with the mark of each credential in its place."""

    def marked(found: re.Match[str]) -> str:
        begin, end = found.span(found.lastgroup or 0)
        at = found.start()
        return f"{found[0][: begin - at]}{mark(found.string[begin:end])}{found[0][end - at :]}"

    if not has_hint(text):
        return text
    parts: list[str] = []
    done = 0
    for begin, end in password_spans(text):
        parts += text[done:begin], mark(text[begin:end])
        done = end
    return _CREDENTIAL.sub(marked, "".join((*parts, text[done:])))
