"""The verdicts of an audit: a SQLite database, so that memory does not grow with the objects.

It is a file of the user, which the next audit goes on from, or a temporary one. A verdict belongs to a
*pass*, one run over all objects. What a later pass did not find has been deleted, if the pass has read its
kind. An audit that follows the cluster has one pass, and changes single verdicts of it.

Pods of one controller and template share a verdict. All of them are *members*, so that another one stands for
them when the first one is deleted.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.base.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gateway.tools.audit.keys import Context
    from gateway.tools.audit.subject import Subject

SCHEMA: Final = 2
"""The version of the tables, which is the file's ``user_version``."""
_SUBJECT: Final = "part, apiVersion, kind, resource, namespace, name, owner, ownerLabel"
_TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS verdicts (
    uid TEXT, part TEXT, apiVersion TEXT, kind TEXT, resource TEXT, namespace TEXT, name TEXT, owner TEXT,
    ownerLabel TEXT, version TEXT, hash BLOB, context BLOB, isTimed INTEGER, at REAL, pass INTEGER,
    alike INTEGER, PRIMARY KEY (uid, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS findings (
    uid TEXT, part TEXT, number INTEGER, finding TEXT, phase TEXT, configuration TEXT, webhook TEXT,
    policy TEXT, mode TEXT, message TEXT, PRIMARY KEY (uid, part, number)
) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS results AS
    SELECT {_SUBJECT}, alike, uid, finding, phase, configuration, webhook, policy, mode, message, pass, number
    FROM findings JOIN verdicts USING (uid, part);
CREATE TABLE IF NOT EXISTS members (
    uid TEXT PRIMARY KEY, template BLOB, resource TEXT, namespace TEXT, name TEXT, version TEXT, pass INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS templates ON members (template, namespace, name);
CREATE TABLE IF NOT EXISTS passes (number INTEGER PRIMARY KEY, at REAL);
CREATE TEMP TABLE IF NOT EXISTS seen (resource TEXT, uid TEXT, PRIMARY KEY (resource, uid)) WITHOUT ROWID;
"""  # noqa: S608 - constants
_COLUMNS: Final = (
    *("part", "apiVersion", "kind", "resource", "namespace", "name", "owner", "ownerLabel", "alike", "uid"),
    *("finding", "phase", "configuration", "webhook", "policy", "mode", "message"),
)
_ORDER: Final = "ORDER BY namespace, kind, name, uid, part, number"
_AT_ONCE: Final = 2000
"""Changes of one transaction."""


class Known(NamedTuple):
    """A verdict of an earlier pass, as far as it tells whether it still holds."""

    version: str
    hash: bytes
    context: bytes
    is_timed: int
    at: float


class Finding(NamedTuple):
    """What one webhook found about one subject."""

    finding: str
    """``denied``, ``notEnforced``, ``failed`` or ``wouldChange``."""
    phase: str
    configuration: str
    webhook: str
    policy: str
    """``POOL/POLICY`` of a worker. Empty for others."""
    mode: str
    message: str


class Store:
    """The verdicts in one file. Close it at the end."""

    def __init__(self, file: Path | None) -> None:
        """None: a temporary file, which nobody else sees.

        Raises:
            GatewayError: *file* cannot be used.
        """
        self._file = file
        self._changes = 0
        try:
            self._db = sqlite3.connect("" if file is None else file, isolation_level=None, timeout=10.0)
            self._db.execute("PRAGMA cache_size = -8192")
            # A state that is lost is made again.
            self._db.execute("PRAGMA synchronous = OFF")
            self._prepare()
            self.number = 0
            """That of the pass. 0 before the first :meth:`begin`."""
        except sqlite3.Error as error:
            raise GatewayError(f"{file}: cannot be used as a state: {error}") from None

    def _prepare(self) -> None:
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        tables = self._db.execute("SELECT name FROM sqlite_master").fetchall()
        if tables and found != SCHEMA:
            raise GatewayError(
                f"{self._file}: found a database of version {found}, expected {SCHEMA}, a state of `audit`"
            )
        self._db.executescript(_TABLES)
        self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def begin(self) -> None:
        """Begin a pass. A pass that was not finished has had its own number."""
        (self.number,) = self._db.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM passes").fetchone()
        self._change("DELETE FROM passes", ())
        self._change("INSERT INTO passes VALUES (?, NULL)", (self.number,))

    def doubt(self, targets: Iterable[tuple[str, str]]) -> None:
        """Take the verdicts on *targets*, resources and namespaces, out of the pass, until they are read."""
        for resource, namespace in targets:
            for table in ("verdicts", "members"):
                self._change(
                    f"UPDATE {table} SET pass = 0 WHERE resource = ?1 AND (?2 = '' OR namespace = ?2)",  # noqa: S608
                    (resource, namespace),
                )

    def close(self) -> None:
        """Write what is not written yet, and close the file."""
        self.commit()
        self._db.close()

    def known(self, subject: Subject) -> Known | None:
        """Return the verdict on *subject* of an earlier pass."""
        row = self._db.execute(
            "SELECT version, hash, context, isTimed, at FROM verdicts WHERE uid = ? AND part = ?",
            (subject.uid, subject.part),
        ).fetchone()
        return None if row is None else Known(*row)

    def keep(self, subject: Subject) -> None:
        """Note that the verdict on *subject* still holds."""
        self._change(
            "UPDATE verdicts SET pass = ?, version = ?, owner = ?, ownerLabel = ?, alike = 1"
            " WHERE uid = ? AND part = ?",
            (self.number, subject.version, subject.owner, subject.owner_label, subject.uid, subject.part),
        )

    def write(
        self, subject: Subject, digest: bytes, context: Context, at: float, findings: Sequence[Finding]
    ) -> None:
        """Replace the verdict on *subject*, given *at* by *findings*. It is kept if it has no failure."""
        key = (subject.uid, subject.part)
        self._change("DELETE FROM findings WHERE uid = ? AND part = ?", key)
        is_final = all(one.finding != "failed" for one in findings)
        self._change(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
            (
                *(*key, subject.api_version, subject.kind, subject.resource, subject.namespace),
                *(subject.name, subject.owner, subject.owner_label, subject.version, digest),
                *(context.digest if is_final else b"", context.is_timed, at, self.number),
            ),
        )
        for number, one in enumerate(findings):
            self._change("INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*key, number, *one))

    def set_alike(self, counts: Iterable[tuple[int, str]]) -> None:
        """Set how many objects the verdict on each uid stands for, from pairs of number and uid."""
        for number, uid in counts:
            self._change("UPDATE verdicts SET alike = ? WHERE uid = ? AND part = 'object'", (number, uid))

    def finish(self, at: float, read: Iterable[tuple[str, str]], carried: Iterable[str] = ()) -> None:
        """End the pass *at*: remove the verdicts on what it did not find.

        *read* are the resources and namespaces that were read, the latter empty for all. Other verdicts on
        the resources *carried* are taken into the pass.
        """
        for resource, namespace in read:
            values = (resource, self.number, namespace, namespace)
            gone = "resource = ? AND pass != ? AND (? = '' OR namespace = ?)"
            keys = f"(uid, part) IN (SELECT uid, part FROM verdicts WHERE {gone})"  # noqa: S608 - constants
            self._change(f"DELETE FROM findings WHERE {keys}", values)  # noqa: S608
            for table in ("verdicts", "members"):
                self._change(f"DELETE FROM {table} WHERE {gone}", values)  # noqa: S608
        for resource in carried:
            for table in ("verdicts", "members"):
                self._change(
                    f"UPDATE {table} SET pass = ? WHERE resource = ? AND pass != ?",  # noqa: S608
                    (self.number, resource, self.number),
                )
        self._change("UPDATE passes SET at = ?", (at,))
        self.commit()

    def commit(self) -> None:
        """Write what is not written yet."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def _change(self, statement: str, values: Sequence[object]) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(statement, values)
        self._changes += 1
        if self._changes >= _AT_ONCE:
            self._changes = 0
            self._db.execute("COMMIT")

    # -- objects with one verdict, and single objects ---------------------------------------------

    def join(self, subject: Subject, template: bytes) -> None:
        """Note that *subject* has the verdict of *template*."""
        self._change(
            "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(subject.uid, template, subject.resource, subject.namespace),
                *(subject.name, subject.version, self.number),
            ),
        )

    def first_of(self, template: bytes) -> str:
        """Return the uid of the object whose verdict is that of *template*. Empty if there is none."""
        row = self._db.execute(
            "SELECT uid FROM members JOIN verdicts USING (uid) WHERE template = ? LIMIT 1", (template,)
        ).fetchone()
        return "" if row is None else str(row[0])

    def count_alike(self, template: bytes) -> None:
        """Set how many objects the verdict of *template* stands for."""
        self._change(
            "UPDATE verdicts SET alike = (SELECT COUNT(*) FROM members WHERE template = ?)"
            " WHERE uid = ? AND part = 'object'",
            (template, self.first_of(template)),
        )

    def version(self, uid: str) -> str:
        """Return the version of the object *uid* that its verdict is about. Empty if it has none."""
        row = self._db.execute(
            "SELECT version FROM verdicts WHERE uid = ? UNION ALL SELECT version FROM members WHERE uid = ?",
            (uid, uid),
        ).fetchone()
        return "" if row is None else str(row[0])

    def remove(self, uid: str, kept: Iterable[str] = ()) -> tuple[bytes, tuple[str, str] | None]:
        """Remove the verdicts on *uid* other than those on the parts *kept*.

        Return its template, empty if it shared none, and namespace and name of another object of the template
        that needs a verdict now.
        """
        parts = tuple(kept)
        marks = ", ".join("?" * len(parts))
        for table in ("findings", "verdicts"):
            self._change(f"DELETE FROM {table} WHERE uid = ? AND part NOT IN ({marks})", (uid, *parts))  # noqa: S608
        row = self._db.execute("SELECT template FROM members WHERE uid = ?", (uid,)).fetchone()
        if row is None or parts:
            return b"", None
        template = bytes(row[0])
        self._change("DELETE FROM members WHERE uid = ?", (uid,))
        other = None
        if not self.first_of(template):
            other = self._db.execute(
                "SELECT namespace, name FROM members WHERE template = ? ORDER BY namespace, name LIMIT 1",
                (template,),
            ).fetchone()
        return template, other

    def see(self, resource: str, uid: str) -> None:
        """Note that the object *uid* of *resource* is there."""
        self._change("INSERT OR IGNORE INTO seen VALUES (?, ?)", (resource, uid))

    def forget_seen(self, resource: str) -> None:
        """Forget which objects of *resource* were noted."""
        self._change("DELETE FROM seen WHERE resource = ?", (resource,))

    def not_seen(self, resource: str, limit: int) -> list[str]:
        """Return the uids, at most *limit*, of known objects of *resource* that were not noted."""
        rows = self._db.execute(
            "SELECT uid FROM verdicts WHERE resource = ?1 AND uid NOT IN"
            " (SELECT uid FROM seen WHERE resource = ?1) UNION"
            " SELECT uid FROM members WHERE resource = ?1 AND uid NOT IN"
            " (SELECT uid FROM seen WHERE resource = ?1) LIMIT ?2",
            (resource, limit),
        )
        return [uid for (uid,) in rows]

    def number_of(self, resource: str = "") -> int:
        """Return the number of verdicts of the pass, or of those on *resource*."""
        query = "SELECT COUNT(*) FROM verdicts WHERE pass = ?1 AND (?2 = '' OR resource = ?2)"
        ((number,),) = self._db.execute(query, (self.number, resource))
        return int(number)

    def parts(self, resource: str) -> set[str]:
        """Return the parts of *resource* on which there are verdicts."""
        rows = self._db.execute("SELECT DISTINCT part FROM verdicts WHERE resource = ?", (resource,))
        return {part for (part,) in rows}

    def contexts(self) -> list[tuple[str, str, str, bytes]]:
        """Return the different resources, parts, namespaces and contexts of verdicts.

        The namespace of a Namespace is itself.
        """
        namespace = "CASE resource WHEN 'namespaces' THEN name ELSE namespace END"
        query = f"SELECT DISTINCT resource, part, {namespace}, context FROM verdicts"  # noqa: S608
        return self._db.execute(query).fetchall()

    def older_than(self, at: float) -> list[tuple[str, str]]:
        """Return resources and namespaces with verdicts from before *at* that hold for a limited time."""
        query = "SELECT DISTINCT resource, namespace FROM verdicts WHERE isTimed AND at <= ?"
        return self._db.execute(query, (at,)).fetchall()

    # -- what the pass found ----------------------------------------------------------------------

    def select(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of *query*, in which ``:pass`` is the number of the pass."""
        return iter(self._db.execute(query.replace(":pass", str(self.number)), values))

    def results(self, where: str = "", *values: object, limit: int = -1) -> Iterator[dict[str, Any]]:
        """Yield the findings of the pass, of which *where* holds, by namespace, kind and name.

        They are the first *limit*, or all.
        """
        condition = f"pass = {self.number}{' AND ' if where else ''}{where}"
        query = f"SELECT {', '.join(_COLUMNS)} FROM results WHERE {condition} {_ORDER} LIMIT {limit}"  # noqa: S608
        for row in self._db.execute(query, values):
            yield dict(zip(_COLUMNS, row, strict=True))

    def export(self, file: Path) -> None:
        """Write all findings and verdicts of the pass into the new database *file*, in place of one there.

        Raises:
            GatewayError: it cannot be written.
        """
        try:
            file.unlink(missing_ok=True)
            self._db.execute("ATTACH ? AS out", (str(file),))
            try:
                columns = ", ".join(_COLUMNS)
                self._db.execute(
                    f"CREATE TABLE out.findings AS SELECT {columns} FROM results"  # noqa: S608
                    f" WHERE pass = {self.number} {_ORDER}"
                )
                self._db.execute(
                    f"CREATE TABLE out.objects AS SELECT uid, {_SUBJECT}, alike, at FROM main.verdicts"  # noqa: S608
                    f" WHERE pass = {self.number}"
                )
            finally:
                self._db.execute("DETACH out")
        except (sqlite3.Error, OSError) as error:
            raise GatewayError(f"{file}: cannot be written: {error}") from None
