"""Projects outside the repository that use the SDK of a language as it would be published."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import venv
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement

from deploy import artifacts
from deploy.pinned import OWN
from tests.kit import REVIEWS, ROOT, Process, run_command
from tests.languages.kit import SOME_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from tests.languages.toolchains import Language

STEP_WITHIN_S: Final = 1800.0
"""The timeout of a command, which may compile all dependencies."""

CARGO_TARGET: Final = artifacts.WORKERS / "rust" / "target" / "projects"
"""What cargo compiles for projects; kept, because the dependencies take a minute."""

EXAMPLE: Final = "127.0.0.1:50051"
"""The address of the READMEs."""

_BLOCK: Final = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH: Final = re.compile(r"(?:// |<!-- |# )(?P<adds>at the end of )?(?P<path>[\w./-]+\.\w+)(?: -->)?\n")


@dataclass(slots=True)
class Published:
    """The artifact of a language, and what its users' commands need to find it."""

    environment: dict[str, str] = field(default_factory=dict)
    instead: dict[str, str] = field(default_factory=dict)
    """Commands that would ask a registry, and what is run instead."""
    links: dict[str, Path] = field(default_factory=dict)
    """Folders of a project that are links to others."""

    def command(self, text: str) -> str:
        """Return the shell lines *text* with the local artifact instead of a registry's."""
        for published, local in self.instead.items():
            text = text.replace(published, local)
        return text


def publish(language: Language, folder: Path) -> Published:
    """Build the artifact of *language* into *folder*, for projects below it."""
    return from_files(language, artifacts.build(language.name, folder / "artifacts"), folder)


def from_files(language: Language, built: Path, folder: Path) -> Published:
    """Return what projects below *folder* need to use the artifact of *language* in *built*."""
    match language.name:
        case "python":
            environment = python_environment(
                folder / "environment", "admission-gateway-worker", "pytest", "setuptools"
            )
            path = f"{environment / 'bin'}:{os.environ['PATH']}"
            # A copy of the SDK is built by the setuptools of the environment. To pip, "0" means that.
            own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(built), "PIP_NO_BUILD_ISOLATION": "0"}
            return Published({"PATH": path, **own})
        case "go":
            forget_go_module()
            proxies = f"{built.as_uri()},{_output('go', 'env', 'GOPROXY')}"
            # The checksum database has no unpublished module. A writable module cache can be cleaned.
            flags = f"{_output('go', 'env', 'GOFLAGS')} -modcacherw".strip()
            environment_of_go = {
                "GOPROXY": proxies,
                "GONOSUMDB": artifacts.GO_MODULE,
                "GOFLAGS": flags,
                # Without the list of the version's files that Go keeps: that of another test may have others.
                "GODEBUG": "goindex=0",
            }
            return Published(environment_of_go)
        case "typescript":
            (package,) = built.glob("*.tgz")
            instead = {
                "npm install admission-gateway-worker\n": f"npm install {package}\n",
                "npm install\n": f"npm install {package}\n",
            }
            return Published({"npm_config_prefer_offline": "true", "npm_config_fund": "false"}, instead)
        case "rust":
            (crate,) = built.glob("*.crate")
            with tarfile.open(crate) as archive:
                archive.extractall(built, filter="data")
            source = crate.with_suffix("")
            instead = {"cargo add admission-gateway-worker\n": f"cargo add --path {source}\n"}
            (folder / ".cargo").mkdir()
            patch = f"[patch.crates-io]\nadmission-gateway-worker = {{ path = '{source}' }}\n"
            (folder / ".cargo" / "config.toml").write_text(patch)
            return Published({"CARGO_TARGET_DIR": str(CARGO_TARGET)}, instead, {"target": CARGO_TARGET})
        case _:
            repository = maven_repository(folder / "repository")
            shutil.copytree(built / "io" / "admission-gateway", repository / "io" / "admission-gateway")
            return Published({"MAVEN_OPTS": f"-Dmaven.repo.local={repository}"})


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def python_environment(folder: Path, *wanted: str) -> Path:
    """Return a virtual environment with pip and what the distributions *wanted* need, except this project's.

    The files are copied from this environment instead of a registry.
    """
    venv.create(folder, with_pip=True)
    (target,) = folder.glob("lib/python*/site-packages")
    ours, waiting, copied = set(OWN), list(wanted), set[str]()
    while waiting:
        name = waiting.pop()
        distribution = importlib.metadata.distribution(name)
        needed = map(Requirement, distribution.requires or ())
        waiting += [one.name for one in needed if one.name not in copied and _is_needed(one)]
        copied.add(name)
        for file in distribution.files or () if name not in ours else ():
            # Programs are outside, and begin with the path of this environment.
            if ".." not in file.parts and file.suffix != ".pyc":
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), target / file)
    return folder


def _is_needed(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def forget_go_module() -> None:
    """Remove the module from Go's module cache: that of another test has the same version."""
    cache = Path(_output("go", "env", "GOMODCACHE"))
    host = artifacts.GO_MODULE.partition("/")[0]
    for path in (cache / host, cache / "cache" / "download" / host):
        shutil.rmtree(path, ignore_errors=True)


def maven_repository(folder: Path) -> Path:
    """Return a local repository with links to what the user's own has of others."""
    users = Path.home() / ".m2" / "repository"
    (folder / "io").mkdir(parents=True)
    for path in (*users.glob("*"), *users.glob("io/*")):
        if path.name not in ("io", "admission-gateway"):
            (folder / path.relative_to(users)).symlink_to(path)
    return folder


class Shell:
    """Runs shell lines one after another, as in a terminal: a ``cd`` has an effect on later ones."""

    def __init__(self, folder: Path, published: Published) -> None:
        self.folder = folder
        self._published = published

    def run(self, lines: str) -> None:
        """Run *lines*, each of which has to succeed."""
        after = self.folder / ".cwd"
        done = subprocess.run(
            ["sh", "-ec", f"{self._published.command(lines)}\npwd > '{after}'"],
            cwd=self.folder,
            env={**os.environ, **self._published.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=STEP_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout}"
        self.folder = Path(after.read_text().strip())
        after.unlink()

    def start(self, line: str) -> Started:
        """Start a shell line that runs until it is stopped."""
        return Started(self.folder, self._published.environment, line)


class Started(Process):
    """A shell line that runs until it is stopped, with the processes that it has started."""

    def __init__(self, folder: Path, environment: dict[str, str], line: str) -> None:
        variables = (f"{name}={value}" for name, value in environment.items())
        super().__init__("env", *variables, "sh", "-c", line, cwd=folder)

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGTERM)
        super().stop()


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a README: shell lines, a file, or another text."""

    kind: str
    text: str
    path: str
    adds: bool
    """Whether the text is the end of a file that exists."""


def blocks(readme: str) -> Iterator[Block]:
    """Yield the fenced blocks of *readme*. Blocks of files begin with a comment that has the path."""
    for found in _BLOCK.finditer(readme):
        text = found["text"]
        path = _PATH.match(text)
        yield Block(
            found["kind"],
            text[path.end() :] if path else text,
            path["path"] if path else "",
            adds=bool(path and path["adds"]),
        )


def become_a_worker(folder: Path, processes: ExitStack, language: Language, published: Published) -> None:
    """Follow the README of *language* in an empty project below *folder*, and have the worker deny a Pod."""
    empty = folder / "empty"
    empty.mkdir()
    shell = Shell(empty, published)
    target = configuration = ""
    for block in blocks((ROOT / language.folder / "README.md").read_text()):
        if block.path:
            file = shell.folder / block.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{file.read_text()}\n{block.text}" if block.adds else block.text)
        elif block.kind == "yaml":
            configuration = block.text.replace(EXAMPLE, target)
        elif block.kind == "sh":
            *steps, last = block.text.splitlines()
            if "--listen" in last:
                shell.run("\n".join(steps))
                worker = shell.start(last.replace(EXAMPLE, SOME_PORT))
                processes.callback(worker.stop)
                target = worker.expect(r"worker: serving 2 policies on (\S+)\n")[1]
            else:
                shell.run(block.text)
    assert target in configuration
    (folder / "gateway.yaml").write_text(configuration)
    review = (REVIEWS / "pod-create-validate.json", "--config", folder / "gateway.yaml")
    answer = json.loads(run_command("review", "--phase", "validate", *review).stdout)
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["message"].endswith("every workload names its team: add the label")
