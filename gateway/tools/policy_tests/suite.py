"""Files of the kind PolicyTest to suites of cases.

Source: docs/test-policies.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import orjson

from admission_gateway_worker.json_patch.patch import PatchSyntaxError, parse_patch
from gateway.base.errors import MalformedReview
from gateway.base.text import described
from gateway.config.kinds.namespace import NAME_LABEL
from gateway.config.yaml.documents import GATEWAY_VERSION, POLICY_TEST
from gateway.engine.dry_run import BOTH_PHASES
from gateway.engine.object_review import DEFAULT_GROUPS, DEFAULT_USER, RequestOptions, request_for, review_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import OPERATIONS
from gateway.tools.offline.message_lines import lines_of
from gateway.tools.offline.reading import read_review
from gateway.tools.policy_tests.objects import read_objects

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.engine.object_review import Json
    from gateway.pure.core.webhook import Phase
    from gateway.tools.policy_tests.objects import TestObjects

_OF_OBJECTS: Final = ("operation", "oldObject", "resource", "user", "groups", "namespace", "dryRun")


@dataclass(frozen=True, slots=True)
class Expectation:
    """Everything that a case expects. What is None is not checked."""

    allowed: bool | None = None
    code: int | None = None
    message: str | None = None
    message_contains: str | None = None
    message_lines: tuple[str, ...] | None = None
    """The lines of all denials, without the names of webhooks, sorted."""
    warnings: tuple[str, ...] | None = None
    patch: list[Json] | None = None
    """JSON Patch whose result on the object has to be the object after all changes."""
    object: Json | None = None
    """The object after all changes."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is checked."""
        return self == Expectation()


@dataclass(frozen=True, slots=True)
class Case:
    """One case: a review, and the decision that is expected."""

    name: str
    index: int
    """In the ``cases`` of its document."""
    body: bytes
    """JSON of the AdmissionReview."""
    namespace: Namespace | None
    """The namespace of the request, if the case describes it."""
    phases: tuple[Phase, ...]
    webhooks: tuple[str, ...]
    """Names of the only webhooks that take part. If it is empty, all do."""
    expect: Expectation
    objects: TestObjects
    """What policies read beside the objects of the suite."""
    changes_again: tuple[str, ...]
    """Names of webhooks that may change their own results."""


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one document."""

    name: str
    file: Path
    document: int
    """Its index among the documents of the file that are suites."""
    config: tuple[Path, ...]
    cases: tuple[Case, ...]
    objects: TestObjects
    """What policies read beside the objects of the configuration."""
    changes_again: tuple[str, ...]
    """Names of webhooks that may change their own results in all cases."""


def read_suite(
    document: Document, number: int, config: tuple[Path, ...], default_config: tuple[Path, ...] = ()
) -> Suite:
    """Return the suite of *document*, the PolicyTest *number* of its file, after reporting its problems.

    *config* replaces the configuration that it names; *default_config* is the one if it names none.
    """
    fields = document.fields()
    if document.path:
        fields.problems.add(document.path, f"found a {POLICY_TEST} in a list, expected a document of its own")
    fields.choice("kind", (POLICY_TEST,))
    fields.choice("apiVersion", (GATEWAY_VERSION,))
    metadata = fields.group("metadata")
    name = metadata.optional_string("name") or document.file.stem
    metadata.accept("labels", "annotations")
    metadata.finish()
    folder = document.file.parent
    own = tuple(folder / path for path in fields.strings("config"))
    config = config or own or default_config
    if not config and document.content is not None:
        fields.problem(
            "config",
            "is required without --config, $ADMISSION_GATEWAY_CONFIG and ./gateway.yaml: "
            "the files or folders of the configuration",
        )
    objects = read_objects(fields, folder)
    changes_again = fields.strings("changesAgain")
    cases = tuple(_case(one, index, folder) for index, one in enumerate(fields.mappings("cases")))
    if not cases and document.content is not None:
        fields.problem("cases", "found none, expected at least one")
    names: set[str] = set()
    for case in cases:
        if case.name in names:
            fields.problems.add(f"cases[{case.index}].name", "found a second time in this suite")
        names.add(case.name)
    fields.finish()
    return Suite(name, document.file, number, config, cases, objects, changes_again)


def _case(fields: Fields, index: int, folder: Path) -> Case:
    name = fields.required_string("name")
    namespace, namespace_name = _namespace(fields)
    old = _object(fields, "oldObject", folder)
    options = RequestOptions(
        fields.choice("operation", OPERATIONS, "CREATE"),
        fields.string("user", DEFAULT_USER),
        fields.strings("groups") or DEFAULT_GROUPS,
        namespace_name,
        fields.optional_string("resource"),
        old,
        fields.boolean("dryRun") if fields.has("dryRun") else True,
    )
    objects = read_objects(fields, folder)
    changes_again = fields.strings("changesAgain")
    return Case(
        name,
        index,
        _body(fields, options, folder),
        namespace,
        tuple(
            phase
            for phase in BOTH_PHASES
            if fields.choice("phase", ("mutate", "validate", "both"), "both") in (phase, "both")
        ),
        _webhooks_and_finish(fields),
        _expectation(fields),
        objects,
        changes_again,
    )


def _webhooks_and_finish(fields: Fields) -> tuple[str, ...]:
    webhooks = fields.strings("webhooks")
    fields.accept("expect", "description")
    fields.finish()
    return webhooks


def _body(fields: Fields, options: RequestOptions, folder: Path) -> bytes:
    """Return the review of a case; empty after a problem."""
    file = fields.optional_string("review")
    found = _object(fields, "object", folder)
    if (not file) == (found is None) and not fields.problems.found:
        fields.problems.add(fields.path, "expected one of object and review")
    try:
        if file:
            for name in _OF_OBJECTS:
                if name != "namespace" and fields.has(name):
                    fields.problem(name, "is for an object, and review has it already")
            content, read = read_review(str(folder / file))
            if read.get("kind") != "AdmissionReview":
                fields.problem("review", f"{file} is not an AdmissionReview")
            return content
        return b"" if found is None else review_of(request_for(found, options))
    except MalformedReview as error:
        fields.problems.add(fields.path, str(error))
        return b""


def _object(fields: Fields, name: str, folder: Path) -> Json | None:
    """Return the object in the field *name*: a mapping, or the path of a file."""
    value = fields.content.get(name)
    if not isinstance(value, str):
        reader = fields.mapping(name)
        return None if reader is None else dict(reader.content)
    try:
        return read_review(str(folder / fields.required_string(name)))[1]
    except MalformedReview as error:
        fields.problem(name, str(error))
        return None


def bare_namespace(name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Namespace:
    """Return a namespace with these *labels* and *annotations*, and the label that every namespace has."""
    labels = {**labels, NAME_LABEL: name}
    metadata = {"name": name, "labels": labels, **({"annotations": annotations} if annotations else {})}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return Namespace(name, labels, orjson.dumps(document))


def _namespace(fields: Fields) -> tuple[Namespace | None, str]:
    """Return the namespace of the request if the case describes it, and its name."""
    if isinstance(fields.content.get("namespace"), str):
        return None, fields.required_string("namespace")
    reader = fields.mapping("namespace")
    if reader is None:
        return None, ""
    name = reader.required_string("name")
    namespace = bare_namespace(name, reader.string_map("labels"), reader.string_map("annotations"))
    reader.finish()
    return namespace, name


def _expectation(fields: Fields) -> Expectation:
    reader = fields.mapping("expect")
    if reader is None:
        return Expectation()
    found = Expectation(
        reader.boolean("allowed") if reader.has("allowed") else None,
        reader.integer("code", 0, 100, 599) if reader.has("code") else None,
        reader.string("message", None),
        reader.string("messageContains", None),
        lines_of(reader.strings("messageLines")) if reader.has("messageLines") else None,
        reader.strings("warnings") if reader.has("warnings") else None,
        _patch(reader),
        None if (wanted := reader.mapping("object")) is None else dict(wanted.content),
    )
    reader.finish()
    if found.is_empty:
        fields.problem("expect", "found nothing, expected at least allowed")
    return found


def _patch(reader: Fields) -> list[Json] | None:
    value = reader.content.get("patch")
    if not reader.has("patch"):
        return None
    if not isinstance(value, list):
        reader.problem("patch", f"found {described(value)}, expected a list of JSON Patch operations")
        return None
    try:
        parse_patch(orjson.dumps(value))
    except PatchSyntaxError as error:
        reader.problem("patch", str(error))
    return cast("list[Json]", value)
