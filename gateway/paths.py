"""What each path of the front end selects, and how a selection is written as a path.

For PHASE ``mutate`` or ``validate``, and POLICY ``fail`` or ``ignore``:

    /PHASE                   all webhooks of the phase
    /PHASE.POLICY            those with that failurePolicy
    /PHASE[.POLICY]/NAME     those of the configuration NAME
    /PHASE[.POLICY].only/CONFIGURATION/WEBHOOK[/CONFIGURATION/WEBHOOK...]
                             those that are named
    /PHASE[.POLICY].except/CONFIGURATION/WEBHOOK[/CONFIGURATION/WEBHOOK...]
                             all but those that are named

The API server takes a path only if every part of it is a DNS name, as the names of configurations and
webhooks are. A webhook that was named and is gone is passed over, so that a registration may be older than
the configuration; ``only`` with none left is a path that selects nothing, and refused as such.

Source: k8s.io/apiserver pkg/util/webhook/validation.go (paths).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakValueDictionary

from gateway.core.matching import Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.model import Config
    from gateway.core.webhook import FailurePolicy, Phase, Webhook

Choice = Literal["only", "except"]

KEPT: Final = 64
"""Paths with ``only`` and ``except`` that are kept with their index. A registration needs a few; whoever
makes paths up pushes out the least used, and no memory grows."""

_POLICIES: Final[tuple[FailurePolicy | None, ...]] = (None, "Fail", "Ignore")


def path_of(
    phase: Phase, policy: FailurePolicy | None, choice: Choice | None = None, named: Sequence[Webhook] = ()
) -> str:
    """Return the path of what, of *phase* and *policy* (None: both), is ``only`` or ``except`` *named*."""
    head = "/" + ".".join(filter(None, (phase, policy and policy.lower(), choice)))
    return "/".join([head, *(f"{webhook.configuration}/{webhook.name}" for webhook in named)])


class Paths:
    """The paths of one configuration. Those that select the same share a Selection, whose index is costly."""

    def __init__(self, config: Config) -> None:
        self._fixed: dict[str, Selection] = {}
        self._chosen: OrderedDict[str, Selection] = OrderedDict()
        self._by_webhooks: WeakValueDictionary[tuple[Phase, tuple[Webhook, ...]], Selection] = (
            WeakValueDictionary()
        )
        self._choices: dict[str, tuple[Phase, Choice, Sequence[Webhook]]] = {}
        """Webhooks that the rest of a path chooses from, by its first part."""
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

    def __len__(self) -> int:
        """How many paths there are, apart from those with ``only`` and ``except``."""
        return len(self._fixed)

    def __getitem__(self, path: str) -> Selection:
        """Return what *path* selects; KeyError if there is no such path."""
        found = self.find(path)
        if found is None:
            raise KeyError(path)
        return found

    def find(self, path: str) -> Selection | None:
        """Return what *path* selects; None if there is no such path."""
        found = self._fixed.get(path)
        if found is None:
            found = self._chosen.get(path)
            if found is not None:
                self._chosen.move_to_end(path)
            else:
                found = self._choose(path)
        return found

    def _choose(self, path: str) -> Selection | None:
        head, _, rest = path[1:].partition("/")
        parts = rest.split("/")
        if f"/{head}" not in self._choices or path[:1] != "/" or len(parts) % 2:
            return None
        phase, choice, webhooks = self._choices[f"/{head}"]
        named = set(zip(parts[::2], parts[1::2], strict=True))
        is_only = choice == "only"
        # Looked for among all of the phase: one that changed its failurePolicy is not gone.
        if is_only and named.isdisjoint(self._named[phase]):
            return None
        found = self._selection(phase, [hook for hook in webhooks if (_name(hook) in named) == is_only])
        if len(self._chosen) >= KEPT:
            self._chosen.popitem(last=False)
        self._chosen[path] = found
        return found

    def _selection(self, phase: Phase, webhooks: Sequence[Webhook]) -> Selection:
        key = phase, tuple(webhooks)
        found = self._by_webhooks.get(key)
        if found is None:
            found = self._by_webhooks[key] = Selection(phase, webhooks)
        return found


def _name(webhook: Webhook) -> tuple[str, str]:
    return webhook.configuration, webhook.name
