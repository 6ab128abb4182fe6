// The folder of a training run: config.toml, model.toml, environment.json, log.jsonl, tensorboard/, loss.svg,
// samples.txt, checkpoints/.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/io.h"
#include "train/step_row.h"
#include "train/tensorboard.h"

namespace crest {

// While it lives, no other process can create, overwrite or continue the run (flock on its folder; the system releases
// it when the process dies).
class RunFiles {
 public:
  // A new run: `folder` must not exist unless overwrite, which removes an earlier run there (never another folder).
  // fresh: the folder was made for this run (FreshFolder) and is empty.
  static RunFiles create(const std::string& folder, bool overwrite, bool fresh = false);
  // A run that leaves nothing behind: rows are kept in memory.
  static RunFiles none() { return RunFiles(); }
  bool on_disk() const { return !folder_.empty(); }
  // An earlier run.
  static RunFiles open(const std::string& folder);

  // Opens the logs; before it nothing may be added. Rows of log.jsonl beyond `step` are dropped, the others fill
  // steps() and validations().
  void continue_at(int64_t step);
  // config.toml, model.toml, ...; the old content stays until the new one is on the disk.
  void write(const std::string& name, const std::string& bytes) const;

  // Throws when the folder is no longer where it was: a checkpoint in a new one would have no run around it.
  void check_folder() const;

  const std::string& folder() const { return folder_; }
  std::string checkpoints() const { return folder_ + "/checkpoints"; }
  void add(const StepRow& row);
  void add(const ValidationRow& row);
  void add_sample(int64_t step, const std::string& text);
  void flush();
  const std::vector<StepRow>& steps() const { return steps_; }
  const std::vector<ValidationRow>& validations() const { return validations_; }
  // Writes loss.svg; returns the curve as characters for a terminal `width` columns wide ("" when there is nothing).
  std::string draw_loss(int width) const;

 private:
  RunFiles() = default;
  explicit RunFiles(std::string folder);
  RunFiles(std::string folder, std::shared_ptr<const int> lock);
  void write_line(const std::string& line);
  std::string folder_;
  std::shared_ptr<const int> lock_;  // the open folder
  File log_;
  std::unique_ptr<TensorboardWriter> tensorboard_;
  std::vector<StepRow> steps_;
  std::vector<ValidationRow> validations_;
};

// A run that was killed before its settings were written: nothing, or only a temporary file of theirs.
bool is_begun(const std::string& folder);
// The error of whoever continues such a run.
[[noreturn]] void fail_not_begun(const std::string& folder);

// A new empty folder: ROOT/NAME, else ROOT/NAME-2, ... It is made at once, so that of two processes that ask for the
// same name each has one of its own. Removed again if it is still empty in the end.
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
