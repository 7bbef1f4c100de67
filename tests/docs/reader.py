"""A reader of the documentation, who does in a folder of their own what a page says, from top to bottom.

- A block whose first line is a comment with the name of a file is written to that file.
- A block ``sh`` is run by bash, as it stands. Functions, variables and the folder stay for the next ones.
- A block ``text`` or ``json`` behind it is what its commands print. ``…`` stands for any text, a line of it
  for any lines; a time, a UUID and a digest stand for another one.
- A program that goes on, such as a worker, prints at least these lines.
- A command may fail, with the exit status 1, if a comment behind it or the output after it says so.
- ``serve`` gets ports of its own, which the following commands use.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.docs.pages import MARKDOWN, ROOT
from tests.kit import PATIENCE_S, Process, call_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping
    from types import TracebackType
    from typing import Self

PROGRAM: Final = "admission-gateway"

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```\s*?$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"^# ([\w./-]+\.\w+)$", re.MULTILINE)
_PLAIN: Final = re.compile(r"[\w./:=,@-]+|'[^']*'|\"[^\"$`]*\"")
_ENDLESS: Final = re.compile(
    rf"{PROGRAM} (serve|watchdog(?! --re))|port-forward| --(watch|continuous|listen)\b|^make run"
)
_FAILS: Final = re.compile(
    rf" # .*exit status 1|{PROGRAM} (?:audit|preview|review|check .*--cluster)|\| *grep |auth can-i"
)
"""Commands that may end with 1. For some it is a verdict; ``grep`` has found nothing."""
_ERROR: Final = re.compile(r"^(?:Traceback|bash: |Error from server|error: (?!.*:\d+:\d+: ))", re.MULTILINE)
"""On standard error, whatever the exit status: in a pipe it is that of the last command."""
_VARIABLES: Final = {
    "a time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"),
    "a UUID": re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"),
    "a digest": re.compile(r"\b[0-9a-f]{12,64}\b"),
    "a date": re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}(?: GMT)?"),
    "a Pod": re.compile(r"\b[a-z][a-z-]*-(?=[a-z]*\d)[0-9a-z]{8,10}-[0-9a-z]{5}\b"),
    "an address of a Pod": re.compile(r"\b10\.244\.\d+\.\d+\b"),
    "an age": re.compile(r"(?<=   )\d+[dhms](?:\d+[hms])?(?=\s|$)"),
}


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    content: str
    heading: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of *page* in order."""
    text, name = page.read_text(), page.relative_to(ROOT).as_posix()
    return [
        Block(
            name,
            text.count("\n", 0, found.start()) + 1,
            found[2],
            re.sub(f"^{found[1]}", "", found[3], flags=re.MULTILINE),
            "".join(re.findall(r"^## (.*)$", text[: found.start()], re.MULTILINE)[-1:]),
        )
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> list[str]:
    """Return the commands of *block*; one that bash reads over several lines is one."""
    found, lines = [], ""
    for line in block.content.splitlines(keepends=True):
        lines += line
        if len(lines) == len(block.content) or (not line.endswith("\\\n") and _is_complete(lines)):
            found.append(lines.rstrip("\n"))
            lines = ""
    return [one for one in found if one.strip()]


def _is_complete(script: str) -> bool:
    if not re.search(r"<<|\b(?:for|do|then)\b|[{'\"]", script):
        return True
    done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, check=False)
    return not done.stderr


def matches(shown: str, printed: str) -> bool:
    """Return whether *printed* is what a page shows as *shown*."""
    lines = [
        "(?:.*\n)*?" if line.strip() == "…" else f"{_line(line)}\n" for line in _fixed(shown).splitlines()
    ]
    return bool(re.fullmatch("".join(lines), f"{_fixed(printed)}\n"))


def _line(shown: str) -> str:
    return re.escape(shown).replace("…", ".*")


def _fixed(text: str) -> str:
    for name, variable in _VARIABLES.items():
        text = variable.sub(name, text)
    # Gaps of tables depend on what is in the columns.
    gap = re.compile(r"(?<=\S)(?: *\t *| {3,})")
    return "\n".join(gap.sub("   ", line.rstrip()) for line in text.strip("\n").splitlines())


def _in_one_form(shown: Block, *printed: str) -> Iterator[tuple[str, str]]:
    for text in printed:
        if shown.language == "json":
            yield _sorted(shown.content), _sorted(text)
        else:
            yield shown.content, text


def _sorted(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True, indent=1, ensure_ascii=False)
    except ValueError:
        return text


class Reader:
    """Somebody who follows pages in *folder*, with *environment* and the program of this checkout."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        leaves_out: Callable[[Block, str], object] = lambda *_: False,
    ) -> None:
        self.folder = self._begin = folder
        self.environment = {**os.environ, "HOME": str(folder), **(environment or {})}
        programs = [str(Path(sys.executable).parent), self.environment["PATH"]]
        self.environment["PATH"] = os.pathsep.join(programs)
        self.replaced: dict[str, str] = {}
        """What a placeholder of the pages, or a path outside of the folder, is here."""
        self.variables = ""
        self.within_s = PATIENCE_S
        """The bound of a command, in seconds."""
        self.running: list[Process] = []
        self.stack = ExitStack()
        """Servers of the scene, which end with the reader."""
        self._leaves_out = leaves_out
        self._serving: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self.running):
            process.stop()
        self.stack.close()

    def follow(self, page: list[Block], chosen: Container[Block]) -> None:
        """Do what *page* says; of its blocks of commands only those that are *chosen*."""
        for number, block in enumerate(page):
            if block.language == "sh" and block in chosen:
                following = page[number + 1] if number + 1 < len(page) else None
                shown = following if following and following.language in ("text", "json") else None
                self.run(block, shown)
            elif block.language in ("yaml", "python") and _FILE.match(block.content):
                self.write(block.content)

    def write(self, content: str) -> None:
        """Write the files that the comments of a block name."""
        heads = list(_FILE.finditer(content))
        for number, head in enumerate(heads):
            end = heads[number + 1].start() if number + 1 < len(heads) else len(content)
            file = self.folder / head[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            seen = len(self._serving.log) if self._serving else 0
            unfinished = file.with_name(f".{file.name}")
            unfinished.write_text(content[head.start() : end].removesuffix("---\n"))
            unfinished.rename(file)
            if self._serving and file.name == "gateway.yaml":
                self._serving.expect("configuration reloaded", after=seen)

    def run(self, block: Block, shown: Block | None = None) -> None:
        """Run the commands of *block*, and compare what they print with *shown*."""
        out, both, errors_first = "", "", ""
        for command in commands(block):
            if self._leaves_out(block, command):
                continue
            if _ENDLESS.search(command):
                started = self.start(command)
                if shown:
                    self._expect(started, shown)
                    return
                continue
            done = self.command(command)
            may_fail = shown is not None or _FAILS.search(command)
            assert done.returncode in ((0, 1) if may_fail else (0,)), (str(block), done)
            is_said = shown is not None or "exit status 1" in command
            assert is_said or not _ERROR.search(done.stderr), (str(block), done)
            out += done.stdout
            both += done.stdout + done.stderr
            errors_first += done.stderr + done.stdout
        if shown:
            printed = _in_one_form(shown, out, both, errors_first)
            assert any(matches(*pair) for pair in printed), f"{shown}\n{both}"

    def _expect(self, process: Process, shown: Block) -> None:
        """Wait until *process* has printed the lines of *shown*, with the addresses that they have here."""
        for line in self.here(shown.content).splitlines():
            process.expect(f"(?m)^{_line(line)}$")

    def command(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run one command, and return its result, whatever its exit status."""
        text = self.here(text)
        if self._serving and f"{PROGRAM} replay" in text:
            eventually(lambda: any(file.stat().st_size for file in (self.folder / "recordings").iterdir()))
        words = re.sub(r"(?:^|\s)#.*", "", text).replace("\\\n", " ")
        if words.startswith((f"{PROGRAM} ", f".venv/bin/{PROGRAM} ")) and not _PLAIN.sub("", words).strip():
            # In this process, which saves the start of an interpreter.
            return call_command(*shlex.split(words)[1:], environment=self.environment, folder=self.folder)
        return self._shell(text)

    def here(self, text: str) -> str:
        """Return *text* with what stands here for placeholders and paths of the pages."""
        for name, value in self.replaced.items():
            # Not a part of a word; and in a container the paths are those of the pages.
            if not (name.startswith("/") and "kubectl" in text):
                before = r"(?<![\w-])" if name[0].isalnum() else ""
                text = re.sub(rf"{before}{re.escape(name)}(?![\w-])", lambda _: value, text)  # noqa: B023
        return text

    def _shell(self, text: str) -> subprocess.CompletedProcess[str]:
        state = self._begin / ".shell"
        end = f"trap 'declare -f >{state}.functions; pwd >{state}.folder' EXIT"
        functions = f"[ ! -f {state}.functions ] || . {state}.functions"
        done = subprocess.run(
            ["bash", "-c", f"{end}\n{functions}\n{self.variables}\n{text}"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=self.within_s,
            check=False,
        )
        self.variables += "".join(f"{line}\n" for line in re.findall(r"^[A-Z]+=\S+$", text, re.MULTILINE))
        self.folder = Path(Path(f"{state}.folder").read_text().strip())
        return done

    def start(self, text: str, listen: str = "127.0.0.1:0", admin: str = "127.0.0.1:0") -> Process:
        """Run a command that does not end by itself, wait until it prints something, and return its process.

        A gateway listens on *listen* and *admin*.
        """
        text = self.here(re.sub(r"\s+# .*", "", text))
        if serves := re.search(rf"{PROGRAM} serve|^make run", text):
            text += f" --listen {listen} --admin-listen {admin}"
        process = Process("bash", "-c", f"exec {text} >&2", cwd=self.folder, environment=self.environment)
        self.running.append(process)
        process.expect("(?m)^.+$")
        if serves:
            self._serving = process
            port = process.expect(r"serving .*?127\.0\.0\.1:(\d+)")[1]
            self.replaced[":8443"] = f":{port}"
        return process


def pages_with_commands() -> Iterator[list[Block]]:
    """Yield the blocks of each page that has commands."""
    for page in MARKDOWN:
        found = blocks(page)
        if any(block.language == "sh" for block in found):
            yield found
