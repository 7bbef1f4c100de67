"""The policy ``unique-ingress-hosts``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission_gateway_worker.policies.unique_ingress_hosts import DEFINITIONS
from tests.library.requests import denial, request

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

(POLICY,) = DEFINITIONS
INGRESSES = "/apis/networking.k8s.io/v1/ingresses"


def ingress(namespace: str, name: str, *hosts: str) -> dict[str, Any]:
    rules: list[dict[str, Any]] = [{"host": host} if host else {"http": {}} for host in hosts]
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"rules": rules}}


def of(found: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata = found["metadata"]
    return request("networking.k8s.io", "v1", "Ingress", found, old, **metadata)


def test_a_host_of_another_namespace_is_denied(api_server: ApiServer) -> None:
    api_server.lists[INGRESSES] = [ingress("shop", "web", "a.test", "b.test"), ingress("blog", "web", "")]
    found = denial(POLICY, of(ingress("blog", "new", "c.test", "", "b.test")))
    assert found == {
        "spec.rules[2].host": 'the host "b.test" belongs to the Ingress shop/web: use another host'
    }


def test_the_scope_decides_about_ingresses_of_the_same_namespace(api_server: ApiServer) -> None:
    api_server.lists[INGRESSES] = [ingress("shop", "web", "a.test")]
    assert denial(POLICY, of(ingress("shop", "new", "a.test"))) == {}
    assert denial(POLICY, of(ingress("shop", "new", "a.test")), {"scope": "Ingress"}) != {}
    assert denial(POLICY, of(ingress("shop", "web", "a.test")), {"scope": "Ingress"}) == {}


def test_hosts_that_an_ingress_has_already_are_not_asked_for(api_server: ApiServer) -> None:
    old = ingress("blog", "web", "a.test")
    assert denial(POLICY, of(ingress("blog", "web", "a.test", ""), old)) == {}
    assert api_server.requests == []


def test_an_ingress_with_many_hosts_is_compared_with_itself(api_server: ApiServer) -> None:
    hosts = [f"{index}.test" for index in range(20_000)]
    api_server.lists[INGRESSES] = [ingress("shop", "web", "new.test")]
    old = ingress("blog", "web", *hosts)
    found = denial(POLICY, of(ingress("blog", "web", *reversed(hosts), "new.test"), old))
    assert list(found) == ["spec.rules[20000].host"]
