"""The languages of worker SDKs: folder, toolchain, and commands.

A table and its probes, shared by ``make test-workers``, these tests and ``loadtest.worker_cost``.
Commands are shell lines and run in the root of the repository.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PROBE_WITHIN_S: Final = 60.0
"""The timeout of ``--version``."""

_VERSION: Final = re.compile(r"(?<![\w.\[])(?:go|v)?(\d+(?:\.\d+)*)")
"""``go1.26.8``, ``v20.20.2``, ``javac 17``; not the ``[1m`` of a program that prints in bold."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A required program on PATH."""

    program: str
    least: tuple[int, ...]
    """The oldest supported version."""
    ask: str = "--version"
    """The argument that prints the version."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language, and its SDK."""

    name: str
    """Its name in commands and reports: ``go``."""
    title: str
    folder: str
    """Of the SDK, from the root of the repository."""
    run: tuple[str, ...]
    """The program of the sample policies, to be followed by ``--listen`` and other options. It is the worker
    itself and no program that starts it, so that signals reach it and its CPU can be measured."""
    product: str = ""
    """The file that the build makes and ``run`` needs; empty without a build."""
    tools: tuple[Tool, ...] = ()
    build: str = ""
    test: str = ""
    lands: bool = True
    """Whether a landing builds and tests it if the change touches it."""


PYTHON: Final = Language(
    "python", "Python", "workers/python", run=(sys.executable, "-m", "admission_gateway_worker.samples")
)
"""The reference; ``make test`` runs its tests."""

BUILT: Final = (
    Language(
        "go",
        "Go",
        "workers/go",
        run=("workers/go/target/samples",),
        product="workers/go/target/samples",
        tools=(Tool("go", (1, 26), ask="version"),),
        build="cd workers/go && go build -o target/samples ./cmd/samples",
        test="cd workers/go && go vet ./... && go test ./... && "
        "cd samples/tracing && go vet ./... && go test ./...",
    ),
    Language(
        "typescript",
        "TypeScript",
        "workers/typescript",
        run=("node", "workers/typescript/dist/samples/main.js"),
        product="workers/typescript/dist/samples/main.js",
        tools=(Tool("node", (20,)), Tool("npm", (9,))),
        build="cd workers/typescript && npm ci",
        test="cd workers/typescript && npm test",
    ),
    Language(
        "rust",
        "Rust",
        "workers/rust",
        run=("workers/rust/target/release/samples",),
        product="workers/rust/target/release/samples",
        # Its TLS library, ring, has parts in C.
        tools=(Tool("cargo", (1, 88)), Tool("cc", (1,))),
        build="cd workers/rust && cargo build --release --bin samples",
        test="cd workers/rust && cargo test --release",
    ),
    Language(
        "java",
        "Java",
        "workers/java",
        run=("java", "-jar", "workers/java/samples/target/admission-gateway-samples.jar"),
        product="workers/java/samples/target/admission-gateway-samples.jar",
        tools=(Tool("java", (17,)), Tool("javac", (17,)), Tool("mvn", (3, 8))),
        build="mvn -q -B -f workers/java/pom.xml package -DskipTests",
        test="mvn -q -B -f workers/java/pom.xml verify",
    ),
)
"""Languages whose toolchain may be missing, in the order of reports."""

PROGRAM_TESTS: Final = (
    f"{sys.executable} -m pytest tests/kubewarden/test_program.py tests/conformance/test_programs.py "
    "tests/docs/test_engine_programs.py"
)
"""Starts the tests that run the programs."""

PROGRAMS: Final = (
    Language(
        "gatekeeper",
        "Gatekeeper",
        "workers/gatekeeper",
        run=("workers/gatekeeper/target/gatekeeper",),
        product="workers/gatekeeper/target/gatekeeper",
        tools=(Tool("go", (1, 26), ask="version"),),
        build="cd workers/gatekeeper && go build -o target/gatekeeper .",
        test="(cd workers/engines && go vet ./... && go test ./... && "
        f"cd ../gatekeeper && go vet ./... && go test ./...) && {PROGRAM_TESTS} -k gatekeeper",
    ),
    Language(
        "kyverno",
        "Kyverno",
        "workers/kyverno",
        run=("workers/kyverno/target/kyverno",),
        product="workers/kyverno/target/kyverno",
        tools=(Tool("go", (1, 26), ask="version"),),
        # The engine takes some eight minutes to build for the first time.
        lands=False,
        # The symbols and debug data would be a quarter of the program.
        build="cd workers/kyverno && go build -ldflags='-s -w' -o target/kyverno .",
        test=f"(cd workers/kyverno && go vet ./... && go test ./...) && {PROGRAM_TESTS} -k kyverno",
    ),
    Language(
        "kubewarden",
        "Kubewarden",
        "workers/wasm",
        run=("workers/wasm/target/release/admission-gateway-wasm",),
        product="workers/wasm/target/release/admission-gateway-wasm",
        # wasmtime takes some four minutes to build for the first time.
        tools=(Tool("cargo", (1, 95)), Tool("cc", (1,))),
        build="cd workers/wasm && cargo build --release",
        test=f"(cd workers/wasm && cargo test --release) && {PROGRAM_TESTS} -k kubewarden",
    ),
)
"""Worker programs of other engines. Without sample policies, they are not part of tests of all languages."""

LANGUAGES: Final = (PYTHON, *BUILT)
NAMES: Final = tuple(language.name for language in LANGUAGES)


def named(name: str) -> Language:
    """Return the language or program called *name*, one of ``NAMES`` or the name of a program."""
    return next(language for language in (*LANGUAGES, *PROGRAMS) if language.name == name)


def missing(language: Language) -> str:
    """Return the missing tools of *language*, such as ``mvn is not installed``; empty if nothing is."""
    return "; ".join(filter(None, (lacking(tool, language.folder) for tool in language.tools)))


def unready(language: Language) -> str:
    """Return why the samples of *language* cannot be started now; empty if they can."""
    lacks = missing(language)
    if lacks or not language.product or (ROOT / language.product).is_file():
        return lacks
    return "not built; make test-workers builds it"


@functools.cache
def lacking(tool: Tool, folder: str) -> str:
    """Return the problem of *tool* in *folder*, where a file may choose its version; empty if there is none.

    The answer is kept: nothing is installed meanwhile.
    """
    if shutil.which(tool.program) is None:
        return f"{tool.program} is not installed"
    where = ROOT / folder
    try:
        output = subprocess.run(
            [tool.program, tool.ask],
            cwd=where if where.is_dir() else ROOT,
            capture_output=True,
            text=True,
            timeout=PROBE_WITHIN_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{tool.program} does not run: {error}"
    found = _VERSION.search(output)
    if found is None:
        return f"{tool.program} {tool.ask} names no version"
    if tuple(map(int, found[1].split("."))) < tool.least:
        return f"{tool.program} is {found[1]}, older than {'.'.join(map(str, tool.least))}"
    return ""
