"""Tests of ``kyverno test``, as they are.

Files that a test names are read when it runs, except those of values and of the user.

Source: github.com/kyverno/kyverno cmd/cli/kubectl-kyverno apis/v1alpha1, variables/variables.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.files import UnusableFileError, read_file
from gateway.base.text import shown
from gateway.config.kinds.namespace import NAME_LABEL
from gateway.config.yaml.documents import plural_of, read_documents
from gateway.config.yaml.fields import Fields
from gateway.pure.core.namespace import Namespace
from gateway.tools.policy_tests.kyverno_entries import read_answers, read_entries
from gateway.tools.policy_tests.suite import bare_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gateway.config.yaml.documents import Document
    from gateway.tools.policy_tests.kyverno_entries import MockEntry

_GROUP: Final = "cli.kyverno.io/"
VALUES_VERSION: Final = f"{_GROUP}v1alpha1"
_RESULTS: Final = ("pass", "fail", "skip", "error", "warn")
_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE")
_OPERATION_VALUE: Final = "request.operation"
_PAYLOADS: Final = ("jsonPayload", "jsonPayloads", "httpPayloads", "envoyPayloads")
_FLAGS: Final = tuple(
    f"is{name}"
    for name in (
        "ValidatingAdmissionPolicy",
        "MutatingAdmissionPolicy",
        "ValidatingPolicy",
        "DeletingPolicy",
        "ImageValidatingPolicy",
        "GeneratingPolicy",
        "MutatingPolicy",
    )
)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """Which objects of a test a row is about. Empty members are not compared."""

    name: str
    namespace: str | None = ""
    """None: the object has no namespace."""
    kind: str = ""
    api_version: str = ""

    def __str__(self) -> str:
        """Return it as tests write it."""
        return "/".join(filter(None, (self.namespace, self.kind, self.name)))

    def names(self, found: Mapping[str, Any]) -> bool:
        """Whether it names the object *found*."""
        metadata = found["metadata"]
        return (
            metadata.get("name") == self.name
            and (self.namespace == "" or metadata.get("namespace") == self.namespace)
            and self.kind in ("", found["kind"])
            and self.api_version in ("", found["apiVersion"])
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One of the ``results``: what the policy makes of some objects."""

    policy: str
    rule: str
    resources: tuple[ObjectName, ...]
    """The objects. If it is empty, all of the test."""
    result: str
    operation: str
    """Empty for that of the values."""
    patched: str
    """The file with the objects after all changes. Empty if they are not compared."""
    fails_on_missing: bool
    """Whether an object that the file lacks fails."""


@dataclass(frozen=True, slots=True)
class Values:
    """What a test says of requests."""

    operation: str = "CREATE"
    operations: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By the names of a ClusterPolicy or Policy and of an object. Other policies have none of their own."""
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    subresources: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Resource with subresource, by apiVersion and kind of the object that is sent to it."""


@dataclass(frozen=True, slots=True)
class TestUser:
    """Who sends the requests of a test."""

    info: Mapping[str, Any] = field(default_factory=dict)
    """The ``userInfo`` of requests."""
    roles: tuple[str, ...] = ()
    """Each ``NAMESPACE:NAME``."""
    cluster_roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KyvernoTest:
    """One test: policies, objects, and rows of what is expected."""

    name: str
    file: Path
    document: int
    policies: tuple[Path, ...]
    resources: tuple[Path, ...]
    target_resources: tuple[Path, ...]
    param_resources: tuple[Path, ...]
    exceptions: tuple[Path, ...]
    context: Path | None
    """The file with what policies read."""
    cluster_resources: tuple[Path, ...]
    """The files with what is in the cluster instead."""
    entries: tuple[MockEntry, ...]
    """The data of GlobalContextEntries."""
    answers: Mapping[str, dict[str, Any]]
    """What ``http.Get`` returns, by URL."""
    others: tuple[Path, ...]
    """The files of values and of the user, which are read already."""
    inline_values: Mapping[str, object] | None
    """The values that the test has itself, instead of a file."""
    has_payloads: bool
    values: Values
    user: TestUser
    rows: tuple[Row, ...]


def is_kyverno_test(content: Mapping[str, object]) -> bool:
    """Whether *content* is a document of ``kyverno test``."""
    return content.get("kind") == "Test" and str(content.get("apiVersion")).startswith(_GROUP)


def read_kyverno_test(document: Document, number: int) -> KyvernoTest:
    """Return the test in *document*, the test *number* of its file, after reporting its problems."""
    fields = document.fields()
    fields.accept("kind", "apiVersion")
    metadata = fields.group("metadata")
    name = metadata.optional_string("name") or fields.optional_string("name") or document.file.stem
    folder = document.file.parent

    def paths(field_name: str) -> tuple[Path, ...]:
        return tuple(folder / text for text in fields.strings(field_name))

    context = fields.optional_string("context")
    test = KyvernoTest(
        name,
        document.file,
        number,
        paths("policies"),
        paths("resources"),
        paths("targetResources"),
        paths("paramResources"),
        paths("exceptions"),
        folder / context if context else None,
        paths("clusterResources"),
        read_entries(fields.mappings("globalContextEntries"), folder),
        read_answers(fields.mappings("apiCallResponses")),
        tuple(folder / str(fields.content[one]) for one in ("variables", "userinfo") if fields.has(one)),
        _inline_values(fields),
        bool([one for one in _PAYLOADS if fields.has(one)]),
        _values(fields, folder),
        _user(fields, folder),
        tuple(map(_row, fields.mappings("results"))),
    )
    fields.finish_leniently()
    return test


def _inline_values(fields: Fields) -> Mapping[str, object] | None:
    found = fields.content.get("values")
    return found if isinstance(found, dict) else None


def _row(fields: Fields) -> Row:
    fields.accept("kind", "generatedResource", "generatedResources", "cloneSourceResource", *_FLAGS)
    named = [_object_name(text) for text in fields.strings("resources")]
    specs = fields.mappings("resourceSpecs")
    if specs and fields.content.get("resources") is None:
        fields.problems.warn(fields.at("resourceSpecs"), "is not used without resources, as by Kyverno")
        specs = []
    for spec in specs:
        group, version = spec.optional_string("group"), spec.optional_string("version")
        spec.accept("kind", "subresource")
        named.append(
            ObjectName(
                spec.required_string("name"),
                spec.optional_string("namespace") or None,
                "",
                f"{group}/{version}" if group else version,
            )
        )
        spec.finish_leniently()
    row = Row(
        fields.required_string("policy"),
        fields.optional_string("rule"),
        tuple(dict.fromkeys(named)),
        fields.choice("result", _RESULTS),
        fields.choice("operation", ("", *_OPERATIONS), ""),
        fields.optional_string("patchedResources"),
        fields.boolean("failOnMissingResources"),
    )
    fields.finish_leniently()
    return row


def _object_name(text: str) -> ObjectName:
    namespace, _, name = text.rpartition("/")
    namespace, _, kind = namespace.partition("/")
    return ObjectName(name, namespace, kind)


def _named_document(fields: Fields, field_name: str, folder: Path) -> Fields | None:
    """Return a reader of the document in the file that the field names; its problems are of that file."""
    text = fields.optional_string(field_name)
    if not text:
        return None
    file = folder / text
    try:
        documents = list(read_documents(file, read_file(file).decode("utf-8-sig")))
    except (UnusableFileError, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, UnusableFileError) else "is not UTF-8 text"
        fields.problem(field_name, f"{file} {reason}")
        return None
    for one in documents:
        for problem in one.problems.errors():
            fields.problem(field_name, str(problem))
    if len(documents) != 1 or documents[0].content is None:
        fields.problem(field_name, f"found {len(documents)} documents in {shown(text)}, expected one")
        return None
    # Its problems are reported with the test: they have the path of both.
    return Fields(documents[0].content, fields.at(field_name), fields.problems)


def _values(fields: Fields, folder: Path) -> Values:
    inline = fields.mapping("values")
    reader = inline or _named_document(fields, "variables", folder)
    if inline is not None:
        fields.accept("variables")
    if reader is None:
        return Values()
    reader.accept("apiVersion", "kind", "metadata")
    operation = _operation(reader.group("globalValues"))
    namespaces: dict[str, Namespace] = {}
    for one in reader.mappings("namespaceSelector"):
        name = one.required_string("name")
        namespaces[name] = bare_namespace(name, one.string_map("labels"), {})
        one.finish_leniently()
    for one in reader.mappings("namespaces"):
        namespace = _namespace(one)
        namespaces[namespace.name] = namespace
    values = Values(operation or "CREATE", dict(_operations(reader)), namespaces, dict(_subresources(reader)))
    reader.finish_leniently()
    return values


def _operation(values: Fields) -> str:
    """Return the operation among *values*, or an empty text. CONNECT is CREATE, as for Kyverno."""
    found = values.choice(_OPERATION_VALUE, ("", *_OPERATIONS, "CONNECT"), "")
    return "CREATE" if found == "CONNECT" else found


def _operations(reader: Fields) -> Iterator[tuple[tuple[str, str], str]]:
    for policy in reader.mappings("policies"):
        name = policy.required_string("name")
        # What policies would read by their own calls: no policy that the gateway loads has such values.
        policy.accept("rules")
        for one in policy.mappings("resources"):
            resource = one.required_string("name")
            if operation := _operation(one.group("values")):
                yield (name, resource), operation
            one.finish_leniently()
        policy.finish_leniently()


def _namespace(fields: Fields) -> Namespace:
    """Return the Namespace behind *fields*; the API server adds a label with its name."""
    metadata = fields.group("metadata")
    name, labels = metadata.required_string("name"), metadata.string_map("labels")
    labels = {NAME_LABEL: name, **labels}
    document = {
        **fields.content,
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {**metadata.content, "labels": labels},
    }
    return Namespace(name, labels, orjson.dumps(document))


def _subresources(reader: Fields) -> Iterator[tuple[tuple[str, str], str]]:
    for one in reader.mappings("subresources"):
        sub, parent = one.required_group("subresource"), one.required_group("parentResource")
        group, version = sub.optional_string("group"), sub.optional_string("version")
        kind, name = sub.required_string("kind"), sub.required_string("name")
        parent_name = parent.optional_string("name") or plural_of(parent.optional_string("kind"))
        _, _, sub_name = name.rpartition("/")
        yield (f"{group}/{version}" if group else version, kind), f"{parent_name}/{sub_name}"


def _user(fields: Fields, folder: Path) -> TestUser:
    reader = _named_document(fields, "userinfo", folder)
    if reader is None:
        return TestUser()
    reader.accept("apiVersion", "kind", "metadata")
    info = reader.group("userInfo")
    extra = info.mapping("extra")
    user: dict[str, Any] = {
        "username": info.optional_string("username"),
        "groups": list(info.strings("groups")),
        "uid": info.optional_string("uid"),
        "extra": {name: list(extra.strings(name)) for name in extra.content} if extra else {},
    }
    # Expressions do not find what is empty.
    user = {name: value for name, value in user.items() if value}
    info.finish_leniently()
    # No policy can name a role without a namespace.
    roles = tuple(each for each in reader.strings("roles") if ":" in each)
    cluster_roles = tuple(reader.strings("clusterRoles"))
    if not user and (roles or cluster_roles):
        # Rules compare roles if there is a user.
        user = {"username": ""}
    found = TestUser(user, roles, cluster_roles)
    reader.finish_leniently()
    return found
