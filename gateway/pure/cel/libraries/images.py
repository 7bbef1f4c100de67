"""References of images, as Kyverno's functions take them apart.

Source: github.com/kyverno/sdk extensions/cel/libs/image; github.com/google/go-containerregistry pkg/name; Go
net/url.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.libraries.addresses import parse_address
from gateway.pure.cel.meter import count_reading, count_text

_DOCKER: Final = "index.docker.io"
_REPOSITORY: Final = re.compile(r"[a-z0-9_./-]{2,255}")
_TAG: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_DIGEST: Final = re.compile(r"sha256:[a-f0-9]{64}")
_HOST: Final = re.compile(r"[A-Za-z0-9!$&'()*+,;=:\[\]<>\"_.~\x80-\U0010ffff-]*")
"""Characters that net/url takes in the host of a URL, apart from those with a percent sign."""
_PORT: Final = re.compile(r"(?::[0-9]*)?")


@dataclass(frozen=True, slots=True)
class Image:
    """A reference of an image."""

    cel_type: ClassVar[str] = "kyverno.image"
    registry: str
    repository: str
    tag: str
    """The tag that was written, or ``latest`` if there is no digest either."""
    digest: str
    text: str
    """As it was written: references that are written differently are not equal."""

    @property
    def identifier(self) -> str:
        """The tag, the digest, or both with an at sign between."""
        return "@".join(filter(None, (self.tag, self.digest)))

    @property
    def identifier_with_separator(self) -> str:
        """The digest with its at sign, or the tag with its colon."""
        return f"@{self.digest}" if self.digest else f":{self.tag}"


def parse_image(text: str) -> Image | None:
    """Return the reference *text*, or None if it is none."""
    count_reading(text, 10)
    image = _tagged(text)
    if image is not None:
        return image
    base, at, digest = text.partition("@")
    if not at or not _DIGEST.fullmatch(digest):
        return None
    tagged = _tagged(base)
    named = _named(base) if tagged is None else (tagged.registry, tagged.repository)
    if named is None:
        return None
    # What follows the last colon is a tag unless it has the slash of a repository: then that is a port.
    _, colon, tag = base.rpartition(":")
    return Image(*named, tag if colon and "/" not in tag else "", digest, text)


def _tagged(text: str) -> Image | None:
    base, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        base, tag = text, "latest"
    elif not _TAG.fullmatch(tag):
        return None
    named = _named(base)
    return None if named is None else Image(*named, tag, "", text)


def _named(text: str) -> tuple[str, str] | None:
    """Return registry and repository of *text*, which has neither tag nor digest."""
    first, slash, rest = text.partition("/")
    registry, repository = "", text
    if slash and (first == "localhost" or "." in first or ":" in first):
        registry, repository = first, rest
    if not _REPOSITORY.fullmatch(repository) or not _is_host(registry):
        return None
    registry = _DOCKER if registry in ("", "docker.io") else registry
    if registry == _DOCKER and "/" not in repository:
        repository = f"library/{repository}"
    return registry, repository


def _is_host(text: str) -> bool:
    """Whether net/url takes *text* as a host with or without a port, and changes nothing of it."""
    if not _HOST.fullmatch(text):
        return False
    if "[" in text:
        address, bracket, port = text[1:].rpartition("]")
        is_address = (
            text.startswith("[") and bracket and ":" in address and parse_address(address) is not None
        )
        return bool(is_address) and _PORT.fullmatch(port) is not None
    _, colon, port = text.rpartition(":")
    return _PORT.fullmatch(colon + port) is not None if colon else True


def _image(text: str) -> Image:
    image = parse_image(text)
    if image is None:
        count_text(len(text))
        raise EvaluationError(f"could not parse reference: {text}")
    return image


FUNCTIONS: Final[tuple[Function, ...]] = (
    function("string_to_image_deprecated", "image(string) -> kyverno.image", _image, 1),
    function("string_to_image", "parseImageReference(string) -> kyverno.image", _image, 1),
    function("is_image_string", "isImage(string) -> bool", lambda text: parse_image(text) is not None, 1),
    function(
        "image_contains_digest",
        "kyverno.image::containsDigest() -> bool",
        lambda image: image.digest != "",
        1,
    ),
    function("image_registry", "kyverno.image::registry() -> string", lambda image: image.registry, 1),
    function("image_repository", "kyverno.image::repository() -> string", lambda image: image.repository, 1),
    function("image_identifier", "kyverno.image::identifier() -> string", lambda image: image.identifier, 1),
    function(
        "image_identifier_with_separator",
        "kyverno.image::identifierWithSeparator() -> string",
        lambda image: image.identifier_with_separator,
        1,
    ),
    function("image_tag", "kyverno.image::tag() -> string", lambda image: image.tag, 1),
    function("image_digest", "kyverno.image::digest() -> string", lambda image: image.digest, 1),
)
