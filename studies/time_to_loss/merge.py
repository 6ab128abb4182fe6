#!/usr/bin/env python3
"""Puts the rows of search.py and more.py into the newest record of an experiment, for `crest lab judge`.

  studies/time_to_loss/merge.py [--add] STORE FOLDER...
  studies/time_to_loss/merge.py build/ttl/crest.db build/ttl build/more

STORE is a run database that has the experiment. Rows of FOLDERs replace the record's, or join them (--add). The noise
floor is the largest one of the batches, and with --add of the record.
"""
import json
import sqlite3
import sys
from pathlib import Path


NOT_OF_THE_EXPERIMENT = ("probe", "long, plain", "long, all parts", "gpt2-355M", "524,288 tokens")


def main():
    args = [arg for arg in sys.argv[1:] if arg != "--add"]
    store, folders = sqlite3.connect(args[0]), [Path(arg) for arg in args[1:]]
    run, text = store.execute("select run, json from documents join runs on runs.id = run where documents.name = 'lab' "
                              "and kind = 'experiment' order by run desc limit 1").fetchone()
    document = json.loads(text)
    rows = [row for folder in folders for row in json.loads((folder / "rows.json").read_text())
            if row["keys"]["variant"] not in NOT_OF_THE_EXPERIMENT]
    for row in rows:
        row["keys"].pop("data", None)  # a path of the visit
    noise = [json.loads(f.read_text())[0] for folder in folders for f in sorted(folder.glob("[0-9][0-9].json"))]
    if "--add" in sys.argv:
        rows, noise = document["rows"] + rows, noise + [document]
    noisiest = max(noise, key=lambda b: b["noise_floor"])
    document.update(rows=rows, cells_left=0,
                    noise_floor=noisiest["noise_floor"], noise_floor_source=noisiest["noise_floor_source"])
    store.execute("update documents set json = ? where run = ? and name = 'lab'", (json.dumps(document), run))
    store.commit()
    print(f"{len(document['rows'])} rows in record {run}, noise floor {document['noise_floor']:.2%}")


if __name__ == "__main__":
    main()
