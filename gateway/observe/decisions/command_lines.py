"""Passwords after one-letter options of well-known programs, such as ``mysql -pPASSWORD``.

An option of one letter means something else in other programs, so the program has to be known: it is a word
of the same command, or of ``command`` beside ``args``. Not taken for a password are a reference to a
variable, a command whose output is inserted, and up to five digits, which may be a port.

``mysql -p VALUE`` prompts for the password, and VALUE is a database. It is taken for a password nevertheless,
since that is what its author may have meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MYSQL: Final = " ".join(
    f"mysql{part} mariadb{'-' if part else ''}{part}"
    for part in ("", "admin", "backup", "binlog", "check", "dump", "import", "pump", "sh", "show", "slap")
)
_OPTIONS: Final = {
    "-p": f"{_MYSQL} sshpass mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat mongotop",
    "-P": "sqlcmd bcp",
    "-a": "redis-cli valkey-cli keydb-cli",
    "-w": "ldapadd ldapdelete ldapmodify ldappasswd ldapsearch ldapwhoami",
}
_OPTION_OF: Final = {name: option for option, names in _OPTIONS.items() for name in names.split()}
_CLIENTS: Final = frozenset(
    ("buildah", "crane", "docker", "helm", "nerdctl", "oc", "oras", "podman", "skopeo")
)
"""Programs whose command ``login`` has the option ``-p``."""
_BEFORE_HOSTS: Final = frozenset({"-h", "-H", "--host"})
"""What follows may be a host with the name of a program."""
_WORDS: Final = (
    "a an and are as at be but by can cannot does for from has have if in is it may must needs not of on or "
    "requires should that the this to was were which will with true false null none"
)
ORDINARY: Final = rf"""(?:{_WORDS.replace(" ", "|")})(?=[\s,;&"'\\)]|\.?(?:\s|\Z))"""
"""Regular expression of words that are not a credential where one may stand in a text."""
MARK: Final = r"\(redacted[ ][0-9a-f]{8}\)"
"""Regular expression of a mark, see ``redaction.mark``."""
AFTER_VALUE: Final = r"""(?=[\s"',;&|)\]\\]|\Z)"""
"""Regular expression of what may follow a value."""
_NOT: Final = (
    rf"(?:\$(?:\w+|\{{[^}}\s]{{0,200}}\}}|\([^)]{{0,200}}\))|`[^`]{{0,200}}`|[0-9]{{1,5}}|{MARK})"
    f"{AFTER_VALUE}"
)
_IS_NOT: Final = re.compile(_NOT)
_WITHOUT_VALUE: Final = re.compile(r"-[evhV]+\Z")
"""Options of sshpass without a value."""

_NAMES: Final = "|".join(sorted(_OPTION_OF, key=len, reverse=True))
HINTS: Final = ("mysql", "mariadb", "sshpass", "mongo", "-cli", "ldap", "sqlcmd", "bcp", "login")
"""Every text that names such a program contains one of these."""
PROGRAMS: Final = rf"""(?:^|[^\w.-])(?:{_NAMES}|login)[\s"',\\]"""
"""Regular expression that matches at least these texts, in JSON too."""
_LONGEST_COMMAND: Final = 1000
"""Characters of a command after its program."""
_PROGRAM: Final = (
    rf"(?<![\w.-])(?<!-[hH][ ])(?<!host[ =])"
    rf"(?:{_NAMES}|(?:{'|'.join(sorted(_CLIENTS))})(?:[\s\"',]{{1,5}}registry)?[\s\"',]{{1,5}}login)"
    r"""(?=[\s"',\\])"""
)
_COMMAND: Final = re.compile(
    rf"(?P<program>{_PROGRAM})(?P<rest>(?:(?!&&|{_PROGRAM})[^;|\n]){{0,{_LONGEST_COMMAND}}})"
)
_BEFORE_SSHPASS: Final = re.compile(r"""[\s"',\\]*(?:-[evhV]+[\s"',\\]+)*""")
"""What may stand between sshpass and its password. What follows a program is for that."""


def _values(option: str) -> re.Pattern[str]:
    """Return the regular expression of *option* with its value, which is the last group."""
    return re.compile(
        rf"""(?<=[\s"',\[]){option}
        (?:\\*["']\s?,\s?(?=\\*["'])|[ =]{{1,3}})?
        (?:(?P<mark>\\*["'])(?!{_NOT})(?P<quoted>(?:(?!(?P=mark))[^\n]){{1,500}})
        |(?![-"'\\=]|{_NOT}|{ORDINARY})(?P<bare>(?:[^\s"';&|<>()`\\]|\\(?!["'\\]))+))""",
        re.VERBOSE,
    )


_VALUES: Final = {option: _values(option) for option in _OPTIONS}


def _is_value(text: str) -> bool:
    return text != "" and not text.startswith("-") and _IS_NOT.match(text) is None


def passwords_of_arguments(arguments: Sequence[object], command: object = None) -> Iterator[str]:
    """Yield the password at the end of each of *arguments*, an empty text for one without.

    *command* has the arguments before them, if it is a list.
    """
    first = command if isinstance(command, list) else []
    before, option, program = "", "", ""
    for number, argument in enumerate([*first, *arguments]):
        word, found = argument if isinstance(argument, str) else "", ""
        name = word.rpartition("/")[2]
        if option and before == option and _is_value(word):
            found = word
        elif option and word.startswith(option):
            found = word[len(option) :]
            found = found if _is_value(found) else ""
        elif (name in _OPTION_OF or name in _CLIENTS) and before not in _BEFORE_HOSTS:
            program, option = name, _OPTION_OF.get(name, "")
        elif program in _CLIENTS and word == "login":
            option = "-p"
        elif program == "sshpass" and _WITHOUT_VALUE.match(word) is None:
            # From here on it is the program that sshpass runs.
            program = option = ""
        if number >= len(first):
            yield found
        before = word


def password_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each password in the command lines of *text*, in order."""
    for command in _COMMAND.finditer(text):
        begin, end = command.span("rest")
        program = command["program"]
        for found in _VALUES[_OPTION_OF.get(program, "-p")].finditer(text, begin, end):
            if program == "sshpass" and not _BEFORE_SSHPASS.fullmatch(text, begin, found.start()):
                break
            yield found.span(found.lastgroup or 0)
