"""A whole release, published to registries on this machine by someone who has the credentials for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy import release
from deploy.pinned import LISTS, roots_of, select
from tests.e2e.binaries import chart_tool, release_tool
from tests.images.builder import Store, missing
from tests.kit import PATIENCE_S, ROOT, Process
from tests.languages.toolchains import missing as missing_tools
from tests.languages.toolchains import named
from tests.release.registries import TOKEN, Registries

if TYPE_CHECKING:
    from collections.abc import Mapping

WITHIN_S: Final = 3000.0
"""The timeout of a command, which may build all images."""
TWINE: Final = ROOT / "tests" / "release" / "twine.txt"
PASSWORD: Final = "password-of-the-throwaway-key"


def run(*command: object, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """Run *command* with *environment* added to its own; return its output, errors included.

    Raises:
        AssertionError: it failed; the text has the output.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-6000:]}"
    return done.stdout


def wheels(folder: Path) -> Path:
    """Download what the distributions need into *folder*, in the versions of constraints.txt."""
    names = [*(name for wanted in LISTS for name in roots_of(wanted)), "grpcio"]
    requirements = folder.with_suffix(".txt")
    requirements.write_text(select((ROOT / "constraints.txt").read_text(), names))
    options = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
    run(sys.executable, "-m", "pip", "download", *options, "--dest", folder, "-r", requirements)
    return folder


def build(folder: Path, *places: str) -> list[str]:
    """Build a release into *folder*, its images without a registry; return the parts that it has.

    *places* are the options for the destinations that the release itself names.
    """
    parts = [part for part, tool in release.TOOLS.items() if shutil.which(tool)]
    options: list[str] = []
    environment: dict[str, str] = {}
    if not missing() and not missing_tools(named("gatekeeper")):
        (scratch := folder.with_name("store")).mkdir()
        store = Store(scratch)
        store.go_base()
        environment["CONTAINERS_STORAGE_CONF"] = str(store.settings())
        options = [f"--image-option={option}" for option in (*store.offline(), *store.offline_go())]
        parts.append(release.IMAGES)
    command = (
        sys.executable,
        "-m",
        "deploy.release",
        "--allow-changes",
        *options,
        *places,
        folder,
        "python",
        *parts,
    )
    run(*command, environment=environment)
    return ["python", *parts]


@dataclass
class Publisher:
    """Runs ``python -m deploy.publish`` for a release, with a home and programs of its own."""

    release: Path
    registries: Registries
    oci: str
    """Host and path of the OCI registry."""
    home: Path
    parts: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Put the credentials where each tool has them, make a key, and find the programs."""
        host = self.registries.url.removeprefix("http:")
        (self.home / ".npmrc").write_text(f"{host}/npm/:_authToken={TOKEN}\n")
        login = f"machine 127.0.0.1 login me password {TOKEN}\n"
        (self.home / ".netrc").write_text(login)
        (self.home / "artifacthub-repo.yml").write_text(
            "repositoryID: 00000000-0000-0000-0000-000000000000\n"
        )
        (self.home / ".m2").mkdir()
        server = f"<id>release</id><username>me</username><password>{TOKEN}</password>"
        settings = f"<settings><servers><server>{server}</server></servers></settings>"
        (self.home / ".m2" / "settings.xml").write_text(settings)
        run(sys.executable, "-m", "venv", self.home / "twine")
        options = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
        run(self.home / "twine/bin/pip", "install", *options, "-r", TWINE)
        programs = [release_tool("cosign").parent, release_tool("crane").parent, chart_tool("helm").parent]
        path = [self.home / "twine/bin", *programs, os.environ["PATH"]]
        users = Path.home()
        self.environment = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join(map(str, path)),
            "CARGO_HOME": os.environ.get("CARGO_HOME", f"{users}/.cargo"),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", f"{users}/.rustup"),
            "CARGO_REGISTRIES_RELEASE_TOKEN": TOKEN,
            "TWINE_USERNAME": "__token__",
            "TWINE_PASSWORD": TOKEN,
            # Java knows the home of the user from the system.
            "MAVEN_OPTS": f"-Duser.home={self.home} -Dmaven.repo.local={users}/.m2/repository",
            "COSIGN_PASSWORD": PASSWORD,
            # cosign asks nobody for the keys of public services.
            "TUF_MIRROR": self.registries.url,
        }
        if shutil.which("gpg"):
            (gnupg := self.home / "gnupg").mkdir(mode=0o700)
            self.environment["GNUPGHOME"] = str(gnupg)
            of = ("throwaway@release.example", "default", "default", "never")
            self.run("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", *of)
        self.run("cosign", "generate-key-pair")
        self.run("cosign", "signing-config", "create", "--out", "no-log.json")

    def close(self) -> None:
        """End the agent that GnuPG has started."""
        if "GNUPGHOME" in self.environment:
            self.run("gpgconf", "--kill", "gpg-agent")

    def run(self, *command: object) -> str:
        """Run *command* in the home of the publisher; return its output."""
        return run(*command, cwd=self.home, environment=self.environment)

    def publish(self, *options: str) -> list[str]:
        """Publish everything that was built; return the lines about the parts, without what comes before."""
        destinations = {
            "npm": (self.registries.npm, "typescript"),
            "crates": (self.registries.crates, "rust"),
            "maven": (self.registries.maven, "java"),
            "pypi": (self.registries.pypi, "python"),
            "files": (self.registries.downloads, "python"),
        }
        arguments = [f"--{name}={url}" for name, (url, part) in destinations.items() if part in self.parts]
        arguments.append(f"--artifacthub={self.home}/artifacthub-repo.yml")
        keys = (f"--key={self.home}/cosign.key", f"--signing-config={self.home}/no-log.json")
        if "GNUPGHOME" in self.environment:
            arguments.append("--gpg")
        command = (sys.executable, "-m", "deploy.publish", self.release, "--allow-changes", *keys, *options)
        output = run(*command, *arguments, f"--registry={self.oci}", environment=self.environment)
        assert TOKEN not in output
        assert PASSWORD not in output
        return [line for line in output.splitlines() if line.startswith("publish: ")]


def start_oci_registry() -> tuple[Process, str]:
    """Start an OCI registry; return it and its host with the port."""
    process = Process(str(release_tool("registry")), "-port", "0")
    return process, "localhost:" + process.expect(r"serving on port (\d+)")[1]


def npm_upstream() -> str:
    """Return the registry that npm of this machine asks for packages of others."""
    command = ("npm", "config", "get", "registry")
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout.strip()
