"""Records the answers of API servers: ``python -m tests.e2e.record [FILE…]``, by default all files.

They are the files of tests/recorded, each with one subject and one version. Those of other policy engines are
recorded only if they are named.
"""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.pure.openapi.documents import reduced
from tests.e2e.binaries import obtain
from tests.e2e.capture import CapturedPolicies, stable_namespace
from tests.e2e.cluster import Cluster
from tests.e2e.objects import GROUP, widget_definition
from tests.e2e.openapi_oracle import ask
from tests.e2e.other_engines import content as content_by_engine
from tests.e2e.policy_comparison import PATHS, Comparison, existing, seen_in, stable
from tests.e2e.policy_documents import DOCUMENTS
from tests.e2e.policy_documents import FILE as POLICY_DOCUMENTS
from tests.e2e.policy_subjects import FILES, OLDEST, SUBJECTS
from tests.e2e.setups import REGISTRATIONS
from tests.e2e.webhook_recording import record_webhooks
from tests.e2e.webhook_subjects import WEBHOOK_FILES, WebhookSubject
from tests.kit import ROOT
from tests.recorded.engine import RecordedEngine, first_failure
from tests.recorded.json_patches import FILE as JSON_PATCHES
from tests.recorded.json_patches import RECORDED, cases
from tests.recorded.other_engines.files import FILES as ENGINE_FILES
from tests.recorded.recording import (
    NEWEST,
    Operation,
    Recording,
    Surroundings,
    change_of,
    changed,
    path_of,
    read,
    text_of,
    written,
)
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.client import Answer, Api
    from tests.e2e.compare import Operation as SentOperation
    from tests.e2e.policy_comparison import Outcomes, Seen
    from tests.e2e.policy_subjects import Subject
    from tests.recorded.recording import Operations

    Json = dict[str, Any]

_COMPLETED: Final = ("Deployment", "Pod")
"""Kinds of which the API server completes objects: those in answers are not those that were recorded."""
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def record(cluster: Cluster, subject: Subject, folder: Path) -> Recording:
    """Return what the API server of *cluster* makes of *subject*; *folder* is for files.

    The custom resource ``widgets`` exists.
    """
    version, is_mutating = version_of(cluster), subject.phase == "mutate"
    documents = subject.documents(subject.name)
    comparison = Comparison(
        cluster, subject.name, subject.scenarios, subject.canary, with_objects=is_mutating
    )
    with furnished(cluster, subject):
        natively = comparison.natively()
    known = [each for each in subject.scenarios if (each.name, 0) in natively]
    with ExitStack() as stack:
        # Again, because operations delete some of the objects.
        stack.enter_context(furnished(cluster, subject))
        captured = stack.enter_context(CapturedPolicies(cluster, folder / "captured", documents, version))
        captured.take(subject.phase)
        access = _Access(cluster)
        schemas = _schemas(cluster) if is_mutating else []
        namespaces = [
            stable_namespace(cluster.api.get(f"/api/v1/namespaces/{name}").document)
            for name in ("default", subject.name)
        ]
        surroundings = Surroundings(version, namespaces, schemas)
        (folder / "engine").mkdir()
        engine = RecordedEngine(folder / "engine", documents, surroundings, access.authorize)
        stack.callback(engine.close)
        operations: dict[str, tuple[Operation, ...]] = {}
        for scenario in known:
            found = []
            for number, sent in enumerate(scenario.operations):
                without = comparison.perform(sent)
                reviews = captured.take(subject.phase)
                seen = natively[scenario.name, number]
                # Some kinds are deprecated.
                warnings = tuple(each for each in seen.warnings if each not in without.warnings)
                one = Operation(reviews, answer_of(replace(seen, warnings=warnings)))
                ours = engine.answer(one)
                if is_mutating and "denied request" not in one.answer.get("message", ""):
                    final = _final_object(comparison, sent, one, without, ours.get("object"))
                    one = replace(one, answer={**one.answer, "object": final})
                    captured.take(subject.phase)
                found.append(one)
            operations[scenario.name] = tuple(found)
        return Recording(surroundings, access.decisions, operations)


@contextmanager
def furnished(cluster: Cluster, subject: Subject) -> Iterator[None]:
    """Have what exists before the scenarios of *subject* exist inside the block."""
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": subject.name}}
    assert cluster.api.create("/api/v1/namespaces", made).status in (201, 409)
    with existing(cluster, [*subject.rights, *subject.placed(subject.name)]):
        yield


def _schemas(cluster: Cluster) -> list[Json]:
    paths = (f"/openapi/v3/apis/{GROUP}/{version}" for version in ("v1", "v2"))
    return [reduced(cluster.api.get(path).document) for path in paths]


def _final_object(
    comparison: Comparison, sent: SentOperation, one: Operation, without: Answer, ours: Json | None
) -> Json | None:
    """Return the object after all changes, before the API server completes it.

    Of *ours*, the object of an engine, the API server has to make what it makes of the object of its own
    policies. *without* is its answer without policies.
    """
    completed = one.answer.get("object")
    if completed is not None:
        before = one.reviews[0].request["object"]
        final: Json = changed(before, change_of(stable(without.document), completed))
        if ours is None or final == ours:
            return final
    assert sent.method == "POST", sent
    answer = comparison.perform(replace(sent, document=ours))
    seen = replace(seen_in(answer, {}), warnings=(), object=stable(answer.document))
    theirs = {key: value for key, value in one.answer.items() if key != "warnings"}
    assert answer_of(seen) == theirs, (sent, answer_of(seen), theirs)
    return ours


def stored(subject: Subject | WebhookSubject, version: str) -> Recording:
    """Return the recording of *subject* for *version*, or for the newest version."""
    path = path_of(subject.name, version)
    return read(path if path.exists() else path_of(subject.name), subject.sent)


def compare(subject: Subject | WebhookSubject, again: Recording) -> None:
    """Fail if *again* differs from the file of *subject*.

    In a version without a file, the answers have to be those of the newest version.
    """
    version = again.surroundings.kubernetes
    before = stored(subject, version)
    found = []
    if version == before.surroundings.kubernetes:
        pairs = [(before.surroundings, again.surroundings), (before.access, again.access)]
        found += [f"{old}\nnow {new}" for old, new in pairs if old != new]
        names = sorted(before.operations.keys() | again.operations.keys())
    else:
        names = sorted(before.operations.keys() & again.operations.keys())
        before, again = _only_answers(before), _only_answers(again)
    for name in names:
        if before.operations.get(name) != again.operations.get(name):
            both = zip_longest(before.operations.get(name, ()), again.operations.get(name, ()))
            found += [f"{name}: {old}\nnow {new}" for old, new in both if old != new]
    path = path_of(subject.name, before.surroundings.kubernetes).relative_to(ROOT)
    head = f"{path} differs; to write it: python -m tests.e2e.record {path}"
    if found:
        pytest.fail("\n\n".join([head, *found]), pytrace=False)


def _only_answers(recording: Recording) -> Recording:
    operations = {
        name: tuple(replace(one, reviews=()) for one in each) for name, each in recording.operations.items()
    }
    return replace(recording, operations=operations)


def differences(found: Outcomes, recorded: Operations, version: str) -> list[tuple[str, Json, Json]]:
    """Return each outcome of *found*, in an API server of *version*, that is not as it was *recorded*.

    Each with the name of its scenario, and what was recorded. Objects that the API server completes after
    the policies are not compared.
    """
    differing = []
    for (name, number), seen in found.items():
        warnings = tuple(each for each in seen.warnings if " is deprecated in " not in each)
        answer, before = answer_of(replace(seen, warnings=warnings)), dict(recorded[name][number].answer)
        if version == OLDEST:
            answer, before = first_failure(answer), first_failure(before)
        is_completed = answer.get("object", {}).get("kind", _COMPLETED[0]) in _COMPLETED
        for each in (answer, before):
            if is_completed:
                each.pop("object", None)
            else:
                each["object"] = _in_any_version(each["object"])
        if answer != before:
            differing.append((name, answer, before))
    return differing


def _in_any_version(document: Json) -> Json:
    """Return *document* without what the API server changes after the policies."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "generation"}
    return {**document, "apiVersion": "", "metadata": metadata}


class _Access:
    """Decisions of the authorizer of *cluster*."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.decisions: dict[str, Json] = {}

    def authorize(self, spec: Json) -> Json:
        document = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = self._cluster.api.create(ACCESS_REVIEWS, document).document["status"]
        decision = {
            "allowed": status["allowed"],
            # Of several roles that allow it, the API server names any.
            "reason": status.get("reason", "").partition(" by ")[0],
            "error": status.get("evaluationError", ""),
        }
        self.decisions[text_of(spec)] = decision
        return decision


def answer_of(seen: Seen) -> Json:
    """Return the form in which *seen* is recorded."""
    answer: Json = {"status": seen.status}
    if seen.refusal is not None:
        answer |= seen.refusal
    if seen.warnings:
        answer["warnings"] = list(seen.warnings)
    if seen.annotations:
        answer["annotations"] = seen.annotations
    if seen.object is not None:
        answer["object"] = seen.object
    return answer


def version_of(cluster: Cluster) -> str:
    """Return the minor version of *cluster*."""
    return ".".join(cluster.binaries.version.lstrip("v").split(".")[:2])


def refused_fields(api: Api) -> dict[str, list[str]]:
    """Return the fields at which the API server refuses each of the policies and bindings, sorted."""
    return {name: _refused_fields(api, document) for name, document in DOCUMENTS.items()}


def _refused_fields(api: Api, document: Json) -> list[str]:
    path = f"{REGISTRATIONS}/{PATHS[document['kind']]}?dryRun=All&fieldValidation=Strict"
    answer = api.create(path, document)
    if answer.status == 201:
        return []
    if answer.status == 400:
        return sorted(set(re.findall(r'unknown field "([^"]+)"', answer.message)))
    assert answer.status == 422, answer
    return sorted({cause["field"] for cause in answer.document["details"]["causes"]})


def _wait_for_widgets(cluster: Cluster) -> None:
    eventually(lambda: cluster.api.get(f"/openapi/v3/apis/{GROUP}/v1").status == 200)


def json_patches() -> str:
    """Return the content of the file of JSON Patches, by the API server's own code without a cluster."""
    drawn = cases(0, RECORDED)
    answers = ask({}, ({"live": live, "jsonPatch": expression} for live, expression in drawn))
    lines = [text_of(_shortened(live, answer)) for (live, _), answer in zip(drawn, answers, strict=True)]
    return f'{{"kubernetes": {text_of(NEWEST)}, "answers": [\n' + ",\n".join(lines) + "\n]}\n"


def _shortened(live: Json, answer: Json) -> Json:
    """Return *answer* with the change of *live* instead of the object, if it can be said."""
    if "error" in answer:
        return answer
    change = change_of(live, answer["merged"])
    return {"change": change} if text_of(changed(live, change)) == text_of(answer["merged"]) else answer


def main() -> None:
    """Write the given files."""
    paths = [Path(each).resolve() for each in sys.argv[1:]] or [
        *(*FILES, *WEBHOOK_FILES, JSON_PATCHES, POLICY_DOCUMENTS)
    ]
    if JSON_PATCHES in paths:
        paths.remove(JSON_PATCHES)
        JSON_PATCHES.write_text(json_patches())
    for path in [path for path in paths if path in ENGINE_FILES]:
        paths.remove(path)
        path.write_text(content_by_engine(path))
    for version in sorted({path.parent.name for path in paths}):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with Cluster(obtain(version), folder / "cluster") as cluster:
                definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                assert cluster.api.create(definitions, widget_definition()).status == 201
                _wait_for_widgets(cluster)
                for path in (path for path in paths if path.parent.name == version):
                    path.write_text(_content(cluster, path, folder / path.stem))


def _content(cluster: Cluster, path: Path, folder: Path) -> str:
    """Return the new content of the file *path*; *folder*, which does not exist yet, is for files."""
    if path == POLICY_DOCUMENTS:
        lines = (f"{text_of(name)}: {text_of(found)}" for name, found in refused_fields(cluster.api).items())
        return f'{{"kubernetes": {text_of(NEWEST)}, "fields": {{\n' + ",\n".join(lines) + "\n}}\n"
    folder.mkdir()
    if path in WEBHOOK_FILES:
        webhooks = WEBHOOK_FILES[path]
        return written(record_webhooks(cluster, webhooks, folder, version_of(cluster)), webhooks.sent)
    subject = SUBJECTS[path.stem]
    return written(record(cluster, subject, folder), subject.sent)


if __name__ == "__main__":
    main()
