"""The registries that a release goes to: what is there already, and the command that adds a file.

Each is asked and written by its own tool, which finds the credentials where it always does: ``crane`` and
``helm`` (OCI), ``twine`` (Python), ``npm``, ``cargo``, ``mvn``, ``curl`` (files), and ``cosign``
(signatures). Files, and the indexes of Python, Rust and Java, are read over HTTP.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urldefrag, urljoin, urlsplit

from deploy.artifacts import WORKERS
from deploy.sbom import normalised
from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

ASK_WITHIN_S: Final = 60.0
"""The timeout of each step of a question to an index."""
READ_WITHIN_S: Final = 600.0
"""The time for a whole answer."""
MAX_BYTES: Final = 256 * 1024**2
"""The largest answer: ten times the largest file of a release that is read over HTTP."""
MAVEN_DEPLOY: Final = "org.apache.maven.plugins:maven-deploy-plugin:3.1.4:deploy-file"
MAVEN_SIGN_AND_DEPLOY: Final = "org.apache.maven.plugins:maven-gpg-plugin:3.2.8:sign-and-deploy-file"
"""The versions of both are those of ``workers/java/pom.xml``."""
_SECRET: Final = re.compile("TOKEN|PASSWORD|PASSPHRASE|SECRET")
_OWNERS: Final = {
    "CARGO_": "cargo",
    "COSIGN_": "cosign",
    "MAVEN_": "mvn",
    "NODE_AUTH_": "npm",
    "NPM_": "npm",
    "TWINE_": "twine",
}
"""The beginnings of the names of variables, and the tools that they are for."""
CREDENTIALS: Final = "release"
"""Under this name cargo and Maven find the credentials."""
BUNDLE: Final = ".sigstore.json"
"""The end of the name of a file's signature."""


class Refused(Exception):
    """A registry or a tool did not do what was asked; the text says what and why."""


class Part(Protocol):
    """Something that is published as a whole."""

    @property
    def name(self) -> str:
        """What is published, and where."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The programs that it needs."""

    def there(self) -> str:
        """Return ``""`` if the version is not there, ``same`` or ``other`` by the content that is there.

        Raises:
            Refused: the registry does not say.
        """

    def push(self) -> None:
        """Publish it.

        Raises:
            Refused: the tool failed.
        """


@dataclass(frozen=True)
class PythonFile:
    """A wheel or source distribution. Source: PyPA specifications, "Simple repository API", HTML."""

    file: Path
    index: str
    upload: str
    tools: tuple[str, ...] = ("twine",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.file.name} -> {self.upload}"

    def there(self) -> str:
        """See ``Part``."""
        project = normalised(self.file.name.removesuffix(".tar.gz").split("-", maxsplit=1)[0])
        page = f"{self.index.rstrip('/')}/{project}/"
        for link in _links(fetch(page)):
            url, fragment = urldefrag(urljoin(page, link))
            if urlsplit(url).path.rpartition("/")[2] == self.file.name:
                found = (
                    fragment.removeprefix("sha256=")
                    if fragment.startswith("sha256=")
                    else _sha256(fetch(url))
                )
                return _compared(found, _sha256(self.file.read_bytes()))
        return ""

    def push(self) -> None:
        """See ``Part``."""
        options = ("--non-interactive", "--disable-progress-bar", "--repository-url", self.upload)
        run("twine", "upload", *options, str(self.file))


@dataclass(frozen=True)
class NpmPackage:
    """A package of npm. Source: npm CLI documentation, ``npm publish``."""

    file: Path
    registry: str
    tools: tuple[str, ...] = ("npm",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.file.name} -> {self.registry}"

    def there(self) -> str:
        """See ``Part``."""
        asked = f"{self.file.name.removesuffix(f'-{__version__}.tgz')}@{__version__}"
        options = ("--json", "--prefer-online", "--registry", self.registry)
        try:
            answer = run("npm", "view", asked, "dist.integrity", *options)
        except Refused as error:
            if '"E404"' in str(error) or "code E404" in str(error):
                return ""
            raise
        own = base64.b64encode(hashlib.sha512(self.file.read_bytes()).digest()).decode()
        return _compared(json.loads(answer or '""'), f"sha512-{own}")

    def push(self) -> None:
        """See ``Part``."""
        tag = "next" if "-" in __version__ else "latest"
        options = ("--registry", self.registry, "--tag", tag, "--loglevel", "error")
        run("npm", "publish", str(self.file), *options)


@dataclass(frozen=True)
class Crate:
    """A crate. cargo publishes sources and no file: they have to give the file of the release.

    Source: The Cargo Book, "Registry Index", "Registry Authentication".
    """

    file: Path
    index: str
    tools: tuple[str, ...] = ("cargo",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.file.name} -> {self.index}"

    def there(self) -> str:
        """See ``Part``."""
        crate = self.file.name.removesuffix(f"-{__version__}.crate")
        url = f"{self.index.removeprefix('sparse+').rstrip('/')}/{crate[:2]}/{crate[2:4]}/{crate}"
        for entry in map(json.loads, fetch(url).splitlines()):
            if entry["vers"] == __version__:
                return _compared(entry["cksum"], _sha256(self.file.read_bytes()))
        return ""

    def push(self) -> None:
        """See ``Part``."""
        own, variable = WORKERS / "rust", f"CARGO_REGISTRIES_{CREDENTIALS.upper()}_INDEX"
        with tempfile.TemporaryDirectory() as target:
            options = ("--quiet", "--allow-dirty", "--no-verify", "--target-dir", target)
            run("cargo", "package", *options, cwd=own)
            if Path(target, "package", self.file.name).read_bytes() != self.file.read_bytes():
                raise Refused(
                    f"{self.file.name}: cargo packs something else from workers/rust than `make release` did."
                    " Run `make release` again with this cargo, then `make publish`"
                )
            run("cargo", "publish", *options, "--registry", CREDENTIALS, cwd=own, **{variable: self.index})


@dataclass(frozen=True)
class MavenLibrary:
    """A library of Maven: the folder of its version in a repository of files."""

    folder: Path
    top: Path
    repository: str
    is_signed: bool = False
    """Whether GnuPG signs its files, with the default key."""

    @property
    def tools(self) -> tuple[str, ...]:
        """See ``Part``."""
        return ("mvn", "gpg") if self.is_signed else ("mvn",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.folder.parent.name}-{__version__}.jar -> {self.repository}"

    def _files(self) -> dict[str, Path]:
        """Return library, POM, sources and documentation by the names that Maven's goal has for them."""
        start = f"{self.folder.parent.name}-{__version__}"
        ends = {"file": ".jar", "pomFile": ".pom", "sources": "-sources.jar", "javadoc": "-javadoc.jar"}
        return {name: self.folder / f"{start}{end}" for name, end in ends.items()}

    def there(self) -> str:
        """See ``Part``."""
        found = ""
        for file in self._files().values():
            url = f"{self.repository.rstrip('/')}/{file.relative_to(self.top).as_posix()}"
            if content := fetch(url):
                found = _compared(_sha256(content), _sha256(file.read_bytes()))
            if found == "other" or not content:
                return found and "other"
        return found

    def push(self) -> None:
        """See ``Part``."""
        files = (f"-D{name}={file}" for name, file in self._files().items())
        where = (f"-Durl={self.repository}", f"-DrepositoryId={CREDENTIALS}")
        # Its repository is that of the library, and no project of this folder.
        with tempfile.TemporaryDirectory() as empty:
            goal = MAVEN_SIGN_AND_DEPLOY if self.is_signed else MAVEN_DEPLOY
            run("mvn", "-q", "-B", goal, *files, *where, cwd=Path(empty))


@dataclass(frozen=True)
class Download:
    """A file in a folder of a server that takes files by PUT. Source: RFC 9110, 9.3.4."""

    file: Path
    """There by the time that it is published: signatures are made before."""
    folder: str
    tools: tuple[str, ...] = ("curl",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.file.name} -> {self.folder}"

    def there(self) -> str:
        """See ``Part``."""
        own = self.file.read_bytes() if self.file.exists() else b""
        found = fetch(f"{self.folder}/{self.file.name}")
        return _compared(found and _sha256(found), _sha256(own))

    def push(self) -> None:
        """See ``Part``."""
        options = ("--fail-with-body", "--silent", "--show-error", "--netrc-optional")
        status = ("--write-out", "\n%{http_code}")
        where = f"{self.folder}/{self.file.name}"
        said = run("curl", *options, *status, "--upload-file", str(self.file), where)
        # curl does not follow a redirect, and does not fail either.
        if (code := said.rpartition("\n")[2])[:1] != "2":
            raise Refused(f"{self.folder} answers {code} to {self.file.name}, which is not there now")


@dataclass(frozen=True)
class OciImage:
    """An image in an OCI archive. Source: OCI Image Layout Specification."""

    file: Path
    registry: str
    tools: tuple[str, ...] = ("crane",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.file.name} -> {self.reference}"

    @property
    def reference(self) -> str:
        """The image with its tag."""
        return f"{self.registry}/{self.file.name.removesuffix(f'-{__version__}.oci.tar')}:{__version__}"

    def digest(self) -> str:
        """Return the digest under which registries have the image."""
        with tarfile.open(self.file) as archive:
            index = archive.extractfile("index.json")
            assert index
            (found,) = json.load(index)["manifests"]
        return str(found["digest"])

    def there(self) -> str:
        """See ``Part``."""
        return _compared(ask_crane("digest", self.reference).strip(), self.digest())

    def push(self) -> None:
        """See ``Part``."""
        with tempfile.TemporaryDirectory() as layout:
            with tarfile.open(self.file) as archive:
                archive.extractall(layout, filter="data")
            run("crane", "push", layout, self.reference)


@dataclass(frozen=True)
class HelmChart:
    """A chart in an OCI registry, below ``charts/``: the image of the gateway has the same name.

    Source: Helm documentation, "Use OCI-based registries".
    """

    file: Path
    registry: str
    tools: tuple[str, ...] = ("helm", "crane")

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.file.name} -> oci://{self.reference}"

    @property
    def reference(self) -> str:
        """The chart with its version."""
        return f"{self.registry}/charts/{self.file.name.removesuffix(f'-{__version__}.tgz')}:{__version__}"

    def digest(self) -> str:
        """Return the digest under which the registry has this chart; empty if it has none, or another one.

        It is computed from what the registry answers: a signature must not be for another chart.
        """
        manifest = ask_crane("manifest", self.reference)
        return digest_of(manifest.encode()) if self._state(manifest) == "same" else ""

    def there(self) -> str:
        """See ``Part``."""
        return self._state(ask_crane("manifest", self.reference))

    def _state(self, manifest: str) -> str:
        if not manifest:
            return ""
        return "same" if layers_of(manifest) == [digest_of(self.file.read_bytes())] else "other"

    def push(self) -> None:
        """See ``Part``."""
        host = self.registry.partition("/")[0].partition(":")[0]
        plain = ("--plain-http",) if host in ("127.0.0.1", "localhost") else ()
        run("helm", "push", *plain, str(self.file), f"oci://{self.registry}/charts")


@dataclass(frozen=True)
class Signer:
    """Signs with a key by cosign, which takes its password from COSIGN_PASSWORD."""

    key: str
    options: tuple[str, ...]
    """Further options of signing, such as ``--signing-config FILE``."""

    @cached_property
    def public_key(self) -> str:
        """The public key as PEM."""
        return run("cosign", "public-key", "--key", self.key)

    def has_signed(self, command: str, *what: str) -> bool:
        """Return whether cosign verifies *what* by *command*.

        Whether the log has the signature is a question for those who install.
        """
        with tempfile.TemporaryDirectory() as folder:
            key = Path(folder, "cosign.pub")
            key.write_text(self.public_key)
            return _succeeds("cosign", command, f"--key={key}", "--insecure-ignore-tlog=true", *what)


@dataclass(frozen=True)
class Signature:
    """The signature of an image or chart, beside it in the registry."""

    of: OciImage | HelmChart
    signer: Signer
    tools: tuple[str, ...] = ("cosign", "crane")

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"signature of {self.of.reference}"

    def there(self) -> str:
        """See ``Part``."""
        digest = self.of.digest()
        return "same" if digest and self.signer.has_signed("verify", self._by(digest)) else ""

    def push(self) -> None:
        """See ``Part``."""
        if not (digest := self.of.digest()):
            raise Refused(f"{self.of.reference} is not what was published, so it is not signed")
        options = ("--yes", "--key", self.signer.key, *self.signer.options)
        run("cosign", "sign", *options, self._by(digest))

    def _by(self, digest: str) -> str:
        return f"{self.of.reference.rpartition(':')[0]}@{digest}"


@dataclass(frozen=True)
class SignedFile:
    """The signature of a file, in a bundle beside it."""

    file: Path
    signer: Signer
    tools: tuple[str, ...] = ("cosign",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"signature of {self.file.name} -> {self.bundle.name}"

    @property
    def bundle(self) -> Path:
        """The file with the signature."""
        return self.file.with_name(f"{self.file.name}{BUNDLE}")

    def there(self) -> str:
        """See ``Part``."""
        what = (f"--bundle={self.bundle}", str(self.file))
        signed = self.bundle.exists() and self.signer.has_signed("verify-blob", *what)
        return "same" if signed else ""

    def push(self) -> None:
        """See ``Part``."""
        options = ("--yes", "--key", self.signer.key, *self.signer.options, "--bundle", str(self.bundle))
        run("cosign", "sign-blob", *options, str(self.file))


def fetch(url: str) -> bytes:
    """Return what *url* has, and ``b""`` if there is nothing.

    Raises:
        Refused: the server answers otherwise, or not at all.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise Refused(f"{url} is no URL of http or https")
    try:
        with urllib.request.urlopen(url, timeout=ASK_WITHIN_S) as answer:  # noqa: S310 - see above
            if urlsplit(url).scheme == "https" != urlsplit(answer.url).scheme:
                raise Refused(f"{url} leads to {answer.url}, which is not https")
            return _body(answer, url)
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (404, 410):
                return b""
        raise Refused(f"{url}: {error.code} {error.reason}, so what is there cannot be compared") from None
    except (OSError, http.client.HTTPException) as error:
        raise Refused(f"{url}: {error}") from None


def _body(answer: http.client.HTTPResponse, url: str) -> bytes:
    end, content = time.monotonic() + READ_WITHIN_S, bytearray()
    while chunk := answer.read1(64 * 1024):
        content += chunk
        if len(content) > MAX_BYTES:
            raise Refused(f"{url}: the answer has more than {MAX_BYTES // 1024**2} MiB")
        if time.monotonic() > end:
            raise Refused(f"{url}: the answer has not ended within {READ_WITHIN_S:g} s")
    if answer.length:
        raise Refused(f"{url}: the answer ends {answer.length} bytes too early")
    return bytes(content)


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """Run *command* and return its output, without what it writes to standard error.

    It has no input: a question would be in the output that nobody sees yet. It does not see the secrets that
    the environment has for the other tools.

    Raises:
        Refused: it is not installed, or failed.
    """
    if shutil.which(command[0]) is None:
        raise Refused(f"{command[0]} is not installed")
    done = subprocess.run(  # noqa: S603 - a tool that the caller names
        command,
        cwd=cwd,
        env={**_environment(command[0]), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        text = f"{done.stdout}{done.stderr}".strip()
        raise Refused(f"`{' '.join(command[:2])}` failed with status {done.returncode}:\n{text}")
    return done.stdout


def _environment(tool: str) -> dict[str, str]:
    others = tuple(prefix for prefix, owner in _OWNERS.items() if owner != tool)
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(others) or not _SECRET.search(name)
    }


def _succeeds(*command: str) -> bool:
    try:
        run(*command)
    except Refused:
        return False
    return True


def ask_crane(verb: str, reference: str) -> str:
    """Return what crane says about *reference*, and "" if the registry does not have it.

    Source: OCI Distribution Specification, error codes.
    """
    try:
        return run("crane", verb, reference)
    except Refused as error:
        if any(code in str(error) for code in ("MANIFEST_UNKNOWN", "NAME_UNKNOWN", "404 Not Found")):
            return ""
        raise


def layers_of(manifest: str) -> list[str]:
    """Return the digests of the layers of *manifest*, JSON. Source: OCI Image Manifest Specification."""
    return [layer["digest"] for layer in json.loads(manifest)["layers"]]


def digest_of(content: bytes) -> str:
    """Return the digest of *content* as registries write it: ``sha256:…``."""
    return f"sha256:{_sha256(content)}"


def _compared(found: str | bytes, own: str) -> str:
    if not found:
        return ""
    return "same" if found == own else "other"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _links(page: bytes) -> Iterator[str]:
    parser = _Links()
    parser.feed(page.decode())
    yield from parser.found
