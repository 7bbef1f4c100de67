"""The images, built from the Dockerfiles and run as a kubelet would run them."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway import __version__
from tests.ci.runner import Run, component, environment
from tests.images.builder import GO_BASE, PIP_BASE, Image, Store, missing
from tests.kit import (
    PATIENCE_S,
    REVIEWS,
    ROOT,
    GatewayProcess,
    Process,
    call_command,
    pool_document,
)
from tests.languages.toolchains import missing as missing_tools
from tests.languages.toolchains import named
from tests.preview.kit import WEB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    import trustme

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(missing()) and not os.environ.get("CI"), reason=missing() or "can be built"),
]

WEBHOOK = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: samples}
webhooks:
  - name: latest.example.com
    clientConfig: {worker: {pool: samples, policy: deny-latest-tag}}
    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
    sideEffects: None
    admissionReviewVersions: [v1]
"""


TEMPLATE = """
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: teamlabel}
spec:
  crd: {spec: {names: {kind: TeamLabel}}}
  targets:
    - target: admission.k8s.gatekeeper.sh
      rego: |
        package teamlabel
        violation[{"msg": "no team"}] { not input.review.object.metadata.labels.team }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: TeamLabel
metadata: {name: team}
"""


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Store(Path(folder))


@pytest.fixture(scope="session")
def gateway_image(store: Store) -> Image:
    return store.build("Dockerfile", "admission-gateway")


@pytest.fixture(scope="session")
def worker_image(store: Store) -> Image:
    return store.build("worker.Dockerfile", "sample-policies")


@pytest.fixture(scope="session")
def gatekeeper_image(store: Store) -> Image:
    if lacks := missing_tools(named("gatekeeper")):
        pytest.skip(lacks)
    store.go_base()
    return store.build_go("gatekeeper")


@pytest.fixture(params=["gateway_image", "worker_image"])
def image(request: pytest.FixtureRequest) -> Image:
    """Each image."""
    found: Image = request.getfixturevalue(request.param)
    return found


class ImageGateway(GatewayProcess):
    """The image of the gateway as a process."""

    def __init__(
        self, image: Image, config: Path, certificate: tuple[Path, Path], authority: trustme.CA
    ) -> None:
        self.config = config
        self.client_context = ssl.create_default_context()
        authority.configure_trust(self.client_context)
        options = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
        pair = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
        Process.__init__(self, *image.command(config, "serve", "--config", str(config), *options, *pair))
        found = self.expect(r"serving on https://127\.0\.0\.1:(\d+), admin on http://[\d.]+:(\d+)")
        self.port, self.admin_port = int(found[1]), int(found[2])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the user of the images can read, as it is mounted in a container."""
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    return tmp_path


def test_a_gateway_and_a_worker_of_the_images_answer_a_review(
    processes: ExitStack,
    folder: Path,
    certificate: tuple[Path, Path],
    authority: trustme.CA,
    gateway_image: Image,
    worker_image: Image,
) -> None:
    worker = Process(*worker_image.command(folder, "--listen", "127.0.0.1:0"))
    processes.callback(worker.stop)
    target = worker.expect(r"worker: serving \d+ policies on (\S+)\n")[1]
    (folder / "gateway.yaml").write_text(pool_document("samples", target) + WEBHOOK)
    pair = []
    for file in certificate:
        copy = folder / file.name
        copy.write_bytes(file.read_bytes())
        copy.chmod(0o644)
        pair.append(copy)
    gateway = ImageGateway(gateway_image, folder, (pair[0], pair[1]), authority)
    processes.callback(gateway.stop)
    review = json.loads((REVIEWS / "pod-create-validate.json").read_text())
    review["request"]["object"]["spec"]["containers"][0]["image"] = "web:latest"
    denied = gateway.review("/validate?timeout=10s", json.dumps(review).encode())
    assert denied["allowed"] is False
    assert "latest" in denied["status"]["message"]
    review["request"]["object"]["spec"]["containers"][0]["image"] = "web:1.2"
    assert gateway.review("/validate?timeout=10s", json.dumps(review).encode())["allowed"] is True
    assert gateway.admin("/readyz")[0] == 200
    for process in (gateway, worker):
        process.signal(15)
        assert process.wait() == 0
    assert "Traceback" not in gateway.log + worker.log


@pytest.mark.parametrize("language", ["python", "go"])
def test_the_image_of_a_new_project_is_built_without_a_published_sdk_and_conforms(
    processes: ExitStack, folder: Path, store: Store, language: str
) -> None:
    """Its Dockerfile as it stands, after the steps of its README that the Dockerfile needs."""
    if lacks := missing_tools(named(language)):
        pytest.skip(lacks)
    made = folder / f"my-{language}"
    done = call_command("new", language, made.name, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    if language == "go":
        subprocess.run(["go", "mod", "tidy"], cwd=made, check=True, timeout=PATIENCE_S)
        store.go_base()
        image = store.build_project(made, GO_BASE, *store.offline_go())
    else:
        store.python_base()
        image = store.build_project(made, PIP_BASE)
    worker = Process(*image.command(folder, "--listen", "127.0.0.1:0"))
    processes.callback(worker.stop)
    target = worker.expect(r"serving 1 polic\w+ on (\S+)\n")[1]
    conforms = call_command("conformance", "--patience", "20", target)
    assert conforms.returncode == 0, conforms.stdout + worker.log
    worker.signal(15)
    assert worker.wait() == 0


def inside(image: Image, folder: Path, program: str) -> str:
    """Return the output of a Python program in *image*."""
    changed = Image(image.root, {**image.config, "Entrypoint": ["python"]}, image.packed_bytes)
    done = subprocess.run(
        changed.command(folder, "-c", program), capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return done.stdout


def test_the_process_is_not_root_and_writes_to_tmp_only(image: Image, folder: Path) -> None:
    program = (
        "import os, tempfile\n"
        "tempfile.TemporaryFile().write(b'x')\n"
        "refused = []\n"
        "for path in ('/x', '/opt/x', '/etc/x', '/usr/x'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: refused.append(error.errno)\n"
        "print(os.getuid(), os.getgid(), os.getgroups(), refused)"
    )
    assert inside(image, folder, program) == "65532 65532 [65532] [30, 30, 30, 30]\n"


def test_the_image_can_resolve_names_and_verify_certificates(image: Image, folder: Path) -> None:
    program = (
        "import socket, ssl\n"
        "print(socket.gethostbyname('localhost'), bool(ssl.create_default_context().get_ca_certs()))"
    )
    assert inside(image, folder, program) == "127.0.0.1 True\n"


def test_the_image_has_no_shell_and_no_installer(image: Image) -> None:
    programs = {path.name for path in image.root.rglob("bin/*")} | {
        p.name for p in image.root.rglob("sbin/*")
    }
    assert programs.isdisjoint({"sh", "bash", "dash", "busybox", "apt", "dpkg", "pip", "pip3", "perl"})
    assert not list(image.root.rglob("site-packages/pip"))
    assert not [path for path in image.root.rglob("*") if path.is_file() and path.lstat().st_mode & 0o6000]


def test_the_images_have_the_sizes_that_the_documentation_gives(
    gateway_image: Image, worker_image: Image
) -> None:
    page = " ".join((ROOT / "docs" / "install.md").read_text().split())
    for name, image in (("gateway", gateway_image), ("sample policies", worker_image)):
        documented = re.search(rf"image of the {name} has (\d+) MB \((\d+) MB compressed\)", page)
        assert documented, f"{name}: {image.size_bytes() / 1e6:.0f} MB, {image.packed_bytes / 1e6:.0f} MB"
        assert image.size_bytes() / 1e6 == pytest.approx(int(documented[1]), rel=0.15)
        assert image.packed_bytes / 1e6 == pytest.approx(int(documented[2]), rel=0.15)


def test_labels_name_version_licence_and_source(image: Image) -> None:
    labels = {
        name.removeprefix("org.opencontainers.image."): text for name, text in image.config["Labels"].items()
    }
    assert labels["version"] == __version__
    assert labels["revision"] == "abc"
    assert labels["licenses"] == "Apache-2.0"
    assert {"title", "description", "source", "url"} <= labels.keys()


def test_the_sbom_lists_what_the_image_contains(image: Image, folder: Path) -> None:
    (file,) = image.root.rglob("sbom.cdx.json")
    document = json.loads(file.read_text())
    program = (
        "import importlib.metadata, json\n"
        "print(json.dumps({d.name.lower().replace('_', '-').replace('.', '-'): d.version"
        " for d in importlib.metadata.distributions()}))"
    )
    installed = json.loads(inside(image, folder, program))
    subject = document["metadata"]["component"]
    listed = {
        component["name"]: component["version"]
        for component in (*document["components"], subject)
        if component["purl"].startswith("pkg:pypi/")
    }
    assert listed == installed
    packages = {c["name"] for c in document["components"] if c["purl"].startswith("pkg:deb/")}
    assert {"libc6", "libssl3"} <= packages
    for package in packages:
        assert (image.root / "usr/share/doc" / package / "copyright").exists(), package


def test_the_image_of_gatekeepers_worker_serves_a_policy_and_lists_its_modules(
    processes: ExitStack, folder: Path, gatekeeper_image: Image
) -> None:
    root = gatekeeper_image.root
    assert {path.name for path in root.iterdir()} == {"etc", "licenses", "sbom.cdx.json", "tmp", "worker"}
    document = json.loads((root / "sbom.cdx.json").read_text())
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert all(component["licenses"] for component in document["components"])
    (folder / "template.yaml").write_text(TEMPLATE)
    worker = Process(*gatekeeper_image.command(folder, "--listen", "127.0.0.1:0", "--policies", str(folder)))
    processes.callback(worker.stop)
    worker.expect(r"serving \d+ policies on 127")
    worker.signal(15)
    assert worker.wait() == 0


_AS_DOCKER = """\
import json, os, sys
arguments = sys.argv[1:]
assert arguments[:2] == ["run", "--rm"], arguments
image = arguments.index("IMAGE")
user = arguments[arguments.index("--user") + 1]
folder = arguments[arguments.index("--workdir") + 1]
command = [one.replace("USER", user) for one in json.loads(COMMAND)]
start = "import os, sys; os.chdir(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"
os.execvp(command[0], [*command, "-c", start, folder, "admission-gateway", *arguments[image + 1 :]])
"""


def test_the_action_runs_the_image(gateway_image: Image, folder: Path) -> None:
    repository, temporary, programs = (folder / name for name in ("repository", "temporary", "programs"))
    for each in (repository, temporary, programs):
        each.mkdir()
    (repository / "manifests").mkdir()
    (repository / "manifests" / "web.yaml").write_text(WEB)
    (repository / "gateway.yaml").write_text((ROOT / "gateway" / "dev.yaml").read_text())
    python = Image(
        gateway_image.root, {**gateway_image.config, "User": "USER", "Entrypoint": ["python"]}, 0
    ).command(folder, "-I")
    docker = programs / "docker"
    text = _AS_DOCKER.replace("COMMAND", repr(json.dumps(python)))
    docker.write_text(f"#!{sys.executable}\n{text}")
    docker.chmod(0o755)
    done = Run(repository, temporary, environment(programs, Path("/usr/sbin")), {})(
        {"paths": "manifests", "config": "gateway.yaml", "image": "IMAGE"}
    )
    assert (done.status, done.outputs["result"]) == (1, "denied"), done.log
    assert 'image "nginx" has no tag' in done.summary
    assert "manifests/web.yaml" in Path(done.outputs["sarif"]).read_text()


def test_the_job_of_the_component_runs_in_the_image_for_ci(
    store: Store, gateway_image: Image, folder: Path
) -> None:
    del gateway_image  # It is what this image is made from.
    image = store.build(
        "ci/Dockerfile",
        "admission-gateway-ci",
        *("--build-arg", "GATEWAY_IMAGE=localhost/admission-gateway:latest"),
    )
    folder.chmod(0o777)
    (folder / "web.yaml").write_text(WEB)
    (folder / "gateway.yaml").write_text((ROOT / "gateway" / "dev.yaml").read_text())
    _, job = component({"image": "ci", "paths": "web.yaml", "config": "gateway.yaml"})
    (line,) = job["script"]
    shell = Image(image.root, {**image.config, "Entrypoint": ["/bin/sh", "-c"]}, 0)
    done = subprocess.run(
        shell.command(folder, f"cd {folder} && {line}"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert 'image "nginx" has no tag' in (folder / job["artifacts"]["reports"]["junit"]).read_text()
