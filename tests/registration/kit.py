"""Rules, webhooks and requests, random and small enough to collide; and registrations read back."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from gateway.config.kinds.matching import RuleEntry
from gateway.config.merge.load import load
from gateway.config.merge.model import Config
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.core.webhook import Rule
from gateway.tools.registration.backend import Backend
from gateway.tools.registration.plan import Plan, RegistrationOptions, plan
from tests.core.build import request as admission_request
from tests.core.build import webhook
from tests.kit import pool_document
from tests.registration.apiserver import ClientRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Webhook

SERVICE = Backend(service=("policies", "gateway", 443))
WISHES = RegistrationOptions(SERVICE)

VERSIONS = ("v1", "v1beta1", "v2")


def rule(
    resources: str = "pods",
    versions: str = "v1",
    groups: str = "",
    operations: str = "CREATE",
    scope: Any = "*",
) -> Rule:
    """A rule; several values of one dimension are separated by blanks, and no group is the core group."""
    return Rule(
        tuple(operations.split()),
        tuple(groups.split()) or ("",),
        tuple(versions.split()),
        tuple(resources.split()),
        scope,
    )


def as_json(of: Rule) -> dict[str, Any]:
    """A rule as it is registered."""
    return {
        "operations": of.operations,
        "apiGroups": of.api_groups,
        "apiVersions": of.api_versions,
        "resources": of.resources,
        "scope": of.scope,
    }


@cache
def is_valid(of: Rule) -> bool:
    """Whether the API server's checks, as the gateway's reader has them, find nothing."""
    problems = Problems("")
    content = {name: list(v) if isinstance(v, tuple) else v for name, v in as_json(of).items()}
    RuleEntry.read(Fields(content, "", problems))
    return not problems.found


def _some(*names: str) -> list[tuple[str, ...]]:
    """Return one to three of *names* in all orders, each number as often as the others.

    One draw from a list costs a tenth of the draws of ``st.lists``.
    """
    by_size = [list(permutations(names, size)) for size in range(1, min(len(names), 3) + 1)]
    return [one for several in by_size for one in several * (len(by_size[-1]) // len(several))]


def some(*names: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from(_some(*names))


def names(*values: str) -> st.SearchStrategy[tuple[str, ...]]:
    """The wildcard alone, or some of *values*."""
    several = _some(*values)
    return st.sampled_from([*several, *[("*",)] * len(several)])


rules = st.builds(
    Rule,
    names("CREATE", "UPDATE", "DELETE"),
    names("", "apps"),
    names(*VERSIONS),
    some("pods", "pods/status", "namespaces", "pods/*", "*", "*/status", "*/*", "deployments"),
    st.sampled_from(["*", "*", "Namespaced", "Cluster"]),
).filter(is_valid)
# Alike but for resource and version, so that they do meet.
close_rules = st.builds(
    lambda versions, resource: rule(resource, " ".join(versions)),
    names(*VERSIONS),
    st.sampled_from(["pods", "deployments", "pods deployments"]),
)
rule_lists = st.lists(rules, min_size=1, max_size=5) | st.lists(close_rules, min_size=1, max_size=5)
few_rules = st.lists(rules, min_size=1, max_size=3).map(tuple) | st.lists(
    close_rules, min_size=1, max_size=3
).map(tuple)


def requests(count: int) -> st.SearchStrategy[list[ClientRequest]]:
    """*count* requests for resources that are served in a few versions; one draw, which is cheap."""
    return st.integers(0, 2**32 - 1).map(lambda seed: _requests(random.Random(seed), count))


def _requests(source: random.Random, count: int) -> list[ClientRequest]:
    made = []
    for _ in range(count):
        served = source.sample([*VERSIONS, "v3"], source.randint(1, 4))
        made.append(
            ClientRequest(
                source.choice(["CREATE"] * 4 + ["UPDATE", "DELETE", "CONNECT"]),
                source.choice([""] * 4 + ["apps", "example.com"]),
                source.choice(served),
                source.choice(["pods"] * 3 + ["deployments"] * 2 + ["namespaces", "widgets"]),
                source.choice([""] * 4 + ["status", "scale"]),
                source.choice(["default", ""]),
                tuple(served),
            )
        )
    return made


@st.composite
def webhooks(draw: st.DrawFn, /, phase: str, **members: Any) -> list[Webhook]:
    """A few webhooks in their order, of two configurations; rules are often shared."""
    shared = draw(few_rules)
    count = draw(st.integers(1, 5))
    made = []
    for number in range(count):
        varying: dict[str, Any] = {
            "rules": draw(st.just(shared) | few_rules),
            "failure_policy": draw(st.sampled_from(["Fail", "Ignore"])),
            "match_policy": draw(st.sampled_from(["Equivalent", "Equivalent", "Exact"])),
            "configuration": "early" if number < count // 2 else "late",
            **members,
        }
        made.append(webhook(f"h{number}.policies.test", phase=phase, **varying))
    return made


def configured(*hooks: Webhook, **members: Any) -> Config:
    """A configuration with these webhooks."""
    return Config(
        mutating=tuple(hook for hook in hooks if hook.phase == "mutate"),
        validating=tuple(hook for hook in hooks if hook.phase == "validate"),
        configurations=frozenset((hook.phase, hook.configuration) for hook in hooks),
        **members,
    )


def entries(config: Config, wishes: RegistrationOptions = WISHES) -> list[dict[str, Any]]:
    """All entries that register *config*, in the order in which they are called."""
    return entries_of(plan(config, wishes))


def entries_of(made: Plan) -> list[dict[str, Any]]:
    documents: list[Any] = made.documents
    return [entry for document in documents for entry in document["webhooks"]]


def path(entry: Mapping[str, Any]) -> str:
    found: str = entry["clientConfig"]["service"]["path"]
    return found


def as_sent(client_request: ClientRequest, version: str) -> AdmissionRequest:
    """The review of a request that is sent in *version*."""
    resource = {"group": client_request.group, "resource": client_request.resource}
    return admission_request(
        operation=client_request.operation,
        resource={**resource, "version": version},
        requestResource={**resource, "version": client_request.version},
        subResource=client_request.sub_resource,
        requestSubResource=client_request.sub_resource,
        namespace=client_request.namespace,
        kind={"group": client_request.group, "version": version, "kind": "Thing"},
    )


def read_back(documents: Sequence[Mapping[str, Any]]) -> Config:
    """The registered webhooks, parsed by the gateway's own reader, with a worker as their backend."""
    texts = [pool_document("api-server", "localhost:1")]
    for document in documents:
        hooks = []
        for entry in document["webhooks"]:
            hook = {key: value for key, value in entry.items() if key != "matchConditions"}
            hooks.append({**hook, "clientConfig": {"worker": {"pool": "api-server", "policy": "p"}}})
        texts.append(json.dumps({**document, "webhooks": hooks}))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "registered.yaml"
        file.write_text("\n---\n".join(texts))
        return load([file])
