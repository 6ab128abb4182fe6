// The folder of a training run: config.toml, model.toml, environment.json, log.jsonl, tensorboard/, loss.svg,
// samples.txt, checkpoints/.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "train/step_row.h"
#include "train/tensorboard.h"

namespace crest {

// While it lives, no other process can create, overwrite or continue the run (flock on its folder; the system releases
// it when the process dies).
class RunFiles {
 public:
  // A new run: `folder` must not exist unless overwrite, which removes an earlier run there (never another folder).
  static RunFiles create(const std::string& folder, bool overwrite);
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
  void write_line(const std::string& line);
  std::string folder_;
  std::shared_ptr<void> lock_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> log_{nullptr, std::fclose};
  std::unique_ptr<TensorboardWriter> tensorboard_;
  std::vector<StepRow> steps_;
  std::vector<ValidationRow> validations_;
};

// Name of a fresh run folder below runs/: NAME, NAME-2, ...
std::string fresh_run_folder(const std::string& name);

}  // namespace crest
