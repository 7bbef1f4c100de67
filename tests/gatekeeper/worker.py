"""A worker that stands for Gatekeeper's: required labels, inventory, expansion, and labels that mutators add.

``--policies DIR`` may be repeated. Each constraint is a policy that requires the labels in its parameters. A
name that an object of the inventory has, too, is a violation. Of a Deployment the Pod template is reviewed if
there is an ExpansionTemplate.
"""

from __future__ import annotations

import sys
from typing import Any

from admission_gateway_worker import Denied, PolicyServer, Review
from tests.kyverno.worker import ACTION, documents

Json = dict[str, Any]
_OWN = "gatekeeper.sh/"


def serve(server: PolicyServer, read: list[Json]) -> None:
    """Register the policies of the documents in *read*."""
    expansions = [one["metadata"]["name"] for one in read if one["kind"] == "ExpansionTemplate"]
    known = {one["metadata"]["name"] for one in read if _OWN not in one["apiVersion"]}
    mutators = [one for one in read if one["apiVersion"].startswith("mutations.")]
    for one in read:
        if one["apiVersion"].startswith("constraints."):
            _add(server, one, known, expansions)

    @server.policy("mutation", mutating=True)
    def mutation(review: Review) -> None:
        assert review.object is not None
        for one in mutators:
            key = one["spec"]["location"].rpartition(".")[2]
            labels = review.object["metadata"].setdefault("labels", {})
            labels.setdefault(key, one["spec"]["parameters"]["assign"]["value"])


def _add(server: PolicyServer, constraint: Json, known: set[str], expansions: list[str]) -> None:
    name, wanted = constraint["metadata"]["name"], constraint["spec"].get("parameters", {}).get("labels", [])
    kinds = {kind for one in constraint["spec"].get("match", {}).get("kinds", ()) for kind in one["kinds"]}

    @server.policy(f"{constraint['kind']}/{name}", parameters=ACTION)
    def validate(review: Review) -> None:
        current = review.object or review.old_object
        assert current is not None
        reviewed = [("", current)] if not kinds or current["kind"] in kinds else []
        if "template" in current.get("spec", {}):
            reviewed += [(f"[Implied by {each}] ", current["spec"]["template"]) for each in expansions]
        lines = []
        for prefix, one in reviewed:
            metadata = one.get("metadata", {})
            missing = [label for label in wanted if label not in metadata.get("labels", {})]
            lines += [f"{prefix}missing label: {label}" for label in missing]
            lines += [f"{prefix}the name is taken"] if metadata.get("name") in known else []
        if lines:
            message = "\n".join(f"[{name}] {line}" for line in sorted(lines))
            raise Denied(message, code=403, reason="Forbidden")


if __name__ == "__main__":
    made = PolicyServer()
    serve(made, documents(sys.argv))
    made.main()
