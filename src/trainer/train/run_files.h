// The folder of a training run: config.toml, model.toml, environment.json, log.jsonl, tensorboard/,
// loss.svg, samples.txt, checkpoints/.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/folder.h"
#include "train/step_row.h"
#include "train/tensorboard.h"

namespace crest {

// While this object exists, no other process can create, overwrite or continue the run (flock on
// its folder; the system releases it if the process dies). All files are opened relative to the
// folder's descriptor. A symbolic link in place of a file is an error.
class RunFiles {
 public:
  // A new run. `folder` must not exist unless overwrite is set. Then this removes the earlier run
  // there immediately (never another folder, and nothing through a link), so call it after all
  // other checks of the new run. fresh: an empty folder there was created for this run, by
  // FreshFolder or by a dead rank 0.
  static RunFiles create(const std::string& folder, bool overwrite, bool fresh = false);
  // A run without files keeps rows in memory.
  static RunFiles none() { return RunFiles(); }
  bool on_disk() const { return !folder_.path().empty(); }
  // Continues an existing run.
  static RunFiles open(const std::string& folder);

  // Opens the logs; call it before adding anything. Drops rows of log.jsonl and samples after
  // `step`. The other rows fill steps() and validations(). Returns the number of unreadable lines
  // in the log, except one cut by a kill. If there are any, log.jsonl.damaged is a copy of the
  // original.
  int64_t continue_at(int64_t step);
  // For config.toml, model.toml, ...: the old content stays until the new one is on disk.
  void write(const std::string& name, const std::string& bytes) const;

  // Throws if the folder was moved or removed: a checkpoint in a new folder would not belong to a
  // run.
  void check_folder() const;

  const std::string& folder() const { return folder_.path(); }
  std::string checkpoints() const { return folder() + "/checkpoints"; }
  // Whether the run or its checkpoints are elsewhere, behind a symbolic link.
  bool linked() const;
  void add(const StepRow& row);
  void add(const ValidationRow& row);
  void add_sample(int64_t step, const std::string& text);
  void flush();
  const std::vector<StepRow>& steps() const { return steps_; }
  const std::vector<ValidationRow>& validations() const { return validations_; }
  // Writes loss.svg. Returns the curve as text for `width` columns ("": nothing to show).
  std::string draw_loss(int width) const;

 private:
  RunFiles() = default;
  explicit RunFiles(const std::string& folder);
  void write_line(const std::string& line);
  void drop_samples_after(int64_t step) const;
  Folder folder_;  // locked
  File log_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
  std::vector<StepRow> steps_;
  std::vector<ValidationRow> validations_;
};

// A file or folder read by a command, with its flag.
struct InputPath {
  std::string flag, path;
};
// Throws if replacing the run in `folder` would remove an input.
void check_inputs_stay(const std::string& folder, const std::vector<InputPath>& inputs);

// The last step in a run's log; 0: none.
int64_t last_logged_step(const std::string& folder);

// Whether a run was killed before it wrote its settings: the folder is empty or has only their
// temporary files.
bool is_begun(const std::string& folder);
// The error for --resume of such a run.
[[noreturn]] void fail_not_begun(const std::string& folder);

// A new empty folder: ROOT/NAME, else ROOT/NAME-2, ... It is created immediately, so two processes
// with one name get different folders. The destructor removes it if it is still empty.
class FreshFolder {
 public:
  FreshFolder(const std::string& root, const std::string& name);
  ~FreshFolder();
  FreshFolder(const FreshFolder&) = delete;
  FreshFolder& operator=(const FreshFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace crest
