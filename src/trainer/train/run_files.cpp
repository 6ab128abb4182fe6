#include "train/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "charts/figure.h"
#include "charts/terminal_chart.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/shell_word.h"
#include "core/system_error.h"
#include "core/text.h"

namespace crest {

namespace fs = std::filesystem;

static constexpr const char* free_space_hint =
    "Free some space. The last checkpoint is intact; continue with --resume.";

// The first line of every config.toml that Crest writes. --overwrite recognizes a run by it.
static constexpr const char* config_mark = "# crest train";

// The open, locked folder. The system releases the lock when the process dies.
static std::shared_ptr<const int> lock_folder(const std::string& folder) {
  int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(std::strerror(errno), printable(folder), "Check the path.");
  std::shared_ptr<const int> lock(new int(fd), [](const int* f) { ::close(*f), delete f; });
  // Some network file systems have no locks; the run then continues without one.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail("another process is training in this folder", printable(folder), "Wait until it ends, or stop it.");
  return lock;
}

static bool is_run(const std::string& folder) {
  std::string path = folder + "/config.toml";
  if (kind_of(path) != PathKind::file) return false;
  std::string start(std::strlen(config_mark), '\0');
  start.resize(File::open_read(path).read_some_at(start.data(), start.size(), 0));
  return start == config_mark;
}

// Whether `path`, or a folder above it, is `folder`: also by another name (a link, a mount).
static bool is_inside(fs::path path, const std::string& folder) {
  std::error_code error;
  for (;; path = path.parent_path()) {
    if (fs::equivalent(path, folder, error)) return true;
    if (path == path.parent_path()) return false;
  }
}

void check_inputs_stay(const std::string& folder, const std::vector<InputPath>& inputs) {
  if (kind_of(folder) != PathKind::folder) return;  // nothing is removed
  for (auto& [flag, path] : inputs) {
    if (!path_exists(path)) continue;  // a preset, or an error of whoever reads it
    std::error_code error;
    fs::path named = fs::absolute(path).lexically_normal(), leads_to = fs::canonical(path, error);
    // A link inside of the folder is removed with it, and the file of one outside may be inside.
    if (is_inside(named, folder) || (!error && is_inside(leads_to, folder)))
      fail_usage(fmt::format("this would remove {}, which {} names, with the run in {}", printable(path), flag,
                             printable(folder)),
                 "--overwrite", "Choose another --out, or move what is read to another folder first.");
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

RunFiles::RunFiles(std::string folder) : RunFiles(folder, lock_folder(folder)) {}
RunFiles::RunFiles(std::string folder, std::shared_ptr<const int> lock)
    : folder_(std::move(folder)), lock_(std::move(lock)) {}

// If two processes compete, one creates the folder or locks it, and the other gets an error. A kill
// at any moment leaves a folder that can be overwritten, because config.toml is written first.
RunFiles RunFiles::create(const std::string& folder, bool overwrite, bool fresh) {
  std::error_code error;
  fs::path parent = fs::path(folder).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  bool made = !error && fs::create_directory(folder, error);
  if (error && !fs::exists(folder))
    fail(error.message(), printable(folder), "The run folder could not be created; choose another --out.");
  auto exists = [&] {
    fail(fmt::format("'{}' exists", printable(folder)), "--out",
         "Choose another --out, continue the run with --resume, or add --overwrite.");
  };
  if (!made && !overwrite && !fresh) exists();
  auto refuse = [&] {
    fail(fmt::format("'{}' is not a run folder", printable(folder)), "--overwrite",
         "--overwrite replaces runs only; choose another --out.");
  };
  if (!fs::is_directory(folder)) refuse();
  RunFiles files(folder);
  if (!made && !overwrite && !fs::is_empty(folder)) exists();
  if (!made) {
    if (!is_run(folder) && !is_begun(folder)) refuse();
    // config.toml is removed last: it marks the folder as a run.
    for (bool last : {false, true})
      for (auto& entry : fs::directory_iterator(folder))
        if (last || entry.path().filename() != "config.toml") {
          fs::remove_all(entry.path(), error);
          if (error) fail(error.message(), printable(folder), "The earlier run could not be removed.");
        }
  }
  files.write("config.toml", "");
  return files;
}

void RunFiles::check_folder() const {
  struct stat mine, there;
  if (!on_disk() || fstat(*lock_, &mine) != 0) return;
  if (stat(folder_.c_str(), &there) != 0 || mine.st_ino != there.st_ino || mine.st_dev != there.st_dev)
    fail("the run folder was removed or moved during training", printable(folder_),
         "Nothing more can be saved. Start again, or move it back and continue with --resume.");
}

RunFiles RunFiles::open(const std::string& folder) { return RunFiles(folder); }

// A file of lines, read once. Unlike a stream, it says why it cannot be read; and what is no
// regular file, as a pipe that somebody left there, is an error.
class Lines {
 public:
  explicit Lines(const std::string& path) : file_(File::open_read(path)), buffer_(64 << 10, '\0') {}
  // The next line without its end; of longer ones only the first `longest` + 1 bytes.
  bool next(std::string& line, size_t longest) {
    line.clear();
    for (bool any = false;; any = true) {
      if (at_ == end_) at_ = 0, end_ = file_.read_some(buffer_.data(), buffer_.size());
      if (end_ == 0) return any;
      char c = buffer_[at_++];
      if (c == '\n') return true;
      if (line.size() <= longest) line += c;
    }
  }

 private:
  File file_;
  std::string buffer_;
  size_t at_ = 0, end_ = 0;
};

// A row of the log, as text and parsed. null: cut short by a kill, or not a row.
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
  Lines in(path);
  int64_t last = 0;
  for (nlohmann::json row; next_row(in, line, row);)
    if (is_row(row)) last = row["step"].get<int64_t>();
  return last;
}

static constexpr std::string_view sample_mark = "--- step ";

void RunFiles::drop_samples_after(int64_t step) const {
  std::string path = folder_ + "/samples.txt", kept, line;
  if (kind_of(path) == PathKind::nothing) return;
  Lines in(path);
  bool dropped = false;
  while (!dropped && in.next(line, SIZE_MAX - 1)) {
    int64_t at = 0;
    auto [end, error] =
        std::from_chars(line.data() + std::min(line.size(), sample_mark.size()), line.data() + line.size(), at);
    dropped = line.starts_with(sample_mark) && error == std::errc() && end == line.data() + line.size() && at > step;
    if (!dropped) kept += line + "\n";
  }
  if (dropped) write("samples.txt", kept);
}

void RunFiles::continue_at(int64_t step) {
  if (!on_disk()) return;
  std::string kept, line;
  std::string path = folder_ + "/log.jsonl";
  std::optional<Lines> in;
  if (kind_of(path) != PathKind::nothing) in.emplace(path);
  for (nlohmann::json row; in && next_row(*in, line, row);) {
    if (!is_row(row)) continue;
    auto number = [&](const char* key) {
      return row.contains(key) && row[key].is_number() ? row[key].get<double>() : NAN;
    };
    auto part = [&](const char* key) { return row.contains(key) ? number(key) : -1; };
    int64_t at = row["step"].get<int64_t>();
    if (at > step) continue;
    kept += line + "\n";
    if (row.contains("val_loss"))
      validations_.push_back({at, number("val_loss")});
    else
      steps_.push_back({at, number("loss"), number("lr"), number("grad_norm"), number("step_ms"),
                        number("tokens_per_second"), row.contains("skipped") && row["skipped"] == true,
                        number("wait_ms"), part("fp8_saturated"), part("fp8_vanished")});
  }
  write("log.jsonl", kept);
  drop_samples_after(step);
  log_ = File::append(path);
  tensorboard_ = std::make_unique<TensorboardWriter>(folder_ + "/tensorboard");
  tensorboard_->start_after(step);
}

void RunFiles::write(const std::string& name, const std::string& bytes) const {
  if (!on_disk()) return;
  write_file_atomic(
      folder_ + "/" + name,
      name == "config.toml" ? fmt::format("{} --config config.toml repeats this run\n{}", config_mark, bytes) : bytes);
}

void RunFiles::write_line(const std::string& line) {
  try {
    log_.write(line + "\n");
  } catch (const Error& e) {
    fail(e.problem(), e.where(), free_space_hint);
  }
}

// JSON has no NaN; null stands for it.
static std::string number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

void RunFiles::add(const StepRow& r) {
  steps_.push_back(r);
  if (!on_disk()) return;
  const bool fp8 = !(r.saturated < 0);
  std::string lost;
  if (fp8)
    lost = fmt::format(R"(, "fp8_saturated": {}, "fp8_vanished": {}, "fp8_vanished_most": "{}")", number(r.saturated),
                       number(r.vanished), r.vanished_most);
  write_line(fmt::format(
      R"({{"step": {}, "loss": {}, "lr": {}, "grad_norm": {}, "step_ms": {}, "tokens_per_second": {}, "skipped": {}, "wait_ms": {}{}}})",
      r.step, number(r.loss), number(r.lr), number(r.grad_norm), number(std::round(r.step_ms * 1000) / 1000),
      number(std::round(r.tokens_per_second * 10) / 10), r.skipped, number(std::round(r.wait_ms * 1000) / 1000), lost));
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
  write_line(fmt::format(R"({{"step": {}, "val_loss": {}}})", r.step, number(r.val_loss)));
  tensorboard_->scalar("val/loss", r.step, r.val_loss);
  tensorboard_->flush();
}

void RunFiles::add_sample(int64_t step, const std::string& text) {
  if (!on_disk()) return;
  std::ofstream out(folder_ + "/samples.txt", std::ios::app);
  out << fmt::format("{}{}\n{}\n", sample_mark, step, text) << std::flush;
  if (!out) fail("the sample could not be written", printable(folder_ + "/samples.txt"), free_space_hint);
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
  write_text_file(folder_ + "/loss.svg", line_chart_svg(loss_curves("", train, val, 0), options));
  options.y_label = "cross-entropy (nats per token)";
  std::vector<Series> terminal = {smoothed(train)};
  if (!val.x.empty()) terminal.push_back(val);
  return terminal_chart(terminal, options, width);
}

// Names that every file system and TOML accept, with room for a number at the end.
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
    if (::mkdir(path_.c_str(), 0755) == 0) return;
    if (errno == EEXIST)
      path_ = fmt::format("{}-{}", base, i++);
    else if (errno != ENOENT && errno != EINTR)  // another process may have removed the empty root
      fail(std::strerror(errno), printable(path_), "The run folder could not be created; choose one with --out.");
  }
}

FreshFolder::~FreshFolder() {
  // Both calls fail, as intended, if something is inside.
  if (::rmdir(path_.c_str()) == 0) ::rmdir(parent_path(path_).c_str());
}

}  // namespace crest
