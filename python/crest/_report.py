"""Reports: the page of `crest report`, also in notebooks."""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path
from typing import List, Optional, Sequence, Union

from crest._program import CrestError, Json, call, flags
from crest._store import PathText, Run


class Report:
    """A page without scripts or links to other files. A notebook shows it; `save` writes it."""

    def __init__(self, page: str, data: Json) -> None:
        self.html = page
        self.data = data  # the keys of crest report --json

    @property
    def summary(self) -> List[str]:
        """The conclusions, one sentence each."""
        return list(self.data["summary"])

    def save(self, file: PathText) -> None:
        Path(file).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" sandbox="" style="width: 100%; height: 45em; border: 0"></iframe>'

    def __repr__(self) -> str:
        return "\n".join([self.data["title"], *self.summary])


def report(runs: Union[Run, Sequence[Run]], *, title: Optional[str] = None) -> Report:
    """A report on recorded runs of one run database: `report(crest.runs(kind="bench"))`."""
    runs = [runs] if isinstance(runs, Run) else list(runs)
    stores = {r.store for r in runs}
    if len(stores) != 1:
        raise CrestError("a report is on runs of one run database, and on at least one", 2)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "report.html")
        words = ["report", *(r.uid for r in runs), *flags({"title": title, "store": stores.pop()}), "-o", file]
        data = call(words)
        return Report(Path(file).read_text(encoding="utf-8"), data)
