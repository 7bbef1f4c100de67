"""The policy ``allowed-registries``."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.images import parse
from admission_gateway_worker.policies.allowed_registries import DEFINITIONS
from gateway.engine.dispatch.parameter_schema import ParameterSchema
from tests.library.requests import denial, of_cron_job, of_pod

(POLICY,) = DEFINITIONS


@pytest.mark.parametrize(
    ("registry", "image", "is_allowed"),
    [
        ("registry.example.com", "registry.example.com/app:1", True),
        ("registry.example.com", "registry.example.com.evil.test/app:1", False),
        ("registry.example.com", "registry.example.com:5000/app:1", False),
        ("registry.example.com:5000", "registry.example.com:5000/app@sha256:0", True),
        ("ghcr.io/team/", "ghcr.io/team/app", True),
        ("ghcr.io/team", "ghcr.io/team-two/app", False),
        ("ghcr.io/team/app", "ghcr.io/team/app:1", True),
        ("docker.io", "nginx", True),
        ("docker.io/library", "nginx:1", True),
        ("docker.io/library", "team/nginx:1", False),
        ("docker.io", "index.docker.io/library/nginx", True),
        ("localhost", "localhost/app", True),
        ("docker.io", "local/app", True),
        ("docker.io", "Local/app", False),
        ("docker.io/library", "docker.io/nginx", True),
        ("docker.io/library", "index.docker.io/nginx:1", True),
        ("docker.io/library", "docker.io/team/nginx", False),
        ("docker.io/team", "docker.io/team", False),
        ("registry.example.com", "registry.example.com/app", True),
        ("host:5000", "host:5000/app", True),
        ("[::1]:5000", "[::1]:5000/app", True),
    ],
)
def test_an_image_is_below_an_allowed_place(registry: str, image: str, *, is_allowed: bool) -> None:
    parameters = {"registries": [registry]}
    assert ParameterSchema(orjson.dumps(POLICY.parameters).decode()).problems(orjson.dumps(parameters)) == []
    found = denial(POLICY, of_pod({"containers": [{"name": "a", "image": image}]}), parameters)
    message = f'image "{image}" is not from an allowed registry: {registry.rstrip("/")}'
    assert found == ({} if is_allowed else {"spec.containers[0].image": message})


def test_another_name_of_docker_io() -> None:
    spec = {"containers": [{"name": "a", "image": "nginx"}]}
    for place in ("index.docker.io", "index.docker.io/library/"):
        assert denial(POLICY, of_pod(spec), {"registries": [place]}) == {}


@pytest.mark.parametrize(
    "registry",
    [
        "",
        "nginx",
        "team/app",
        "Registry.example.com",
        "https://images.test",
        "*.example.com",
        "registry.example.com/*",
        "registry.example.com/app:1",
        "registry.example.com/app@sha256:0",
        "registry.example.com//app",
        "registry.example.com:port",
        " registry.example.com",
    ],
)
def test_a_place_that_no_image_is_from_is_refused(registry: str) -> None:
    assert ParameterSchema(orjson.dumps(POLICY.parameters).decode()).problems(
        orjson.dumps({"registries": [registry]})
    )


def test_all_images_of_a_template_are_named() -> None:
    spec = {
        "containers": [{"name": "a", "image": "good.test/a"}, {"name": "b", "image": "bad.test/b"}],
        "initContainers": [{"name": "c", "image": "bad.test/c"}],
        "volumes": [{"name": "d", "image": {"reference": "bad.test/d"}}],
    }
    found = denial(POLICY, of_cron_job(spec), {"registries": ["good.test"]})
    prefix = "spec.jobTemplate.spec.template.spec"
    assert list(found) == [
        f"{prefix}.containers[1].image",
        f"{prefix}.initContainers[0].image",
        f"{prefix}.volumes[0].image.reference",
    ]


def test_an_update_that_leaves_the_pod_as_it_was_is_allowed() -> None:
    spec = {"containers": [{"name": "a", "image": "bad.test/a"}]}
    assert denial(POLICY, of_pod(spec, old=spec), {"registries": ["good.test"]}) == {}
    assert denial(POLICY, of_pod(spec, old={"containers": []}), {"registries": ["good.test"]}) != {}


NAME = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@given(
    st.sampled_from(["", "example.com/", "localhost/", "host:5000/"]),
    st.lists(NAME, min_size=1, max_size=3),
    st.none() | NAME,
    st.booleans(),
)
def test_the_parts_of_a_name_make_the_name(
    registry: str, path: list[str], tag: str | None, has_digest: bool
) -> None:
    name = registry + "/".join(path) + (f":{tag}" if tag else "") + ("@sha256:0" if has_digest else "")
    image = parse(name)
    assert image.registry == (registry.rstrip("/") or "docker.io")
    assert image.path == ("library/" if not registry and len(path) == 1 else "") + "/".join(path)
    assert image.tag == (tag or ("" if has_digest else "latest"))
    assert image.digest == ("sha256:0" if has_digest else "")
