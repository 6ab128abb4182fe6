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

// While this object lives, no other process can create, overwrite or continue the run (flock on its
// folder; the system releases it when the process dies). All files are opened below the folder's
// descriptor. A symbolic link in place of one is an error.
class RunFiles {
 public:
  // A new run: `folder` must not exist unless overwrite is set. This removes an earlier run there
  // at once (never another folder, and nothing through a link): call it when nothing else can
  // refuse the new run. fresh: an empty folder there was created for this run, by FreshFolder or by
  // a dead rank 0.
  static RunFiles create(const std::string& folder, bool overwrite, bool fresh = false);
  // A run without files: rows are kept in memory.
  static RunFiles none() { return RunFiles(); }
  bool on_disk() const { return !folder_.path().empty(); }
  // Continues an existing run.
  static RunFiles open(const std::string& folder);

  // Opens the logs; call it before adding anything. Drops rows of log.jsonl and samples beyond
  // `step`; the other rows fill steps() and validations(). Returns the number of unreadable lines
  // in the log, except one cut by a kill; then log.jsonl.damaged is a copy of the original.
  int64_t continue_at(int64_t step);
  // config.toml, model.toml, ...; the old content stays until the new one is on disk.
  void write(const std::string& name, const std::string& bytes) const;

  // Throws if the folder is no longer in its place: a checkpoint in a new folder would have no run
  // around it.
  void check_folder() const;

  const std::string& folder() const { return folder_.path(); }
  std::string checkpoints() const { return folder() + "/checkpoints"; }
  // Whether the run, or the checkpoints in it, lie elsewhere behind a symbolic link.
  bool linked() const;
  void add(const StepRow& row);
  void add(const ValidationRow& row);
  void add_sample(int64_t step, const std::string& text);
  void flush();
  const std::vector<StepRow>& steps() const { return steps_; }
  const std::vector<ValidationRow>& validations() const { return validations_; }
  // Writes loss.svg. Returns the curve as text for a terminal of `width` columns ("" if there is
  // nothing to show).
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

// A file or folder read by a command: its flag and path.
struct InputPath {
  std::string flag, path;
};
// Throws if replacing the run in `folder` would remove one of the inputs.
void check_inputs_stay(const std::string& folder, const std::vector<InputPath>& inputs);

// The last step in the log of a run; 0: none.
int64_t last_logged_step(const std::string& folder);

// A run killed before its settings were written: the folder is empty, or has only temporary files
// of them.
bool is_begun(const std::string& folder);
// Throws the error for --resume of such a run.
[[noreturn]] void fail_not_begun(const std::string& folder);

// A new empty folder: ROOT/NAME, else ROOT/NAME-2, ... It is created at once, so that two processes
// with the same name get different folders. It is removed again if it is still empty at the end.
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
