"""The languages of new projects, and what their templates have to say about each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Language:
    """One language. In its texts ``NAME`` is the name of the project."""

    name: str
    title: str
    needs: str
    policy: str
    """The file with the policy."""
    command: tuple[str, ...]
    """Starts the worker in the folder of the project."""
    build: tuple[str, ...]
    """Shell lines that build the worker and run its tests."""
    ignored: tuple[str, ...]
    """Folders of build products."""
    unlink: str
    """How a project with a copy of the SDK changes to a released one, such as the gateway's ``VERSION``."""
    sdk: tuple[str, ...]
    """What a project needs of the SDK: patterns below its folder in the repository."""
    prepare: str = ""
    """A shell line before ``build`` that makes the copy of the SDK usable."""
    reserved: str = "(?!)"
    """Matches the names that the tools of the language refuse."""

    @property
    def sdk_folder(self) -> str:
        """The folder of the SDK in the repository, and below ``sdk/`` of a project."""
        return f"workers/{self.name}"

    def lines(self, name: str, *, has_sdk: bool) -> list[str]:
        """Return the shell lines that build and test the project *name*, which may have a copy of the SDK."""
        prepared = [self.prepare] if has_sdk and self.prepare else []
        return [*prepared, *(line.replace("NAME", name) for line in self.build)]

    def refuses(self, name: str) -> bool:
        """Return whether the tools of the language refuse *name*."""
        return re.fullmatch(self.reserved, name) is not None


LANGUAGES: Final = {
    language.name: language
    for language in (
        Language(
            "python",
            "Python",
            needs="Python 3.11 or newer, in a virtual environment",
            policy="policies.py",
            command=("python", "policies.py"),
            build=("pip install -r requirements.txt pytest", "python -m pytest"),
            ignored=(".venv", "__pycache__", ".pytest_cache", "build", "*.egg-info"),
            unlink="write `admission-gateway-worker==VERSION` into `requirements.txt`",
            sdk=("*.toml", "*.md", "LICENSE", "admission_gateway_worker/**/*"),
        ),
        Language(
            "go",
            "Go",
            needs="Go 1.26 or newer",
            policy="main.go",
            command=("bin/NAME",),
            build=("go mod tidy", "go test ./...", "go build -o bin/NAME ."),
            ignored=("bin",),
            unlink="delete the `replace` line of `go.mod` and run `go mod tidy`",
            sdk=("go.mod", "go.sum", "*.go", "internal/**/*.go"),
        ),
        Language(
            "typescript",
            "TypeScript",
            needs="Node.js 20 or newer",
            policy="src/policies.ts",
            command=("node", "dist/main.js"),
            build=("npm install", "npm test"),
            ignored=("node_modules", "dist"),
            unlink="run `npm install admission-gateway-worker`",
            sdk=("*.json", "*.md", "src/*.ts"),
            prepare="npm ci --prefix sdk/workers/typescript",
        ),
        Language(
            "rust",
            "Rust",
            needs="Rust 1.88 or newer, with a C compiler",
            policy="src/main.rs",
            command=("target/release/NAME",),
            build=("cargo test --release", "cargo build --release"),
            ignored=("target",),
            unlink='write `admission-gateway-worker = "VERSION"` into `Cargo.toml`',
            sdk=("Cargo.toml", "*.rs", "*.proto", "*.md", "LICENSE", "src/**/*", "samples/*"),
            reserved="build|deps|examples|incremental",
        ),
        Language(
            "java",
            "Java",
            needs="JDK 17 or newer and Maven 3.8 or newer",
            policy="src/main/java/Policies.java",
            command=("java", "-jar", "target/NAME.jar"),
            build=("mvn -q package",),
            ignored=("target",),
            unlink="delete `io/admission-gateway` in the local repository of Maven",
            sdk=("pom.xml", "*/pom.xml", "worker/src/main/**/*"),
            prepare="mvn -q -f sdk/workers/java -pl worker -am install -DskipTests",
        ),
    )
}

ALIASES: Final = {
    "golang": "go",
    **dict.fromkeys(("js", "javascript", "node", "nodejs", "ts"), "typescript"),
    "kotlin": "java",
    "py": "python",
    "rs": "rust",
}
"""Other words for a language, for a hint."""
