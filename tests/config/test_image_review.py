"""``imageReview.webhooks`` of a GatewayConfiguration: names of validating webhooks and policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.merge.merged import merge
from gateway.config.merge.model import Config
from tests.config.documents import load_documents
from tests.config.test_webhooks import MUTATING, POOL

(HOOK,) = MUTATING["webhooks"]
VALIDATING: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "images"},
    "webhooks": [
        {**{k: v for k, v in HOOK.items() if k != "reinvocationPolicy"}, "name": "images.policies.test"}
    ],
}


def settings(*names: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "imageReview": {"webhooks": list(names)},
        **more,
    }


def test_the_name_of_a_validating_webhook_is_accepted() -> None:
    found = load_documents(VALIDATING, POOL, settings("images.policies.test"))
    assert found.gateway.image_review_webhooks == ("images.policies.test",)
    assert not found.warnings


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "image.policies.test",
            'there is no validating webhook "image.policies.test"; did you mean "images.policies.test"?',
        ),
        (HOOK["name"], f'there is no validating webhook "{HOOK["name"]}"'),
    ],
)
def test_another_name_is_refused(name: str, message: str) -> None:
    """Without the webhook, images that it denies would be allowed."""
    with pytest.raises(ConfigError) as refused:
        load_documents(MUTATING, VALIDATING, POOL, settings("images.policies.test", name))
    (problem,) = refused.value.problems
    assert problem.field == "imageReview.webhooks[1]"
    assert problem.message.startswith(message)


def test_a_webhook_that_cannot_be_read_is_not_a_missing_one() -> None:
    broken = {**VALIDATING, "webhooks": [{**VALIDATING["webhooks"][0], "failurePolicy": "Maybe"}]}
    with pytest.raises(ConfigError) as refused:
        load_documents(broken, POOL, settings("images.policies.test"))
    (problem,) = refused.value.problems
    assert problem.field == "webhooks[0].failurePolicy"


def test_with_custom_resources_another_name_is_a_warning() -> None:
    """A custom resource may have it."""
    files = load_documents(
        VALIDATING,
        POOL,
        settings("images.policies.test", "other.policies.test", kubernetes={"customResources": True}),
    )
    assert not files.warnings
    (warning,) = merge(files, [], None).config.warnings
    assert str(warning).startswith(
        'GatewayConfiguration: imageReview.webhooks: there is no webhook "other.policies.test"'
    )
    settled = replace(files.gateway, image_review_webhooks=("images.policies.test",))
    assert not merge(replace(files, gateway=settled), [], None).config.warnings
    assert not merge(Config(gateway=GatewaySettings()), [], None).config.warnings
