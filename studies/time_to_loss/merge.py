#!/usr/bin/env python3
"""Puts the rows of search.py into its newest record of an experiment, for `crest lab judge`.

  studies/time_to_loss/merge.py build/time_to_loss

The noise floor is the largest one of the batches.
"""
import json
import sqlite3
import sys
from pathlib import Path


def main():
    folder = Path(sys.argv[1])
    rows = json.loads((folder / "rows.json").read_text())
    batches = [json.loads(f.read_text())[0] for f in sorted(folder.glob("[0-9][0-9].json"))]
    noisiest = max(batches, key=lambda b: b["noise_floor"])
    store = sqlite3.connect(folder / "crest.db")
    run, text = store.execute("select run, json from documents join runs on runs.id = run where documents.name = 'lab' "
                              "and kind = 'experiment' order by run desc limit 1").fetchone()
    document = json.loads(text)
    document.update(rows=[r for r in rows if r["keys"]["variant"] != "probe"], cells_left=0,
                    noise_floor=noisiest["noise_floor"], noise_floor_source=noisiest["noise_floor_source"])
    store.execute("update documents set json = ? where run = ? and name = 'lab'", (json.dumps(document), run))
    store.commit()
    print(f"{len(document['rows'])} rows in record {run}, noise floor {document['noise_floor']:.2%}")


if __name__ == "__main__":
    main()
