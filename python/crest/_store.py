"""The run database (docs/reference/contract.md, runs), read with sqlite3 and never written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from crest._program import CrestError, Json

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    Column = NDArray[Any]
    Columns = Dict[str, Column]
else:
    Columns = dict

PathText = Union[str, "os.PathLike[str]"]

APPLICATION = 0x43525354
FORMAT = 2
TEXTS = ("uid", "name", "kind", "status", "started", "finished", "command", "folder", "grid", "key", "phase", "error", "imported_from")
DOCUMENTS = ("recipe", "device", "environment", "environment_after", "result")
PROCESS = ("host", "boot", "space", "pid", "pid_started")


class Log(Columns):
    """Columns of a run's log by name, as NumPy arrays of one length. `step` is int64, `skipped` is bool, the others are
    float64 with NaN where a row has no value: a row is a training step or a validation."""

    def to_pandas(self) -> "pd.DataFrame":
        """A DataFrame of the columns (needs pandas)."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from None
        return pandas.DataFrame(dict(self))

    def column(self, name: str) -> "Tuple[Column, Column]":
        """(steps, values) of the rows that have a value: `plt.plot(*log.column("val_loss"))`."""
        values = self[name]
        there = values == values
        return self["step"][there], values[there]


@dataclasses.dataclass(frozen=True)
class Run:
    """A recorded run. The fields are the keys of `crest runs list --json`."""

    id: int
    uid: str
    name: str
    kind: str
    status: str
    started: str
    finished: str
    command: str
    folder: str
    grid: str
    key: str
    phase: str
    error: str
    imported_from: str
    recipe: Optional[Json] = dataclasses.field(repr=False)
    device: Optional[Json] = dataclasses.field(repr=False)
    environment: Optional[Json] = dataclasses.field(repr=False)
    environment_after: Optional[Json] = dataclasses.field(repr=False)
    result: Optional[Json] = dataclasses.field(repr=False)
    store: str = dataclasses.field(repr=False)

    @property
    def log(self) -> Log:
        """The rows of the log so far, read again each time."""
        return Log(self._table("log"))

    @property
    def samples(self) -> "Columns":
        """The measured times of the run: ms, round, contender, throttled."""
        return self._table("samples")

    @property
    def documents(self) -> List[str]:
        """Names of the run's documents."""
        with closing(_open(self.store)) as database:
            return [name for (name,) in database.execute("SELECT name FROM documents WHERE run = ? ORDER BY name", (self.id,))]

    def document(self, name: str) -> Any:
        """A document of the run, such as "profile" of `crest profile`."""
        with closing(_open(self.store)) as database:
            row = database.execute("SELECT json FROM documents WHERE run = ? AND name = ?", (self.id, name)).fetchone()
        if row is None:
            raise CrestError(f"run {self.id} has no document '{name}', only: {', '.join(self.documents) or 'none'}")
        return json.loads(row[0])

    def _table(self, table: str) -> "Columns":
        np = _numpy()
        with closing(_open(self.store)) as database:
            names = [row[1] for row in database.execute(f"PRAGMA table_info({table})") if row[1] not in ("run", "number")]
            columns = ", ".join(f'"{name}"' for name in names)
            rows = database.execute(f"SELECT {columns} FROM {table} WHERE run = ? ORDER BY number", (self.id,)).fetchall()
        kinds: Dict[str, Any] = {"step": np.int64, "round": np.int64, "skipped": np.bool_, "throttled": np.bool_, "contender": str}
        values = list(zip(*rows)) if rows else [()] * len(names)
        return {name: np.array(column, dtype=kinds.get(name, np.float64)) for name, column in zip(names, values)}


def runs(
    *,
    kind: Optional[str] = None,
    status: Optional[str] = None,
    name: Optional[str] = None,
    limit: Optional[int] = None,
    store: Optional[PathText] = None,
) -> List[Run]:
    """Recorded runs, the newest first. `store` is the run database (default: CREST_STORE, else crest.db)."""
    file = _file(store)
    wheres, values = [], []
    for column, value in (("kind", kind), ("name", name)):
        if value is not None:
            wheres.append(f"{column} = ?")
            values.append(value)
    with closing(_open(file)) as database:
        found = _select(database, file, " AND ".join(wheres) or "1", values)
    # Whether a run is lost is not in the database: it is seen now.
    found = [r for r in found if status is None or r.status == status]
    return found if limit is None else found[:limit]


def run(which: Union[int, PathText], *, store: Optional[PathText] = None) -> Run:
    """A run by id, by uid or at least 4 digits of it, by name (the newest of it), or by the folder of a training run."""
    file = _file(store)
    with closing(_open(file)) as database:
        if isinstance(which, int):
            found = _select(database, file, "id = ?", [which])
        else:
            text = os.fspath(which)
            found = _select(database, file, "folder = ?", [os.path.abspath(text)])
            if os.path.isdir(text) and not found:
                found = _select(database, file, "folder = ?", [os.path.realpath(text)])
            if not found:
                found = _select(database, file, "name = ?", [text])
            if not found and len(text) >= 4 and all(c in "0123456789abcdef" for c in text):
                found = _select(database, file, "substr(uid, 1, ?) = ?", [len(text), text])
                if len(found) > 1:
                    raise CrestError(f"{len(found)} runs in {file} have a uid that starts with {text}: give more digits", 2)
    if not found:
        raise CrestError(f"no run '{which}' in {file}\n  crest.runs() lists them.")
    return found[0]


def _file(store: Optional[PathText]) -> str:
    return os.path.abspath(os.fspath(store) if store is not None else os.environ.get("CREST_STORE") or "crest.db")


def _open(file: str) -> sqlite3.Connection:
    if not os.path.exists(file):
        raise CrestError(f"there is no run database {file}\n  Set CREST_STORE, give store=FILE, or record a run first.")
    try:
        database = sqlite3.connect(Path(file).as_uri() + "?mode=ro", uri=True)
        # SQLite before 3.38, as in Ubuntu 22.04, cannot parse the views of Crest 0.2.0. This pragma makes it go on without
        # them.
        database.execute("PRAGMA writable_schema = ON")
        application = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as e:
        raise CrestError(f"{file} could not be read as a run database: {e}") from None
    if application != APPLICATION:
        database.close()
        raise CrestError(f"{file} is no run database of Crest")
    if version > FORMAT:
        database.close()
        raise CrestError(f"{file} was written by a newer Crest (format {version}, this package reads {FORMAT})\n  Update crest-train.")
    return database


def _select(database: sqlite3.Connection, file: str, where: str, values: List[Any]) -> List[Run]:
    columns = ", ".join(("id", *TEXTS, *DOCUMENTS, *PROCESS))
    try:
        rows = database.execute(f"SELECT {columns} FROM runs WHERE {where} ORDER BY started DESC, id DESC", values).fetchall()
    except sqlite3.Error as e:
        raise CrestError(f"{file} could not be read: {e}") from None
    found = []
    for row in rows:
        named = dict(zip(("id", *TEXTS, *DOCUMENTS, *PROCESS), row))
        process = tuple(named.pop(p) for p in PROCESS)
        try:
            for document in DOCUMENTS:
                named[document] = json.loads(named[document]) if named[document] else None
        except ValueError as e:
            raise CrestError(f"run {named['id']} of {file} has a damaged {document}: {e}") from None
        if named["status"] == "running" and _is_gone(*process):
            named["status"] = "lost"
        found.append(Run(store=file, **named))
    return found


def _is_gone(host: Optional[str], boot: Optional[str], space: Optional[str], pid: Optional[int], started: Optional[int]) -> bool:
    """Whether a process of this machine has ended. Nothing is known of processes of other machines and containers."""
    if host != hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]:
        return False
    try:
        if boot != Path("/proc/sys/kernel/random/boot_id").read_text().strip():
            return True
        if space != os.readlink("/proc/self/ns/pid"):
            return False
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # from field 3 of proc(5)
        return fields[0] in "ZX" or int(fields[19]) != started
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("this needs NumPy: pip install numpy") from None
    return numpy
