# Writes runs as offline runs of Weights & Biases (store/tracker.cpp starts it). FILE has lines of
# JSON: {"run": ...}, then a {"row": ...} for each step. Prints a line of JSON for each run.
import sys

sys.path[:] = [folder for folder in sys.path if folder]  # the data folder ./wandb is not the package
import json
import os

no_package = 3  # exit code

try:
    import wandb

    wandb.init
except ModuleNotFoundError as error:
    if error.name != "wandb":
        raise
    sys.exit(no_package)
except AttributeError:  # an empty folder of this name
    sys.exit(no_package)

file, folder, project = sys.argv[1:]
run = None
told = {}


def end(head):
    run.summary.update(head["summary"])
    told["folder"] = os.path.dirname(run.dir)
    run.finish(exit_code=head["exit_code"])
    print(json.dumps(told), flush=True)


with open(file, encoding="utf-8") as lines:
    for line in lines:
        item = json.loads(line)
        if "row" in item:
            run.log(item["row"], step=item["step"])
            told["rows"] += 1
            continue
        if run:
            end(head)
        head = item["run"]
        told = {"uid": head["id"], "name": head["name"], "version": wandb.__version__, "rows": 0}
        keys = ("id", "name", "notes", "job_type", "group", "config")
        run = wandb.init(mode="offline", dir=folder, project=project, **{key: head[key] for key in keys})
end(head)
