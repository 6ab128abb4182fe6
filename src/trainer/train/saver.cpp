#include "train/saver.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"

namespace crest {

std::string Saver::check_space(uint64_t bytes, int64_t saves) const {
  const std::string folder = path_exists(root_) ? root_ : parent_path(root_);
  require_free_space(folder, bytes, "a checkpoint");
  // The oldest is removed after a new one is written.
  const int64_t most = keep_ + 1 + !labeled_checkpoint(root_, best_label).empty();
  if (keep_ > 0) saves = std::min(saves, std::max<int64_t>(1, most - int64_t(list_checkpoints(root_).size())));
  const uint64_t free = free_space(folder);
  if (uint64_t(saves) * bytes <= free) return "";
  return fmt::format("{} of {} will not fit: {} are free. Lower --keep, or raise --save-every",
                     format_number_of(saves, "checkpoint"), format_bytes(double(bytes)), format_bytes(double(free)));
}

void Saver::save(Engine& engine, const RunState& state, const std::string& config_toml, const ModelText& text,
                 int64_t last_good_step, bool best) {
  if (state.step == saved_step_) return;
  finish();
  if (last_good_step > saved_step_) prune();
  auto contents = contents_to_save(engine, state, config_toml, text, background_);
  start([root = root_, contents = std::move(contents), best] {
    std::vector<std::string> warnings = save_checkpoint(contents, root, 0).warnings;
    try {
      if (best) label_best(root, contents.step);
    } catch (const Error& e) {
      warnings.push_back(fmt::format("the checkpoint is saved, but the link 'best' is not: {}", e.what()));
    }
    return warnings;
  });
  saved_step_ = state.step;
  prune_pending_ = true;
}

void Saver::prune() {
  if (!prune_pending_) return;
  prune_pending_ = false;
  start([root = root_, keep = keep_] {
    std::vector<std::string> warnings;
    try {
      keep_newest(root, keep);
    } catch (const Error& e) {
      warnings.push_back(fmt::format("old checkpoints could not be removed: {}", e.what()));
    }
    return warnings;
  });
}

void Saver::start(Work work) {
  finish();
  if (background_) {
    job_ = std::async(std::launch::async, [work = std::move(work)] {
      // Hashing must not use all cores during a step's launches.
      omp_set_num_threads(std::max(1, omp_get_max_threads() / 2));
      return work();
    });
  } else {
    job_ = std::async(std::launch::deferred, std::move(work));
    finish();
  }
}

void Saver::poll() {
  if (job_.valid() && job_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) finish();
}

void Saver::finish() {
  if (!job_.valid()) return;
  for (auto& warning : job_.get()) warn_(warning);
}

void Saver::settle() {
  try {
    finish();
  } catch (const std::exception& e) {
    warn_(fmt::format("the last checkpoint was not saved: {}", e.what()));
  }
}

}  // namespace crest
