"""``help`` of webhooks, and the annotation of policy documents."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.config.documents import load_documents, problems_of
from tests.config.policy_rollouts import KINDS, Kind
from tests.config.test_policy_rollout import EACH_KIND, merged
from tests.config.test_webhooks import MUTATING, POOL, WEBHOOK

HELP = "Add metadata.labels.team, or see https://wiki.example/labels"
WRONG = ["", "x" * 257, "one\ntwo", "a\x1b[2Jb", "c1\x85"]


def helped(kind: Kind, text: str) -> list[dict[str, Any]]:
    """The documents of *kind*, with the annotation at the policy."""
    documents = copy.deepcopy([kind.document(), *kind.others])
    is_binding = documents[0]["kind"].endswith("PolicyBinding")
    documents[is_binding]["metadata"]["annotations"] = {"admission-gateway.io/help": text}
    return documents


@EACH_KIND
def test_the_entries_of_each_kind_have_the_help_of_its_annotation(kind: Kind) -> None:
    assert {one.help for one in load_documents(*helped(kind, HELP)).webhooks} == {HELP}
    assert {one.help for one in load_documents(kind.document(), *kind.others).webhooks} == {""}


@EACH_KIND
def test_custom_resources_have_help_and_stay_the_same_objects(kind: Kind) -> None:
    first = merged(helped(kind, HELP))
    assert HELP in {one.help for one in first.config.webhooks}
    assert [*merged(helped(kind, HELP), first).config.webhooks] == [*first.config.webhooks]


@pytest.mark.parametrize("text", WRONG)
def test_a_help_that_is_not_one_short_line_is_refused(text: str) -> None:
    ((field, message),) = problems_of(POOL, {**MUTATING, "webhooks": [{**WEBHOOK, "help": text}]})
    assert field == "webhooks[0].help"
    assert "expected a text or URL in one line" in message
    for name in ("ValidatingPolicy", "ValidatingAdmissionPolicyBinding"):
        ((field, message),) = problems_of(*helped(KINDS[name], text))
        assert field == 'metadata.annotations["admission-gateway.io/help"]'
        assert "expected a text or URL in one line" in message


def test_a_webhook_has_the_help_that_it_is_given() -> None:
    assert [
        one.help
        for one in load_documents(POOL, {**MUTATING, "webhooks": [{**WEBHOOK, "help": HELP}]}).webhooks
    ] == [HELP]
