"""Gatekeeper's templates in CEL with their constraints, and its Config, as entries of the validating phase.

Source: github.com/open-policy-agent/frameworks constraint/pkg/client/client.go; github.com/open-policy-agent/
gatekeeper pkg/webhook/policy.go.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.loaders.gatekeeper_constraint import VERSIONS as CONSTRAINT_VERSIONS
from gateway.config.loaders.gatekeeper_constraint import ReadConstraint, read_config, read_constraint
from gateway.config.loaders.gatekeeper_template import VERSIONS, Template, read_template
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.model import MatchResources, NamedRule, ValidatingPolicy
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.gatekeeper.constraint import Constraint, ConstraintInForce
from gateway.pure.gatekeeper.matching import NO_NAMES
from gateway.pure.gatekeeper.registration import rules_for
from gateway.pure.gatekeeper.schema import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.gatekeeper.constraint import Action

TEMPLATES: Final = "templates.gatekeeper.sh"
CONSTRAINTS: Final = "constraints.gatekeeper.sh"
CONFIGS: Final = "config.gatekeeper.sh"
_SYNC_SETS: Final = "syncset.gatekeeper.sh"
_KINDS: Final = {TEMPLATES: ("ConstraintTemplate", VERSIONS), CONFIGS: ("Config", ("v1alpha1",))}
_INSTEAD: Final = {
    "mutations.gatekeeper.sh": (
        "mutates objects, which the gateway does not do for Gatekeeper's kinds yet; write it as a "
        "MutatingAdmissionPolicy, or keep it in Gatekeeper and call that as an HTTPS webhook"
    ),
    "expansion.gatekeeper.sh": (
        "makes Pods of workloads to review them, which the gateway does not do; add the kinds of the "
        "workloads to the constraint's match, and let the template's expressions find their Pod template"
    ),
    "externaldata.gatekeeper.sh": (
        "is for Rego and mutators, which the gateway does not evaluate; use a policy of a worker, which can "
        "call other servers"
    ),
    "connection.gatekeeper.sh": (
        "exports violations of Gatekeeper's audit, which the gateway does not have; use the decision log, or "
        "PolicyReports"
    ),
    "status.gatekeeper.sh": "is written by Gatekeeper's Pods for themselves; leave it out",
}
"""What the kinds of a group do that cannot be run, and what to use instead."""
_MAX_HINTS: Final = 20
_MAX_COMPARED: Final = 500
_DENY: Final[frozenset[Action]] = frozenset(("deny",))
GROUPS: Final = (TEMPLATES, CONSTRAINTS, CONFIGS, _SYNC_SETS, *_INSTEAD)


class GatekeeperDocuments:
    """The documents of Gatekeeper in one configuration: a ``Loader``."""

    def __init__(self) -> None:
        self.need_cluster: list[tuple[Document, str, str]] = []
        self._templates: dict[str, Template] = {}
        """By the kind of their constraints."""
        self._constraints: list[ReadConstraint] = []
        self._excluded = NO_NAMES
        self._first_of: dict[tuple[str, str], Document] = {}

    def read(self, document: Document, fields: Fields, kind: str) -> None:
        """See ``Loader``."""
        group, _, version = str(fields.content.get("apiVersion")).rpartition("/")
        fields.problems.null_is_empty = True
        if group in _INSTEAD:
            fields.problem("kind", f"found {shown(kind)} of {group}, which {_INSTEAD[group]}")
        elif group == _SYNC_SETS:
            effect = "objects are replicated for Rego, which the gateway does not evaluate"
            fields.problems.warn(document.path, f"has no effect: {effect}")
        elif group == CONSTRAINTS:
            self._read_constraint(document, fields, kind, version)
        else:
            known, versions = _KINDS[group]
            if kind != known:
                fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {known}")
            elif version not in versions:
                self._wrong_version(fields, group, version, versions)
            elif group == TEMPLATES:
                self._read_template(document, fields, version)
            else:
                self._excluded = read_config(fields)
                self._check_first(document, kind, "config")

    @property
    def param_kinds(self) -> Sequence[ParamKind]:
        """See ``Loader``: there are none."""
        return ()

    def webhooks(self, params: FixedParams) -> Iterator[Webhook]:
        """See ``Loader``."""
        known, work = sorted(self._templates), Work()
        hints = _MAX_HINTS if len(known) <= _MAX_COMPARED else 0
        for each in sorted(self._constraints, key=lambda one: (one.name, one.kind)):
            template = self._templates.get(each.kind)
            if template is None:
                if not each.document.problems.is_full:
                    # The search for similar names takes most of the time.
                    hint = did_you_mean(each.kind, known) if hints > 0 else ""
                    hints -= 1
                    message = f"there is no ConstraintTemplate with the kind {shown(each.kind)}{hint}"
                    each.document.problems.add(child(each.document.path, "kind"), message)
                continue
            parameters = each.parameters(template.schema, work)
            has_problems = template.document.problems.found or each.document.problems.found
            if each.actions and not has_problems:
                yield self._entry(each, template, parameters)

    @staticmethod
    def _wrong_version(fields: Fields, group: str, version: str, versions: tuple[str, ...]) -> None:
        expected = one_of(f"{group}/{each}" for each in versions)
        fields.problem("apiVersion", f"found {shown(f'{group}/{version}')}, expected {expected}")

    def _read_template(self, document: Document, fields: Fields, version: str) -> None:
        template = read_template(document, fields, version)
        if template.kind:
            self._templates.setdefault(template.kind, template)
        self._check_first(document, "ConstraintTemplate", template.name)

    def _read_constraint(self, document: Document, fields: Fields, kind: str, version: str) -> None:
        if version not in CONSTRAINT_VERSIONS:
            self._wrong_version(fields, CONSTRAINTS, version, CONSTRAINT_VERSIONS)
            return
        constraint = read_constraint(document, fields, kind)
        self._constraints.append(constraint)
        self._check_first(document, kind, constraint.name)

    def _check_first(self, document: Document, kind: str, name: str) -> None:
        first = self._first_of.setdefault((kind, name), document)
        if first is not document and name:
            document.repeats(name, first)

    def _entry(self, read: ReadConstraint, template: Template, parameters: object) -> Webhook:
        spec = {key: one for key, one in read.spec.content.items() if key != "parameters"}
        if parameters is not None:
            spec["parameters"] = parameters
        content = {"metadata": {"name": read.name}, "spec": spec}
        # An annotation asks for its mode whatever the constraint does by itself.
        actions = read.actions if read.mode is None else read.actions | _DENY
        constraint = Constraint(read.kind, read.name, read.match, actions, content)
        kinds = () if read.match is None else read.match.kinds
        rules = rules_for(kinds, template.operations)
        named = tuple(NamedRule((each,), (), "Exact") for each in rules)
        match = MatchResources(named, (), "Exact", EVERYTHING, EVERYTHING)
        # All constraints have them, and there may be thousands of both.
        excluded = sha256(_json(self._excluded.patterns)).hexdigest().encode()
        document = b"\n".join((template.source, _json(content), excluded))
        policy = ValidatingPolicy(read.name, match, None, template.conditions, document, template.rules)
        return ConstraintInForce(policy, constraint, self._excluded).webhook(read.mode)


def _json(content: object) -> bytes:
    try:
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return repr(content).encode()
