"""The same operations under both set-ups, and comparable outcomes of each.

A ``Case`` has hooks of its own. All cases of a list are registered at once, each confined by a label to the
namespaces made for it: starting a gateway for each would take most of the time.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.e2e.client import JSON
from tests.e2e.cluster import ADMIN
from tests.e2e.outcome import Outcome, Refusal, audit_annotations, normalised, refusal_of, with_annotations
from tests.e2e.setups import BehindGateway, Directly, Hook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.e2e.client import Answer, Api
    from tests.e2e.cluster import Cluster

Namespaces = dict[str, str]


@dataclass(frozen=True)
class Operation:
    """One request to the API server. ``{namespace}`` in its path is that of the case."""

    method: str
    path: str
    document: Any = None
    content_type: str = JSON
    user: str = ADMIN

    def stored_at(self) -> str:
        """Return the path of the object that it is about, or of the collection where no name is known."""
        bare = self.path.partition("?")[0]
        root, separator, rest = bare.partition("/namespaces/{namespace}/")
        if not separator:
            return f"{bare}/{self.document['metadata']['name']}" if self.method == "POST" else bare
        resource, *name = rest.split("/")[:2]
        if self.method == "POST" and not name and "name" in self.document.get("metadata", {}):
            name = [self.document["metadata"]["name"]]
        return "/".join([f"{root}{separator}{resource}", *name])

    def title(self) -> str:
        """Return its method and its object, for names of tests."""
        return f"{self.method}-{self.stored_at().rpartition('}/')[2]}"


@dataclass(frozen=True)
class Case:
    """Hooks, and operations to do one after another while they are in force.

    Hooks have names of one word, which the case completes.
    """

    name: str
    hooks: tuple[Hook, ...]
    operations: tuple[Operation, ...]
    labels: dict[str, str] = field(default_factory=dict)
    """Further labels of its namespace."""
    in_entries: bool = False
    """Whether the gateway has to be registered as several entries, between which there is no order."""

    def confined(self) -> Iterator[Hook]:
        """Yield the hooks so that they only apply to this case."""
        for hook in self.hooks:
            selector = hook.fields.get("namespaceSelector", {})
            labels = {**selector.get("matchLabels", {}), "case": self.name}
            fields = {**hook.fields, "namespaceSelector": {**selector, "matchLabels": labels}}
            yield replace(hook, name=f"{hook.name}.{self.name}.test", fields=fields)

    def names(self) -> list[str]:
        """Return the full names of the hooks."""
        return [hook.name for hook in self.confined()]


def run(
    cluster: Cluster,
    folder: Path,
    cases: Iterable[Case],
    behind_gateway: type[BehindGateway] = BehindGateway,
    **gateway: Any,
) -> dict[str, list[tuple[Outcome, Outcome]]]:
    """Do all operations of all *cases* directly and behind a gateway, and return both outcomes of each.

    *gateway*: fields of the GatewayConfiguration.
    """
    cases = tuple(cases)
    hooks = [hook for case in cases for hook in case.confined()]
    directly = _under(Directly(cluster, folder / "direct", hooks), cluster, cases, namespaces(cluster, cases))
    watching = {"auditLevel": "Request", "kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
    setup = behind_gateway(cluster, folder / "gateway", hooks, gateway={**watching, **gateway})
    behind = _under(setup, cluster, cases, namespaces(cluster, cases))
    return {case.name: list(zip(directly[case.name], behind[case.name], strict=True)) for case in cases}


def namespaces(cluster: Cluster, cases: Iterable[Case]) -> Namespaces:
    """Make a namespace for each case, and return their names."""
    found = {}
    for case in cases:
        document = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"generateName": f"{case.name}-", "labels": {"case": case.name, **case.labels}},
        }
        created = cluster.api.create("/api/v1/namespaces", document)
        assert created.status == 201, created
        found[case.name] = created.document["metadata"]["name"]
    return found


def _under(
    setup: Directly | BehindGateway, cluster: Cluster, cases: tuple[Case, ...], named: Namespaces
) -> dict[str, list[Outcome]]:
    performed: list[tuple[Case, Answer, Outcome]] = []
    with setup:
        for case in cases:
            for operation in case.operations:
                api = cluster.user(operation.user)
                answer, outcome = perform(api, operation, named[case.name], case.names())
                performed.append((case, answer, outcome))
    audited = audit_annotations(cluster, [answer for _, answer, _ in performed])
    outcomes: dict[str, list[Outcome]] = {case.name: [] for case in cases}
    for case, answer, outcome in performed:
        annotations = audited[answer.headers["Audit-Id"]]
        outcomes[case.name].append(with_annotations(outcome, annotations, named[case.name], case.names()))
    return outcomes


def perform(api: Api, operation: Operation, namespace: str, names: list[str]) -> tuple[Answer, Outcome]:
    """Do *operation* in *namespace*, where the webhooks *names* apply; return the answer, raw and read."""
    path = operation.path.replace("{namespace}", namespace)
    document = operation.document
    if document is not None:
        document = json.loads(json.dumps(document).replace("{namespace}", namespace))
    answer = api.request(operation.method, path, document, operation.content_type)
    stored = api.get(operation.stored_at().replace("{namespace}", namespace))
    refusal = refusal_of(answer, names)
    outcome = Outcome(
        answer.status,
        None if refusal else normalised(answer.document, namespace),
        refusal,
        answer.warnings,
        normalised(stored.document, namespace),
    )
    return answer, outcome


# -- comparing ------------------------------------------------------------------------------------


def assert_equal(case: Case, pair: tuple[Outcome, Outcome]) -> None:
    """Fail unless the outcome behind the gateway is the direct one, or one it could have been."""
    direct, behind = pair
    assert_same_refusal(case, direct.refusal, behind.refusal)
    direct = without_round_trip(direct, behind)
    found = list(differences(asdict(comparable(case, direct)), asdict(comparable(case, behind))))
    assert not found, "directly, and behind the gateway:\n" + "\n".join(found)


def without_round_trip(direct: Outcome, behind: Outcome) -> Outcome:
    """Return *direct* without the change that the API server sees in every first patch.

    To apply it, the API server writes the object as JSON, which cuts the times in managedFields to seconds,
    and counts that as a change. It then calls earlier webhooks again, with the unchanged object.
    """
    first = direct.patches[0][0] if direct.patches else ""
    if (first, True) not in direct.calls or (first, False) not in behind.calls:
        return direct
    patched = {name for name, _ in direct.patches}
    calls = [
        (name, has_changed and name != first)
        for name, has_changed in direct.calls
        if name.startswith("0 ") or name in patched or (name, has_changed) in behind.calls
    ]
    return replace(direct, calls=tuple(calls))


def differences(direct: Any, behind: Any, place: str = "") -> Iterator[str]:
    """Yield a line for each place at which two documents differ."""
    if isinstance(direct, dict) and isinstance(behind, dict):
        for key in sorted(direct.keys() | behind.keys()):
            yield from differences(direct.get(key, "absent"), behind.get(key, "absent"), f"{place}/{key}")
    elif isinstance(direct, list | tuple) and isinstance(behind, list | tuple) and len(direct) == len(behind):
        for number, items in enumerate(zip(direct, behind, strict=True)):
            yield from differences(*items, f"{place}/{number}")
    elif direct != behind:
        yield f"{place}: {direct!r}, and {behind!r}"


def comparable(case: Case, outcome: Outcome) -> Outcome:
    """Return *outcome* without the parts that depend on the order in which validating webhooks answer."""
    speakers = [hook for hook in case.hooks if hook.phase == "validate" and "warnings" in hook.script]
    warnings = outcome.warnings if len(speakers) < 2 else tuple(sorted(outcome.warnings))
    calls, patches = outcome.calls, outcome.patches
    if case.in_entries:
        calls, patches = tuple(sorted(calls)), tuple(sorted(patches))
    status = 0 if outcome.refusal else outcome.status
    return replace(outcome, refusal=None, warnings=warnings, calls=calls, patches=patches, status=status)


def assert_same_refusal(case: Case, direct: Refusal | None, behind: Refusal | None) -> None:
    """Fail unless *behind* equals *direct*, or reports more denials."""
    if direct is None or behind is None:
        assert behind == direct, f"{direct}, and {behind}"
        return
    direct, behind = with_reason(direct), with_reason(behind)
    (line,) = direct.lines
    if len(behind.lines) == 1 and (line.webhook is None or line.webhook == behind.lines[0].webhook):
        named = replace(direct, lines=(replace(line, webhook=behind.lines[0].webhook),))
        assert behind == named, f"{named}, and {behind}"
        return
    # Several webhooks refuse: the API server reports the first answer, the gateway all of one failurePolicy.
    ordered_hooks = sorted(case.confined(), key=lambda hook: hook.configuration)
    validating = {hook.name: hook for hook in ordered_hooks if hook.phase == "validate"}
    assert line.webhook in validating
    policies = {validating[found.webhook or ""].fields.get("failurePolicy", "Fail") for found in behind.lines}
    assert len(policies) == 1
    if validating[line.webhook].fields.get("failurePolicy", "Fail") in policies:
        assert line in behind.lines
    order = [name for name in validating if name in {found.webhook for found in behind.lines}]
    assert [found.webhook for found in behind.lines] == order
    assert behind.code == code_of(validating[order[0]].script)


def with_reason(refusal: Refusal) -> Refusal:
    """Return *refusal* with the reason that the gateway adds where a policy gives none: kubectl shows it."""
    return replace(refusal, reason="Forbidden") if refusal.code == 403 and not refusal.reason else refusal


def code_of(script: dict[str, Any]) -> int:
    """Return the status code that a refusing *script* alone leads to."""
    code: int = script["deny"].get("code", 0) if "deny" in script else 500
    return max(code, 400)
