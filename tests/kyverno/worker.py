"""A worker that stands for Kyverno's: patterns of one field, labels, and the audit annotations of rules.

``--policies DIR`` may be repeated. A pattern has one field of ``spec``, which has to be equal. A mutate rule
adds labels. A PolicyException leaves a rule out. ``Values`` may have the status that a rule has instead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from admission_gateway_worker import Denied, PolicyServer, Review

Json = dict[str, Any]
ACTION = {
    "type": "object",
    "properties": {"action": {"enum": ["deny", "warn", "audit"]}},
    "additionalProperties": False,
}
_PODS = ("Pod", "Deployment")


def documents(arguments: list[str]) -> list[Json]:
    """The documents of all folders in *arguments*, from which they are removed."""
    found: list[Json] = []
    while "--policies" in arguments:
        index = arguments.index("--policies")
        for file in sorted(Path(arguments[index + 1]).rglob("*.yaml")):
            found += [one for one in yaml.safe_load_all(file.read_text()) if one]
        del arguments[index : index + 2]
    return found


def serve(server: PolicyServer, read: list[Json]) -> None:
    """Register the rules of the policies in *read*."""
    excepted = {
        (one["policyName"], rule)
        for document in read
        if document["kind"] == "PolicyException"
        for one in document["spec"]["exceptions"]
        for rule in one["ruleNames"]
    }
    told = {
        (policy["name"], rule["name"]): rule["values"]["status"]
        for document in read
        if document["kind"] == "Values"
        for policy in document.get("policies", ())
        for rule in policy.get("rules", ())
    }
    for document in read:
        if document["kind"] not in ("ClusterPolicy", "Policy"):
            continue
        name, namespace = document["metadata"]["name"], document["metadata"].get("namespace")
        name = f"{namespace}/{name}" if namespace else name
        for rule in document["spec"]["rules"]:
            key = (name, rule["name"])
            _add(server, name, rule, "skip" if key in excepted else told.get(key, ""))


def _add(server: PolicyServer, policy: str, rule: Json, known: str) -> None:
    kinds = {kind for one in rule["match"]["any"] for kind in one["resources"]["kinds"]}
    is_mutating = "mutate" in rule

    def begins(review: Review) -> bool:
        """Annotate the rule, and return whether it is evaluated."""
        kind = (review.object or review.old_object or {})["kind"]
        if kind not in kinds and not ("Pod" in kinds and kind in _PODS):
            return False
        if kind not in kinds:
            review.annotate("rule", f"autogen-{rule['name']}")
        review.annotate("status", known or "pass")
        return not known

    def validate(review: Review) -> None:
        if not begins(review):
            return
        spec = (review.object or {}).get("spec", {})
        spec = spec.get("template", {}).get("spec", spec)
        ((field, wanted),) = rule["validate"]["pattern"]["spec"].items()
        if spec.get(field) != wanted:
            review.annotate("status", "fail")
            message = rule["validate"].get("message", "wrong")
            if review.parameters.get("action") == "warn":
                review.warn(f"policy {policy}.{rule['name']}: {message}")
                return
            raise Denied(f"\n\nresource was blocked\n\n{policy}:\n  {rule['name']}: {message}\n", code=400)

    def mutate(review: Review) -> None:
        if begins(review):
            labels = rule["mutate"]["patchStrategicMerge"]["metadata"]["labels"]
            assert review.object is not None
            present = review.object["metadata"].setdefault("labels", {})
            if labels.items() <= present.items():
                review.annotate("status", "skip")
            present.update(labels)

    served = f"{policy}/{rule['name']}"
    server.policy(served, mutating=is_mutating, parameters=ACTION)(mutate if is_mutating else validate)


if __name__ == "__main__":
    made = PolicyServer()
    serve(made, documents(sys.argv))
    made.main()
