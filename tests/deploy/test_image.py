"""The packages of the images, and the Dockerfiles against this tree. tests/images builds the images."""

from __future__ import annotations

import ast
import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from admission_gateway_worker.main import parse_options
from deploy.pinned import LISTS, OWN, roots_of, select
from deploy.sbom import normalised
from gateway import __version__
from gateway.tools.cli import build_parser
from tests.deploy.cluster import DEPLOY, GATEWAY, WORKER, container
from tests.kit import ROOT
from tests.languages.toolchains import named, unready

CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = DEPLOY / "Dockerfile"
WORKER_DOCKERFILE = DEPLOY / "worker.Dockerfile"
ENGINE_DOCKERFILE = DEPLOY / "engine.Dockerfile"
KUBEWARDEN_DOCKERFILE = DEPLOY / "kubewarden.Dockerfile"
EACH = pytest.mark.parametrize(
    "file",
    [DOCKERFILE, WORKER_DOCKERFILE, ENGINE_DOCKERFILE, KUBEWARDEN_DOCKERFILE],
    ids=lambda file: file.name,
)
BOTH = pytest.mark.parametrize("file", [DOCKERFILE, WORKER_DOCKERFILE], ids=lambda file: file.name)


# -- installed files -----------------------------------------------------------------------------


def pinned(wanted: str) -> dict[str, list[str]]:
    """Return the packages that ``deploy.pinned WANTED`` prints, each with its hashes."""
    command = [sys.executable, "-m", "deploy.pinned", wanted]
    found: dict[str, list[str]] = {}
    for line in subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        if re.match(r"\S+==", line):
            found[normalised(line)] = []
        elif "--hash" in line:
            found[list(found)[-1]].append(line.strip(" \\"))
    return found


def installed_closure(roots: list[str]) -> set[str]:
    """Return *roots* and all that they require, by the metadata of the installed packages."""
    # Each package with an extra that is required; an empty extra is the package itself.
    found: set[tuple[str, str]] = set()
    waiting = [(root, "") for root in roots]
    while waiting:
        name, extra = wanted = waiting.pop()
        if wanted not in found:
            found.add(wanted)
            for requirement in map(Requirement, requires(name) or ()):
                if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                    waiting.extend(
                        (normalised(requirement.name), asked) for asked in ("", *requirement.extras)
                    )
    return {name for name, _ in found}


def imported(*parts: str) -> set[str]:
    """Return the names of all modules that *parts*, packages and modules, import anywhere in the code."""
    names: set[str] = set()
    for file in (file for part in parts for file in [*(ROOT / part).rglob("*.py")] or [ROOT / part]):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


modules_of_environment = cache(packages_distributions)


def distributions_of(modules: set[str]) -> set[str]:
    """Return the distributions that contain *modules*, by their installed files."""
    by_module = modules_of_environment()
    return {
        normalised(distribution)
        for module in modules
        if (top := module.partition(".")[0]) not in sys.stdlib_module_names
        for distribution in by_module.get(top, [f"unknown: {module}"])
        # google is a namespace that several distributions share, stubs among them.
        if not distribution.startswith("types-")
    } - OWN.keys()


@pytest.mark.parametrize("wanted", OWN)
def test_an_image_gets_the_packages_that_it_requires_and_no_others(wanted: str) -> None:
    assert set(pinned(wanted)) == installed_closure(roots_of(wanted))


def test_everything_that_the_gateway_imports_is_in_the_image() -> None:
    needed = distributions_of(imported("gateway"))
    assert "grpcio" in needed
    # The command that runs the kit says how to install it.
    assert needed - set(pinned("admission-gateway")) == {"admission-gateway-conformance"}


def test_the_sdk_requires_what_it_imports_and_nothing_more() -> None:
    project = tomllib.loads((OWN["admission-gateway-worker"] / "pyproject.toml").read_text())["project"]
    declared = {normalised(requirement) for requirement in project["dependencies"]}
    of_library = {normalised(requirement) for requirement in project["optional-dependencies"]["policies"]}
    modules = {module for module in imported("workers/python") if not module.startswith("opentelemetry")}
    # google is a namespace of several distributions.
    assert declared | of_library <= distributions_of(modules)
    for module in modules:
        found = distributions_of({module})
        assert not found or found & (declared | of_library), module
    sdk = "workers/python/admission_gateway_worker"
    library = imported(f"{sdk}/policies", f"{sdk}/kubernetes_client.py")
    others = {module for module in modules if distributions_of({module}) & of_library}
    assert others <= library, "the SDK without the extra imports a library of the extra"


def test_the_conformance_kit_requires_what_it_imports_and_nothing_more() -> None:
    project = tomllib.loads((ROOT / "workers" / "conformance" / "pyproject.toml").read_text())["project"]
    declared = {normalised(requirement) for requirement in project["dependencies"]}
    assert declared >= OWN.keys()
    imports = distributions_of(imported("workers/conformance")) - {normalised(project["name"])}
    # google is a namespace of several distributions.
    assert declared - OWN.keys() <= imports
    assert {name for name in imports if not name.startswith("google")} <= declared | {"protobuf"}


def test_the_wheel_is_built_with_the_packages_of_pyproject() -> None:
    assert set(pinned("build-system")) == {"setuptools"}


def test_every_package_of_the_image_has_hashes() -> None:
    for wanted in LISTS:
        assert all(pinned(wanted).values())


def test_no_development_tool_is_in_the_image() -> None:
    tools = {normalised(requirement) for requirement in PROJECT["project"]["optional-dependencies"]["dev"]}
    # httpx2 depends on h11, which tests use, too.
    assert tools & set(pinned("admission-gateway")) == {"h11"}


def test_a_dependency_that_is_not_pinned_is_named() -> None:
    with pytest.raises(LookupError, match="does not pin no-such-thing"):
        select(CONSTRAINTS, ["grpcio", "No_Such.Thing"])


class Pins(NamedTuple):
    """Draw a constraints.txt: packages, each with those that require it."""

    parents: dict[str, list[str]]

    def text(self) -> str:
        blocks = []
        for name, parents in self.parents.items():
            via = f" {parents[0]}" if len(parents) == 1 else "".join(f"\n    #   {p}" for p in parents)
            blocks.append(f"{name}==1.0 \\\n    --hash=sha256:00\n    # via{via}\n")
        return "".join(blocks)

    def reachable(self, roots: list[str]) -> set[str]:
        found = set(roots)
        for _ in self.parents:
            found |= {name for name, parents in self.parents.items() if found & set(parents)}
        return found


@st.composite
def pins(draw: st.DrawFn) -> tuple[Pins, list[str]]:
    names = [f"package-{number}" for number in range(draw(st.integers(1, 8)))]
    some = st.lists(st.sampled_from([*names, "admission-gateway"]), min_size=1, max_size=3, unique=True)
    return Pins({name: draw(some) for name in names}), draw(st.lists(st.sampled_from(names), unique=True))


@given(pins())
def test_the_selection_is_everything_reachable_from_the_roots(given_pins: tuple[Pins, list[str]]) -> None:
    made, roots = given_pins
    selected = re.findall(r"^(\S+)==", select(made.text(), roots), re.MULTILINE)
    assert set(selected) == made.reachable(roots)
    assert len(set(selected)) == len(selected)


# -- the Dockerfiles ------------------------------------------------------------------------------


def instructions(file: Path) -> list[tuple[str, str]]:
    """Return instructions with their arguments, without comments and line breaks."""
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def last(file: Path, instruction: str) -> str:
    return [rest for word, rest in instructions(file) if word == instruction][-1]


def copied(file: Path) -> list[str]:
    """Return the paths that are copied from the tree, not from another stage."""
    sources = [rest.split()[:-1] for word, rest in instructions(file) if word == "COPY"]
    return [s for source in sources if not source[0].startswith("--from=") for s in source]


def is_sent(path: str) -> bool:
    """Return whether .dockerignore includes *path*: the last matching pattern decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!").removeprefix("**/")
        if not pattern or pattern.startswith("#"):
            continue
        names = [path, *map(str, Path(path).parents), Path(path).name if "**/" in line else path]
        if any(fnmatch.fnmatchcase(name.rstrip("/"), pattern) for name in names if name != "."):
            sent = line.startswith("!")
    return sent


@pytest.mark.parametrize(
    "file", [DOCKERFILE, WORKER_DOCKERFILE, KUBEWARDEN_DOCKERFILE], ids=lambda file: file.name
)
def test_files_that_a_dockerfile_copies_exist_and_are_in_the_build_context(file: Path) -> None:
    assert copied(file)
    for source in copied(file):
        assert (ROOT / source).exists()
        assert is_sent(source)


def test_the_build_context_has_no_other_files() -> None:
    for path in (
        ".git",
        ".venv",
        "tests",
        "constraints.in",
        "deploy/manifest.yaml",
        "certs/ca.key",
        "workers/typescript",
    ):
        assert not is_sent(path)


def test_all_files_of_the_wheel_are_copied() -> None:
    include = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    sources = {source.rstrip("/") for source in copied(DOCKERFILE)}
    assert {*(pattern.rstrip("*") for pattern in include), "workers/python"} <= sources


@EACH
def test_every_stage_starts_from_an_image_that_can_be_replaced_and_is_not_the_latest(file: Path) -> None:
    defaults = dict(rest.split("=", 1) for word, rest in instructions(file) if word == "ARG" and "=" in rest)
    for word, rest in instructions(file):
        if word == "FROM" and rest != "scratch":
            name = re.fullmatch(r"\$\{(\w+)\}", rest.split()[0])
            assert name
            assert re.search(r":\d[^/]*$", defaults[name[1]])
    assert ":latest" not in file.read_text()


@BOTH
def test_the_base_image_is_pinned_by_its_digest(file: Path) -> None:
    defaults = dict(rest.split("=", 1) for word, rest in instructions(file) if word == "ARG" and "=" in rest)
    assert re.search(r":3\.11-[a-z-]+@sha256:[0-9a-f]{64}$", defaults["PYTHON_IMAGE"])


@pytest.mark.parametrize("worker", ["gatekeeper", "kyverno"])
def test_the_image_of_an_engine_is_built_from_its_folder_and_those_that_its_module_needs(worker: str) -> None:
    folder = ROOT / "workers" / worker
    needed = re.findall(r"^replace \S+ => (\.\./\S+)$", (folder / "go.mod").read_text(), re.MULTILINE)
    sources = [source.replace("${WORKER}", worker) for source in copied(ENGINE_DOCKERFILE)]
    assert {ROOT / source for source in sources} == {folder, *((folder / path).resolve() for path in needed)}
    for source in sources:
        assert is_sent(source)
        assert is_sent(f"{source}/go.mod")
        assert not is_sent(f"{source}/target")


@pytest.mark.parametrize("worker", ["gatekeeper", "kyverno"])
def test_the_image_of_an_engine_lists_the_modules_of_its_binary(worker: str, tmp_path: Path) -> None:
    program = named(worker)
    if lacks := unready(program):
        pytest.skip(lacks)
    command = [rest for word, rest in instructions(ENGINE_DOCKERFILE) if word == "RUN"][-1]
    (run,) = (part.strip() for part in command.split("&&") if "sbom" in part)
    binary = ROOT / program.product
    made = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        line = run.replace("/image/worker", str(binary)).replace("/image", str(folder))
        done = subprocess.run(
            shlex.split(line),
            cwd=ROOT / program.folder,
            env={**os.environ, "CGO_ENABLED": "0", "SOURCE_DATE_EPOCH": "1700000000"},
            capture_output=True,
            text=True,
            check=True,
        )
        made.append((folder / "sbom.cdx.json").read_text())
    assert made[0] == made[1]
    document = json.loads(made[0])
    root = document["metadata"]["component"]
    assert (root["type"], root["version"]) == ("application", __version__)
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    version = subprocess.run(
        ["go", "version", "-m", binary], capture_output=True, text=True, check=True
    ).stdout
    # A line that begins with an arrow names what replaces the module before.
    linked = re.findall(r"^\tdep\t(\S+)\t(\S+).*(?:\n\t=>\t(\S+)\t(\S+))?", version, re.MULTILINE)
    wanted = {"stdlib": re.findall(r": go(\S+)", version)[0]}
    for name, has, other, instead in linked:
        if name.startswith("admission-gateway.io/"):
            wanted[name] = __version__
        else:
            wanted[other or name] = instead or has
    assert {c["name"]: c["version"] for c in document["components"]} == wanted
    # Two modules of Kyverno's have no licence in their folders.
    without = [c["name"] for c in document["components"] if "licenses" not in c]
    assert len(without) == {"gatekeeper": 0, "kyverno": 2}[worker]
    assert all(name in done.stderr for name in without)
    for one in document["components"]:
        if "licenses" in one and not one["name"].startswith("admission-gateway.io/"):
            assert any((tmp_path / "first" / "licenses" / f"{one['name']}@{one['version']}").iterdir())
    references = {root["bom-ref"], *(c["bom-ref"] for c in document["components"])}
    assert {entry["ref"] for entry in document["dependencies"]} == references
    needed = {ref for entry in document["dependencies"] for ref in entry["dependsOn"]}
    assert needed == references - {root["bom-ref"]}


def test_the_image_of_an_engine_is_built_with_a_pinned_go_that_its_modules_accept() -> None:
    (image,) = (rest for word, rest in instructions(ENGINE_DOCKERFILE) if rest.startswith("GO_IMAGE="))
    found = re.search(r":(\d+\.\d+\.\d+)-[a-z]+@sha256:[0-9a-f]{64}$", image)
    assert found
    # The image downloads no other one.
    for module in ("engines", "gatekeeper", "go", "kyverno"):
        text = (ROOT / "workers" / module / "go.mod").read_text()
        (wanted,) = re.findall(r"^go (\d+\.\d+\.\d+)$", text, re.MULTILINE)
        assert Version(wanted) <= Version(found[1]), module


def test_the_image_of_kubewardens_worker_is_built_with_a_pinned_rust_from_what_the_worker_needs() -> None:
    (image,) = (rest for word, rest in instructions(KUBEWARDEN_DOCKERFILE) if rest.startswith("RUST_IMAGE="))
    found = re.search(r":(\d+\.\d+\.\d+)-[a-z]+@sha256:[0-9a-f]{64}$", image)
    assert found
    project = tomllib.loads((ROOT / "workers" / "wasm" / "Cargo.toml").read_text())
    assert Version(project["package"]["rust-version"]) <= Version(found[1])
    sources = {(ROOT / source).resolve() for source in copied(KUBEWARDEN_DOCKERFILE)}
    needed = project["dependencies"]["admission-gateway-worker"]["path"]
    assert {ROOT / "workers" / "wasm", (ROOT / "workers" / "wasm" / needed).resolve()} <= sources
    # The SDK has the contract and the licence as links.
    for link in (file for file in (ROOT / "workers" / "rust").iterdir() if file.is_symlink()):
        assert {link.resolve(), *link.resolve().parents} & sources, link
    assert not is_sent("workers/wasm/target")


def test_the_image_of_kubewardens_worker_has_its_program_with_all_that_it_loads(tmp_path: Path) -> None:
    """What the Dockerfile does after the build, with the program of this machine."""
    program = named("kubewarden")
    if lacks := unready(program):
        pytest.skip(lacks)
    command = [rest for word, rest in instructions(KUBEWARDEN_DOCKERFILE) if word == "RUN"][-1]
    lines = [line for line in command.split(" && ") if "cargo build" not in line]
    assert len(lines) == command.count("&&")
    image, crates = tmp_path / "image", tmp_path / "crates.json"
    script = " && ".join(lines).replace("/image", str(image)).replace("/tmp/crates.json", str(crates))
    for place in (f"{image}/tmp", f" {image}/worker "):
        assert place in f"{script} "
    done = subprocess.run(
        ["sh", "-ec", script.replace("python3", sys.executable)],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads((image / "sbom.cdx.json").read_text())
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("admission-gateway-wasm", __version__)
    names = {component["name"] for component in document["components"]}
    assert {"wasmtime", "rustls", "serde_json", "admission-gateway-worker"} <= names
    # What only builds or tests it is not linked.
    assert names.isdisjoint({"protox", "rcgen", "tonic-prost-build"})
    assert all(component["licenses"] for component in document["components"])
    references = {root["bom-ref"], *(c["bom-ref"] for c in document["components"])}
    assert {ref for entry in document["dependencies"] for ref in entry["dependsOn"]} <= references
    for name in names - {line.partition("@")[0] for line in done.stderr.splitlines()}:
        assert [*(image / "licenses").glob(f"{name}@*/*")], name
    if os.geteuid() == 0:
        shown = subprocess.run(["chroot", image, "/worker", "--help"], capture_output=True, check=True)
        assert b"--policies" in shown.stdout


def test_every_image_of_the_manifest_can_be_given_a_digest() -> None:
    """The file has placeholders for the digests of the images that the operator builds."""
    document = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    assert document["resources"] == ["manifest.yaml"]
    images = {image["name"]: image["digest"] for image in document["images"]}
    assert {f"{name}:{__version__}" for name in images} == {
        container(name)["image"] for name in (GATEWAY, WORKER)
    }
    assert all(re.fullmatch(r"sha256:DIGEST_OF_[A-Z_]+", digest) for digest in images.values())


def test_both_images_are_built_from_the_same_base() -> None:
    first, second = (
        next(rest for word, rest in instructions(file) if word == "ARG")
        for file in (DOCKERFILE, WORKER_DOCKERFILE)
    )
    assert first == second


def test_the_gateways_image_starts_the_program_without_a_shell() -> None:
    (program,) = json.loads(last(DOCKERFILE, "ENTRYPOINT"))
    assert program in PROJECT["project"]["scripts"]
    parsed = build_parser().parse_args(json.loads(last(DOCKERFILE, "CMD")))
    assert (parsed.command, [str(path) for path in parsed.config]) == ("serve", ["/etc/admission-gateway"])
    assert last(DOCKERFILE, "STOPSIGNAL") == "SIGTERM"


def test_the_workers_image_serves_the_sample_policies() -> None:
    command = ["python", "-m", "admission_gateway_worker.samples"]
    assert json.loads(last(WORKER_DOCKERFILE, "ENTRYPOINT")) == command
    assert parse_options(json.loads(last(WORKER_DOCKERFILE, "CMD"))).listen == ("0.0.0.0:50051",)


@EACH
def test_the_image_runs_as_a_numbered_user_that_is_not_root(file: Path) -> None:
    user, _, group = last(file, "USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0


@BOTH
def test_only_pinned_files_are_installed_and_the_wheels_built_here(file: Path) -> None:
    commands = " && ".join(rest for word, rest in instructions(file) if word == "RUN")
    installs = re.findall(r"pip(?: --python \S+)? install ([^&]*)", commands)
    assert installs
    for options in installs:
        words = set(options.split())
        assert "--no-deps" in words
        assert words & {"--require-hashes", "--no-index"}
