"""What the loaders of all engines share: one document by itself, and the documents of one configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from gateway.config.kinds.engine_settings import NO_ENGINES
from gateway.config.kinds.help_text import help_of, with_help

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.webhook import Webhook


class Part:
    """One document, read by itself. It has placeholders if the document has problems."""

    __slots__ = ()

    document: Document
    kind: str
    id: str
    """``NAMESPACE/NAME``, or ``NAME`` without a namespace. Empty after a problem with it."""

    is_exception: ClassVar[bool] = False
    """Whether it leaves policies out, instead of being one."""

    @property
    def provides(self) -> str:
        """The kind of the documents that need this one; empty if there are none."""
        return ""

    @property
    def needs(self) -> str:
        """What another document has to provide; empty if nothing."""
        return ""

    @property
    def needs_roles(self) -> bool:
        """Whether the roles of users count, which bindings in files or the cluster give."""
        return False

    @property
    def param_kinds(self) -> Collection[ParamKind]:
        """The kinds of its parameters."""
        return ()

    @property
    def needs_cluster(self) -> Sequence[tuple[str, str]]:
        """Path and message of everything in it that requires a cluster."""
        return ()


class MadeEntries:
    """The entries of a phase that one document makes together with others."""

    __slots__ = ("_errors", "_made", "_others", "_warnings")

    def __init__(self) -> None:
        self._others: tuple[object, ...] | None = None
        self._made: tuple[Webhook, ...] = ()
        self._errors: list[tuple[str, str]] = []
        self._warnings: list[tuple[str, str]] = []

    def of(
        self, document: Document, others: tuple[object, ...], make: Callable[[], Iterable[Webhook]]
    ) -> tuple[Webhook, ...]:
        """Return the entries of *make*, which may report problems to *document*.

        With the same *others* as before, compared by identity, it returns the same entries and reports the
        same problems without *make*: entries are compared by identity, too.
        """
        problems, known = document.problems, self._others
        if (
            known is not None
            and len(known) == len(others)
            and all(one is other for one, other in zip(known, others, strict=True))
        ):
            problems.found.extend(self._errors)
            problems.questionable.extend(self._warnings)
            return self._made
        errors, warnings = len(problems.found), len(problems.questionable)
        help_text = help_of(document.content or {}, document.path, problems)
        self._made = tuple(with_help(make(), help_text))
        self._errors, self._warnings = problems.found[errors:], problems.questionable[warnings:]
        self._others = others
        return self._made


P = TypeVar("P", bound=Part)


class Loader(ABC, Generic[P]):
    """The documents of one engine in one configuration."""

    def __init__(self, *, is_custom: bool = False) -> None:
        """*is_custom* is whether they are custom resources, which have many authors."""
        self.is_custom = is_custom
        self.engines = NO_ENGINES
        """The workers of other engines."""
        self.parts: list[P] = []
        self._first_of: dict[tuple[str, str], Document] = {}

    @staticmethod
    @abstractmethod
    def read(document: Document, fields: Fields, kind: str) -> P | None:
        """Return *document* of *kind*, whose apiVersion and kind are read already; report its problems.

        None if nothing of it is used.
        """

    def add(self, part: P) -> None:
        """Add *part*, after reporting that there is one of its name already."""
        self.parts.append(part)
        first = self._first_of.setdefault((part.kind, part.id), part.document)
        if first is not part.document and part.id:
            part.document.repeats(part.id, first)

    def in_order(self) -> Iterable[P]:
        """Return what was added in the order of its entries, as far as names do not give one."""
        return self.parts

    @abstractmethod
    def entries(self, part: P, params: FixedParams) -> Sequence[Webhook]:
        """Return the entries of *part*, after reporting what it lacks of the parts that were added.

        *params* are the parameters in files.
        """
