"""Reads the manifests as the API server does, and the configuration in them as the gateway does."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any, cast

import pytest

from admission_gateway_worker.main import parse_options
from gateway.config.yaml.documents import read_documents
from gateway.server.options import Options
from gateway.tools.cli import build_parser
from tests.kit import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from admission_gateway_worker.main import Options as WorkerOptions
    from gateway.config.merge.model import Config

DEPLOY = ROOT / "deploy"
MANIFEST = DEPLOY / "manifest.yaml"
REGISTRATION = DEPLOY / "registration.yaml"
CERT_MANAGER = DEPLOY / "cert-manager.yaml"
CUSTOM_RESOURCES = DEPLOY / "custom-resources.yaml"
CRDS = DEPLOY / "chart" / "files" / "crds.yaml"
GATEWAY = "admission-gateway"
WORKER = "sample-policies"
CA_PLACEHOLDER = "CA_BUNDLE"

Manifest = dict[str, Any]


def objects(file: Path) -> list[Manifest]:
    """Return the objects in *file*, read as strictly as the gateway reads its files: no duplicate keys."""
    documents = list(read_documents(file, file.read_text()))
    problems = [problem for document in documents for problem in document.problems.errors()]
    assert not problems
    return [cast("Manifest", document.content) for document in documents]


def only(kind: str, name: str, file: Path = MANIFEST) -> Manifest:
    """Return the one object of *kind* and *name* in *file*."""
    (found,) = (o for o in objects(file) if (o["kind"], o["metadata"]["name"]) == (kind, name))
    return found


def pod(name: str) -> Manifest:
    """Return the pod spec of the Deployment *name*."""
    spec: Manifest = only("Deployment", name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> Manifest:
    """Return the one container of the Deployment *name*."""
    (found,) = pod(name)["containers"]
    return cast("Manifest", found)


def arguments() -> Any:
    """Return the gateway's command line, parsed by the program itself."""
    return build_parser().parse_args(container(GATEWAY)["args"])


def worker_options() -> WorkerOptions:
    """Return the worker's command line, parsed by the program itself."""
    return parse_options(container(WORKER)["args"])


def write_config_map(folder: Path) -> Path:
    """Write the ConfigMap to *folder* as the kubelet would mount it; return *folder*."""
    for name, text in only("ConfigMap", GATEWAY)["data"].items():
        (folder / name).write_text(text)
    return folder


def configured(folder: Path, certificate: tuple[Path, Path]) -> Config:
    """Return the configuration of the gateway's container, with the files in other folders."""
    parsed = arguments()
    return Options(
        config=(write_config_map(folder),),
        listen=parsed.listen,
        admin_listen=parsed.admin_listen,
        processes=parsed.processes,
        tls_cert=certificate[0],
        tls_key=certificate[1],
    ).load()


def make_certificates(folder: Path) -> None:
    """Run ``certificate.sh`` for *folder*."""
    if shutil.which("openssl") is None:
        pytest.skip("certificate.sh needs openssl, which is not installed")
    subprocess.run(["sh", DEPLOY / "certificate.sh", folder], check=True, capture_output=True)
