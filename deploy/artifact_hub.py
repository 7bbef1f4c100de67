"""What Artifact Hub knows of the chart: its changes, its images, and who publishes it.

Source: Artifact Hub's documentation, "Artifact Hub annotations in Helm Chart.yaml file" and "Helm charts
repositories", "OCI support".
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy.images import IMAGES
from deploy.registries import Refused, ask_crane, digest_of, layers_of, run
from gateway import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS: Final = ("repositoryID", "owners", "ignore")
"""Of ``artifacthub-repo.yml``."""
TAG: Final = "artifacthub.io"
CONFIG: Final = "application/vnd.cncf.artifacthub.config.v1+yaml"
LAYER: Final = "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


def annotated(chart: str, section: str, registry: str) -> str:
    """Return the text *chart* of a Chart.yaml with the changes of *section* of the changelog.

    It also has the images below *registry*, where Artifact Hub scans them; without a registry none.
    """
    images = [{"name": name, "image": f"{registry}/{name}:{__version__}"} for name in IMAGES if registry]
    lists = {"changes": list(changes(section)), "images": images}
    lines = ["annotations:\n"]
    for name, entries in lists.items():
        if entries:
            lines.append(f"  artifacthub.io/{name}: |\n")
            lines += [f"    - {json.dumps(entry, ensure_ascii=False)}\n" for entry in entries]
    return chart.replace(lines[0], "".join(lines), 1)


def changes(section: str) -> Iterator[dict[str, str]]:
    """Yield kind and description of each change in *section*: its heading, and its first sentence."""
    for heading, text in re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", section, re.MULTILINE | re.DOTALL):
        for change in re.split(r"^- ", text, flags=re.MULTILINE)[1:]:
            words = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", " ".join(change.partition("\n\n")[0].split()))
            yield {"kind": heading.lower(), "description": re.split(r"(?<=\.) (?=[A-Z`])", words)[0]}


@dataclass(frozen=True)
class ChartPublisher:
    """``artifacthub-repo.yml`` beside the chart: Artifact Hub reads there who publishes it."""

    file: Path
    registry: str
    tools: tuple[str, ...] = ("crane",)

    @property
    def name(self) -> str:
        """See ``Part``."""
        return f"{self.file.name} -> {self.reference}"

    @property
    def reference(self) -> str:
        """The tag that Artifact Hub reads."""
        return f"{self.registry}/charts/admission-gateway:{TAG}"

    def content(self) -> bytes:
        """Return the file.

        Raises:
            Refused: it cannot be read, or Artifact Hub would find nothing in it.
        """
        try:
            content = self.file.read_bytes()
            fields = yaml.safe_load(content)
        except (OSError, yaml.YAMLError) as error:
            raise Refused(f"{self.file}: {error}") from None
        found = sorted(fields) if isinstance(fields, dict) else [type(fields).__name__]
        if not found or not set(found) <= set(FIELDS):
            raise Refused(f"{self.file}: found {', '.join(found)}, expected {' or '.join(FIELDS)}")
        return content

    def there(self) -> str:
        """See ``Part``. The tag is no version: another content is replaced."""
        own, manifest = digest_of(self.content()), ask_crane("manifest", self.reference)
        return "same" if manifest and own in layers_of(manifest) else ""

    def push(self) -> None:
        """See ``Part``."""
        with tempfile.TemporaryDirectory() as layout:
            write_layout(Path(layout), self.content())
            run("crane", "push", layout, self.reference)


def write_layout(folder: Path, content: bytes) -> None:
    """Write *content* to *folder* as an image of one layer. Source: OCI Image Layout Specification."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def descriptor(kind: str, blob: bytes) -> dict[str, Any]:
        digest = digest_of(blob)
        (blobs / digest.removeprefix("sha256:")).write_bytes(blob)
        return {"mediaType": kind, "digest": digest, "size": len(blob)}

    title = {"org.opencontainers.image.title": "artifacthub-repo.yml"}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        # Artifact Hub's documentation has an empty file here.
        "config": descriptor(CONFIG, b""),
        "layers": [{**descriptor(LAYER, content), "annotations": title}],
    }
    index = {"schemaVersion": 2, "manifests": [descriptor(MANIFEST, json.dumps(manifest).encode())]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
