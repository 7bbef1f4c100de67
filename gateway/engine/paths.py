"""The webhooks that each path of the front end selects, and the path of a selection.

For PHASE ``mutate`` or ``validate``, and POLICY ``fail`` or ``ignore``:

    /PHASE                   all webhooks of the phase
    /PHASE.POLICY            those with that failurePolicy
    /PHASE[.POLICY]/NAME     those of the configuration NAME
    /PHASE[.POLICY].only/CONFIGURATION/WEBHOOK[/CONFIGURATION/WEBHOOK...]
                             the named ones
    /PHASE[.POLICY].except/CONFIGURATION/WEBHOOK[/CONFIGURATION/WEBHOOK...]
                             all but the named ones
    /PHASE[.POLICY].versions/KEY
                             the part with that key of each webhook (``gateway.pure.core.versions``)
    /PHASE[.POLICY].versions.N/KEY/BOUND[/BOUND...]
                             the N-th section of these, from 1. The next section begins at each BOUND:
                             CONFIGURATION/WEBHOOK is that webhook; CONFIGURATION/0 is the first configuration
                             whose name is not less than CONFIGURATION

The API server accepts a path only if every part of it is a DNS name, as the names of configurations and
webhooks are. A named webhook that does not exist is ignored, so that a registration may be older than the
configuration. ``only`` without any existing webhook is not a valid path, and neither is a KEY that no webhook
has. Each request of a webhook belongs to one of its parts, and each part to one section. There is one
exception: if the webhook at which a section begins does not exist, the webhooks of its configuration that may
be before or after it are in both sections. Such a webhook may be called twice until the gateway is registered
again; otherwise no entry might call it.

Source: k8s.io/apiserver pkg/util/webhook/validation.go (paths).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakValueDictionary

from gateway.config.merge.policy_authors import AUTHORS
from gateway.pure.core.exemptions import by_webhook
from gateway.pure.core.matching import Selection
from gateway.pure.core.versions import by_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import FailurePolicy, Phase, Webhook

Choice = Literal["only", "except"]

KEPT: Final = 64
"""Cached selections of paths with ``only`` and ``except``; of paths with ``versions`` at least as many as
there are webhooks. Paths that a client makes up replace the least recently used ones, and memory does not
grow."""

IMAGE_REVIEW: Final = "/image-review"
"""The path of ImageReviews instead of AdmissionReviews."""
START: Final = "0"
"""Instead of a webhook's name: before all webhooks of a configuration. No webhook has this name."""
_FIRST_LABEL: Final = re.compile(r"(?P<head>/.+\.versions)(?:\.(?P<section>[1-9][0-9]{0,8}))?")

_POLICIES: Final[tuple[FailurePolicy | None, ...]] = (None, "Fail", "Ignore")


def path_of(
    phase: Phase, policy: FailurePolicy | None, choice: Choice | None = None, named: Sequence[Webhook] = ()
) -> str:
    """Return the path of ``only`` or ``except`` the *named* webhooks of *phase* and *policy*.

    None stands for both policies.
    """
    head = "/" + ".".join(filter(None, (phase, policy and policy.lower(), choice)))
    return "/".join([head, *(f"{webhook.configuration}/{webhook.name}" for webhook in named)])


def path_of_versions(
    phase: Phase,
    policy: FailurePolicy | None,
    key: str,
    section: int = 1,
    bounds: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the path of the *section*, from 1, of the parts with *key*; sections begin at *bounds*."""
    number = str(section) if bounds else None
    head = ".".join(filter(None, (phase, policy and policy.lower(), "versions", number)))
    return "/".join(["", head, key, *(name for bound in bounds for name in bound)])


class Paths:
    """The paths of one configuration. Paths that select the same webhooks share a Selection and its cache."""

    def __init__(self, config: Config) -> None:
        self._exceptions = by_webhook(config.exceptions)
        # Authors of exceptions must not become authors of policies.
        self._exceptions.pop(AUTHORS, None)
        named_for_images = config.gateway.image_review_webhooks
        of_images = [one for one in config.validating if one.name in named_for_images]
        self.of_image_reviews = Selection("validate", of_images, self._exceptions) if of_images else None
        """The webhooks that answer ImageReviews. None if there is no path for them."""
        self._fixed: dict[str, Selection] = {}
        self._chosen: OrderedDict[str, Selection] = OrderedDict()
        self._by_versions: OrderedDict[str, Selection] = OrderedDict()
        self._by_webhooks: WeakValueDictionary[tuple[Phase, tuple[Webhook, ...]], Selection] = (
            WeakValueDictionary()
        )
        self._choices: dict[str, tuple[Phase, Choice, Sequence[Webhook]]] = {}
        """The webhooks to choose from, by the first part of a path with ``only`` or ``except``."""
        self._by_head: dict[str, tuple[Phase, FailurePolicy | None]] = {}
        """Phase and policy, by the first part of a path with ``versions``."""
        self._of_phase: dict[Phase, tuple[Webhook, ...]] = {
            "mutate": config.mutating,
            "validate": config.validating,
        }
        self._parts: dict[Phase, list[dict[str, Webhook]]] = {}
        """The parts of each webhook, for phases of which a path with ``versions`` was used."""
        self._named: dict[Phase, frozenset[tuple[str, str]]] = {}
        phases: tuple[tuple[Phase, Sequence[Webhook]], ...] = (
            ("mutate", config.mutating),
            ("validate", config.validating),
        )
        for phase, webhooks in phases:
            names = sorted(name for of, name in config.configurations if of == phase)
            self._named[phase] = frozenset(map(_name, webhooks))
            for policy in _POLICIES:
                self._add(phase, policy, webhooks, names)

    def _add(
        self, phase: Phase, policy: FailurePolicy | None, webhooks: Sequence[Webhook], names: Iterable[str]
    ) -> None:
        path = path_of(phase, policy)
        chosen = [webhook for webhook in webhooks if policy in (None, webhook.failure_policy)]
        self._fixed[path] = self._selection(phase, chosen)
        for name in names:
            of_name = [webhook for webhook in chosen if webhook.configuration == name]
            self._fixed[f"{path}/{name}"] = self._selection(phase, of_name)
        choices: tuple[Choice, ...] = ("only", "except")
        for choice in choices:
            self._choices[path_of(phase, policy, choice)] = phase, choice, chosen
        self._by_head[f"{path}.versions"] = phase, policy

    def __len__(self) -> int:
        """The number of paths without ``only``, ``except`` and ``versions``."""
        return len(self._fixed)

    def __getitem__(self, path: str) -> Selection:
        """Return the selection of *path*; KeyError if there is no such path."""
        found = self.get(path)
        if found is None:
            raise KeyError(path)
        return found

    def get(self, path: str) -> Selection | None:
        """Return the selection of *path*; None if there is no such path."""
        found = self._fixed.get(path)
        if found is not None:
            return found
        if path == IMAGE_REVIEW:
            return self.of_image_reviews
        for kept in (self._chosen, self._by_versions):
            found = kept.get(path)
            if found is not None:
                kept.move_to_end(path)
                return found
        return self._choose(path)

    def _choose(self, path: str) -> Selection | None:
        head, _, rest = path[1:].partition("/")
        parts = rest.split("/")
        if path[:1] != "/":
            return None
        if of_versions := _FIRST_LABEL.fullmatch(f"/{head}"):
            found = self._choose_versions(of_versions["head"], of_versions["section"], parts)
            return self._keep(self._by_versions, max(KEPT, *map(len, self._of_phase.values())), path, found)
        if f"/{head}" not in self._choices or len(parts) % 2:
            return None
        phase, choice, webhooks = self._choices[f"/{head}"]
        named = set(zip(parts[::2], parts[1::2], strict=True))
        is_only = choice == "only"
        # Compared with all webhooks of the phase: a webhook that changed its failurePolicy still exists.
        if is_only and named.isdisjoint(self._named[phase]):
            return None
        found = self._selection(phase, [hook for hook in webhooks if (_name(hook) in named) == is_only])
        return self._keep(self._chosen, KEPT, path, found)

    @staticmethod
    def _keep(
        kept: OrderedDict[str, Selection], most: int, path: str, found: Selection | None
    ) -> Selection | None:
        if found is not None:
            if len(kept) >= most:
                kept.popitem(last=False)
            kept[path] = found
        return found

    def _choose_versions(self, head: str, section: str | None, parts: Sequence[str]) -> Selection | None:
        key, *names = parts
        bounds = list(zip(names[::2], names[1::2], strict=False))
        number = int(section or 1)
        if head not in self._by_head or len(names) % 2 or (section is None) != (not bounds):
            return None
        if number > len(bounds) + 1:
            return None
        phase, policy = self._by_head[head]
        webhooks = self._of_phase[phase]
        if phase not in self._parts:
            self._parts[phase] = list(map(by_versions, webhooks))
        if not any(key in by_key for by_key in self._parts[phase]):
            return None
        sections = _sections(webhooks, bounds)
        return self._selection(
            phase,
            [
                by_key[key]
                for webhook, by_key, own_sections in zip(webhooks, self._parts[phase], sections, strict=True)
                if key in by_key and number in own_sections and policy in (None, webhook.failure_policy)
            ],
        )

    def _selection(self, phase: Phase, webhooks: Sequence[Webhook]) -> Selection:
        key = phase, tuple(webhooks)
        found = self._by_webhooks.get(key)
        if found is None:
            found = self._by_webhooks[key] = Selection(phase, webhooks, self._exceptions)
        return found


def _sections(webhooks: Sequence[Webhook], bounds: Sequence[tuple[str, str]]) -> list[range]:
    """Return for each of *webhooks* its sections, from 1: one section, or several if *bounds* leave it open.

    A bound at a webhook that does not exist may have been anywhere in its configuration, between the bounds
    before and after it.
    """
    within = {bound: number for number, bound in enumerate(bounds, 2) if bound[1] != START}
    missing: dict[str, list[int]] = {}
    for name, webhook_name in within.keys() - set(map(_name, webhooks)):
        missing.setdefault(name, []).append(within[name, webhook_name])
    for numbers in missing.values():
        numbers.sort()
    last: list[int] = []
    configuration: str | None = None
    following = 0
    for webhook in reversed(webhooks):
        if webhook.configuration != configuration:
            configuration = webhook.configuration
            following = len(bounds) + 2
        numbers = missing.get(configuration, [])
        before = bisect_left(numbers, following)
        last.append(numbers[before - 1] if before else 1)
        following = min(following, within.get(_name(webhook), following))
    firsts = _first_sections(webhooks, bounds, within)
    return [range(first, max(first, end) + 1) for first, end in zip(firsts, reversed(last), strict=True)]


def _first_sections(
    webhooks: Sequence[Webhook], bounds: Sequence[tuple[str, str]], within: Mapping[tuple[str, str], int]
) -> Iterator[int]:
    """Yield for each of *webhooks* the last section whose bound is not after it.

    A bound at a missing webhook counts as after all of its configuration.
    """
    existing = set(map(_name, webhooks))
    # The configuration from which each bound counts, in descending order. With True it counts from the next.
    # A bound at a webhook counts from this one, wherever ``after`` has put it.
    waiting = sorted(
        (
            (name, webhook != START, number)
            for number, (name, webhook) in enumerate(bounds, 2)
            if (name, webhook) not in existing
        ),
        reverse=True,
    )
    configuration: str | None = None
    section = 1
    for webhook in webhooks:
        if webhook.configuration != configuration:
            configuration = webhook.configuration
            while waiting and waiting[-1][:2] <= (configuration, False):
                section = max(section, waiting.pop()[2])
        section = max(section, within.get(_name(webhook), 1))
        yield section


def _name(webhook: Webhook) -> tuple[str, str]:
    return webhook.configuration, webhook.name
