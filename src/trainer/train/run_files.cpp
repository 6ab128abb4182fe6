#include "train/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "charts/figure.h"
#include "charts/terminal_chart.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/output_file.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "core/text.h"

namespace crest {

namespace fs = std::filesystem;

static constexpr const char* free_space_hint =
    "Free some space. The last checkpoint is intact; continue with --resume.";

// The first line of each config.toml. --overwrite recognizes a run by it.
static constexpr const char* config_mark = "# crest train";

static bool is_run(const Folder& folder) {
  const char* name = "config.toml";
  if (!folder.has(name)) return false;
  std::string start(std::strlen(config_mark), '\0');
  start.resize(folder.open_read(name).read_some_at(start.data(), start.size(), 0));
  return start == config_mark;
}

// Whether `path` is in `folder` or is `folder`, even under another name (link, mount).
static bool is_inside(fs::path path, const std::string& folder) {
  std::error_code error;
  for (;; path = path.parent_path()) {
    if (fs::equivalent(path, folder, error)) return true;
    if (path == path.parent_path()) return false;
  }
}

void check_inputs_stay(const std::string& folder, const std::vector<InputPath>& inputs) {
  if (kind_of(folder) != PathKind::folder) return;  // nothing to remove
  for (auto& [flag, path] : inputs) {
    if (!path_exists(path)) continue;  // a preset, or its reader reports the error
    std::error_code error;
    fs::path named = fs::absolute(path).lexically_normal(), leads_to = fs::canonical(path, error);
    // A link inside the folder is removed with it. A link outside may point into it.
    if (is_inside(named, folder) || (!error && is_inside(leads_to, folder)))
      fail_usage(fmt::format("this would remove {}, which {} names, with the run in {}", printable(path), flag,
                             printable(folder)),
                 "--overwrite", "Choose another --out, or move the file to another folder first.");
  }
}

bool is_begun(const std::string& folder) {
  for (auto& entry : fs::directory_iterator(folder))
    if (!entry.path().filename().string().starts_with("config.toml.")) return false;  // temporary files of io.cpp
  return true;
}

void fail_not_begun(const std::string& folder) {
  fail("the run was stopped before its first step: there is nothing to continue", printable(folder),
       fmt::format("Start it again: crest train TEXT --out {} --overwrite", shell_path(folder)));
}

RunFiles::RunFiles(const std::string& folder) : folder_(Folder::open(folder)) {
  // Some network file systems have no locks. The run then continues without one.
  if (folder_.lock() == Folder::Lock::busy)
    fail("another process is training in this folder", printable(folder), "Wait until it ends, or stop it.");
}

// Users may keep a run and its checkpoints elsewhere. All other files are in this folder.
RunFiles RunFiles::open(const std::string& folder) {
  RunFiles files(folder);
  for (auto& name : files.folder_.names())
    if (is_name_in_run(name) && name != "checkpoints") files.folder_.refuse_link(name);
  return files;
}

bool RunFiles::linked() const {
  return on_disk() &&
         (folder_.linked() || (folder_.has("checkpoints") && folder_.folder_or_link("checkpoints").linked()));
}

// If two processes compete, one creates the folder or locks it, and the other gets an error.
// config.toml is written first, so a folder can be overwritten after a kill at any moment.
RunFiles RunFiles::create(const std::string& folder, bool overwrite, bool fresh) {
  bool made = false;
  try {
    create_directories(parent_path(folder));
    made = make_directory(folder);
  } catch (const Error& e) {
    if (!path_exists(folder))
      fail(e.problem(), e.where(), "The run folder could not be created; choose another --out.");
  }
  auto exists = [&] {
    fail(fmt::format("'{}' exists", printable(folder)), "--out",
         "Choose another --out, continue the run with --resume, or add --overwrite.");
  };
  if (!made && !overwrite && !fresh) exists();
  auto refuse = [&] {
    fail(fmt::format("'{}' is not a run folder", printable(folder)), "--overwrite",
         "--overwrite replaces runs only; choose another --out.");
  };
  if (!is_directory(folder)) refuse();
  RunFiles files(folder);
  const Folder& inside = files.folder_;
  const auto names = made ? std::vector<std::string>() : inside.names();
  if (!overwrite && !names.empty()) exists();
  if (!names.empty()) {
    if (!is_run(inside) && !is_begun(folder)) refuse();
    if (inside.linked())
      fail("the folder is a symbolic link, and --overwrite removes nothing through a link", printable(folder),
           fmt::format("Give the folder itself: --out {}", shell_path(fs::canonical(folder).string())));
    // Remove config.toml last: it marks the folder as a run.
    for (bool last : {false, true})
      for (auto& name : names)
        if (last == (name == "config.toml")) inside.remove(name);
  }
  files.write("config.toml", "");
  return files;
}

void RunFiles::check_folder() const {
  if (on_disk() && !folder_.is_at(folder()))
    fail("the run folder was removed or moved during training", printable(folder()),
         "Nothing more can be saved. Start again, or move it back and continue with --resume.");
}

// Reads a file of lines once. Unlike a stream, it reports why a file is unreadable. Anything except
// a regular file (for example a pipe) is an error.
class Lines {
 public:
  explicit Lines(File file) : file_(std::move(file)), buffer_(64 << 10, '\0') {}
  // The next line without its newline; of longer lines only the first `longest` + 1 bytes.
  bool next(std::string& line, size_t longest) {
    line.clear();
    for (bool any = false;; any = true) {
      if (at_ == end_) at_ = 0, end_ = file_.read_some(buffer_.data(), buffer_.size());
      if (end_ == 0) return cut_ = any;
      char c = buffer_[at_++];
      if (c == '\n') return true;
      if (line.size() <= longest) line += c;
    }
  }

  // Whether the last line had no newline.
  bool cut() const { return cut_; }

 private:
  File file_;
  std::string buffer_;
  size_t at_ = 0, end_ = 0;
  bool cut_ = false;
};

// A row of the log, as text and parsed. null: truncated by a kill, or not a row.
static bool next_row(Lines& in, std::string& line, nlohmann::json& row) {
  constexpr size_t longest = 64 << 10;
  if (!in.next(line, longest)) return false;
  try {
    row = parse_json_guarded(line, {.bytes = longest, .depth = 4, .values = 1000}, "log.jsonl");
  } catch (const Error&) {
    row = nullptr;
  }
  return true;
}

static bool is_row(const nlohmann::json& row) {
  return row.is_object() && row.contains("step") && row["step"].is_number_integer();
}

int64_t last_logged_step(const std::string& folder) {
  std::string path = folder + "/log.jsonl", line;
  if (kind_of(path) != PathKind::file) return 0;
  Lines in(File::open_read(path));
  int64_t last = 0;
  for (nlohmann::json row; next_row(in, line, row);)
    if (is_row(row)) last = row["step"].get<int64_t>();
  return last;
}

static constexpr std::string_view sample_mark = "--- step ";
static constexpr const char *samples_file = "samples.txt", *log_file = "log.jsonl", *events_folder = "tensorboard",
                            *damaged_log_file = "log.jsonl.damaged";

void RunFiles::drop_samples_after(int64_t step) const {
  std::string kept, line;
  if (!folder_.has(samples_file)) return;
  Lines in(folder_.open_read(samples_file));
  bool dropped = false;
  while (!dropped && in.next(line, SIZE_MAX - 1)) {
    int64_t at = 0;
    auto [end, error] =
        std::from_chars(line.data() + std::min(line.size(), sample_mark.size()), line.data() + line.size(), at);
    dropped = line.starts_with(sample_mark) && error == std::errc() && end == line.data() + line.size() && at > step;
    if (!dropped) kept += line + "\n";
  }
  if (dropped) write(samples_file, kept);
}

static std::vector<std::pair<std::string, double>> losses_of_sources(const nlohmann::json& row) {
  std::vector<std::pair<std::string, double>> losses;
  if (!row.contains("val_losses") || !row["val_losses"].is_object()) return losses;
  for (auto& [label, loss] : row["val_losses"].items())
    losses.emplace_back(label, loss.is_number() ? loss.get<double>() : NAN);
  return losses;
}

int64_t RunFiles::continue_at(int64_t step) {
  if (!on_disk()) return 0;
  int64_t damaged = 0;
  std::string kept, line;
  std::optional<Lines> in;
  if (folder_.has(log_file)) in.emplace(folder_.open_read(log_file));
  for (nlohmann::json row; in && next_row(*in, line, row);) {
    if (!is_row(row)) {
      damaged += !in->cut();  // a kill truncates the last line
      continue;
    }
    auto number = [&](const char* key) {
      return row.contains(key) && row[key].is_number() ? row[key].get<double>() : NAN;
    };
    auto part = [&](const char* key) { return row.contains(key) ? number(key) : -1; };
    int64_t at = row["step"].get<int64_t>();
    if (at > step) continue;
    kept += line + "\n";
    if (row.contains("val_loss"))
      validations_.push_back({at, number("val_loss"), losses_of_sources(row)});
    else
      steps_.push_back({at, number("loss"), number("lr"), number("grad_norm"), number("step_ms"),
                        number("tokens_per_second"), row.contains("skipped") && row["skipped"] == true,
                        number("wait_ms"), part("fp8_saturated"), part("fp8_vanished"), "", part("update_ms"),
                        number("watts"), number("clock_mhz"), number("memory_bytes")});
  }
  if (damaged > 0) folder_.rename(log_file, damaged_log_file);
  write(log_file, kept);
  drop_samples_after(step);
  log_ = folder_.append(log_file);
  folder_.make(events_folder);
  tensorboard_ = std::make_unique<TensorboardWriter>(folder_.folder(events_folder));
  tensorboard_->start_after(step);
  return damaged;
}

void RunFiles::write(const std::string& name, const std::string& bytes) const {
  if (!on_disk()) return;
  folder_.write_atomic(name, name == "config.toml"
                                 ? fmt::format("{} --config config.toml repeats this run\n{}", config_mark, bytes)
                                 : bytes);
}

void RunFiles::write_line(const std::string& line) {
  try {
    log_.write(line + "\n");
  } catch (const Error& e) {
    fail(e.problem(), e.where(), free_space_hint);
  }
}

// JSON has no NaN, so it becomes null.
static std::string number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }
static std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void RunFiles::add(const StepRow& r) {
  steps_.push_back(r);
  if (!on_disk()) return;
  const bool fp8 = !(r.saturated < 0);
  std::string lost;
  if (fp8)
    lost = fmt::format(R"(, "fp8_saturated": {}, "fp8_vanished": {}, "fp8_vanished_most": "{}")", number(r.saturated),
                       number(r.vanished), r.vanished_most);
  auto known = [](const char* key, double x) {
    return std::isfinite(x) && x >= 0 ? fmt::format(", \"{}\": {}", key, std::round(x * 1000) / 1000) : "";
  };
  const std::string device = known("update_ms", r.update_ms) + known("watts", r.watts) +
                             known("clock_mhz", r.clock_mhz) + known("memory_bytes", r.memory_bytes);
  write_line(fmt::format(
      R"({{"step": {}, "loss": {}, "lr": {}, "grad_norm": {}, "step_ms": {}, "tokens_per_second": {}, "skipped": {}, "wait_ms": {}{}{}}})",
      r.step, number(r.loss), number(r.lr), number(r.grad_norm), number(std::round(r.step_ms * 1000) / 1000),
      number(std::round(r.tokens_per_second * 10) / 10), r.skipped, number(std::round(r.wait_ms * 1000) / 1000), device,
      lost));
  tensorboard_->scalar("train/loss", r.step, r.loss);
  tensorboard_->scalar("lr", r.step, r.lr);
  tensorboard_->scalar("grad_norm", r.step, r.grad_norm);
  tensorboard_->scalar("tokens_per_second", r.step, r.tokens_per_second);
  if (!fp8) return;
  tensorboard_->scalar("fp8/saturated", r.step, r.saturated);
  tensorboard_->scalar("fp8/vanished", r.step, r.vanished);
}

void RunFiles::add(const ValidationRow& r) {
  validations_.push_back(r);
  if (!on_disk()) return;
  std::string sources;
  for (auto& [label, loss] : r.of_sources)
    sources +=
        fmt::format("{}{}: {}", sources.empty() ? R"(, "val_losses": {)" : ", ", json_string(label), number(loss));
  write_line(fmt::format(R"({{"step": {}, "val_loss": {}{}}})", r.step, number(r.val_loss),
                         sources.empty() ? "" : sources + "}"));
  tensorboard_->scalar("val/loss", r.step, r.val_loss);
  for (auto& [label, loss] : r.of_sources) tensorboard_->scalar("val/loss/" + label, r.step, loss);
  tensorboard_->flush();
}

void RunFiles::add_sample(int64_t step, const std::string& text) {
  if (!on_disk()) return;
  File out = folder_.append(samples_file);
  try {
    out.write(fmt::format("{}{}\n{}\n", sample_mark, step, text));
  } catch (const Error& e) {
    fail(e.problem(), e.where(), free_space_hint);
  }
}

void RunFiles::flush() {
  if (tensorboard_) tensorboard_->flush();
}

std::string RunFiles::draw_loss(int width) const {
  Series train{"train", {}, {}}, val{"validation", {}, {}};
  for (auto& r : steps_)
    if (!r.skipped && std::isfinite(r.loss)) train.x.push_back(double(r.step)), train.y.push_back(r.loss);
  for (auto& r : validations_) val.x.push_back(double(r.step)), val.y.push_back(r.val_loss);
  if (!on_disk() || train.x.size() < 2) return "";
  ChartOptions options;
  options.title = "Loss", options.x_label = "step";
  options.y_label = fmt::format("cross-entropy, nats per token ({})", loss_curves_key);
  write("loss.svg", line_chart_svg(loss_curves("", train, val, 0), options));
  options.y_label = "cross-entropy (nats per token)";
  std::vector<Series> terminal = {smoothed(train)};
  if (!val.x.empty()) terminal.push_back(val);
  return terminal_chart(terminal, options, width);
}

// Names valid in every file system and in TOML, with room for a number at the end.
static std::string plain_name(std::string_view name) {
  constexpr size_t longest = 200;
  std::string plain;
  while (!name.empty() && plain.size() < longest) {
    Character c = first_character(name);
    plain += c.valid && c.code != '/' ? std::string(name.substr(0, c.size)) : "_";
    name.remove_prefix(c.size);
  }
  return plain.empty() || plain == "." || plain == ".." ? "run" : plain;
}

FreshFolder::FreshFolder(const std::string& root, const std::string& name) {
  std::string base = join_path(root, plain_name(name));
  path_ = base;
  for (int i = 2;;) {
    create_directories(root);
    try {
      if (make_directory(path_)) return;
      path_ = fmt::format("{}-{}", base, i++);
    } catch (const SystemError& e) {
      if (!e.missing())  // another process may have removed the empty root
        fail(e.problem(), e.where(), "The run folder could not be created; choose one with --out.");
    }
  }
}

FreshFolder::~FreshFolder() {
  // Both calls fail, as intended, if the folder is not empty.
  for (const std::string& folder : {path_, parent_path(path_)})
    if (syscalls->unlinkat(AT_FDCWD, folder.c_str(), AT_REMOVEDIR) != 0) return;
}

}  // namespace crest
