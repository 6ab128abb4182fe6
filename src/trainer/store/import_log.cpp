#include "store/import_log.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>

#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "stats/samples.h"
#include "store/log_line.h"
#include "store/result_rows.h"
#include "store/step_times.h"

namespace crest {

namespace {

constexpr size_t most_steps = 50'000'000;

// Collects the rows of a log, line by line.
class LogReader {
 public:
  void read(const std::string& text) {
    ++out.lines;
    hash_.update(text.data(), text.size());
    hash_.update("\n", 1);
    bool told = false;
    for (auto& part : split(text, '\r')) told = add(scan_log_line(part)) || told;  // progress bars overwrite themselves
    if (!told) ++out.skipped;
  }

  bool empty() const { return rows_.empty(); }
  // Of the text read so far.
  std::string hash() const {
    Sha256 hash = hash_;
    return to_hex(hash.digest()).substr(0, 16);
  }

  void finish(const std::string& path) {
    if (rows_.empty())
      fail("contains no training steps", printable(path),
           "Looked for lines with a step and a loss or time, such as \"iter 10: loss 3.21, time 12.3ms\", "
           "\"step 10/100 | loss 3.21 | 12.3 ms | 41000 tok/s\" or {\"step\": 10, \"loss\": 3.21}; for results "
           "by batch size, such as \"B16: dt 133 ms 123 k tok/s 42 GB\"; or the header of crest runs export.");
    // Some programs print an estimate of the training loss with each validation; next to the loss
    // of the steps it would be a second curve.
    if (step_losses_ > 0)
      for (auto& r : rows_)
        if (!std::isnan(r.val_loss)) r.loss = NAN;
    out.record.log = std::move(rows_);
    out.record.uid = hash();
  }

  Json result(const LogDescription& d) const {
    std::vector<double> ms = step_times(out.record);
    double loss = NAN, val_loss = NAN;
    int64_t last = 0;
    for (auto& r : out.record.log) {
      if (!std::isnan(r.loss)) loss = r.loss;
      if (!std::isnan(r.val_loss)) val_loss = r.val_loss;
      last = std::max(last, r.step);
    }
    if (ms.empty() && steps_per_second_ > 0) ms.push_back(1e3 / steps_per_second_);
    Samples times(ms);
    double rate = logged_rate(out.record);
    if (rate == 0) rate = double(d.batch) * double(d.seq) * 1e3 / times.median();
    Json json = {{"step", last}};
    auto add = [&](const char* key, double x) {
      if (std::isfinite(x)) json[key] = x;
    };
    add("loss", loss);
    add("val_loss", val_loss);
    add("step_ms_mean", times.mean());
    add("step_ms_std", times.std_dev());
    add("step_ms_median", times.median());
    add("step_ms_min", times.min());
    add("step_ms_max", times.max());
    json["samples"] = ms.size();
    if (rate > 0) add("tokens_per_second", rate);
    if (!mfu_.empty()) add("mfu", Samples(mfu_).median());
    if (memory_ > 0) json["memory"] = {{"device_peak_bytes", int64_t(memory_)}};
    return json;
  }

  ImportedLog out;

 private:
  // Whether the line had data.
  bool add(const LogLine& l) {
    out.without_unit += l.without_unit;
    if (l.bar) bar_ = *l.bar;
    if (l.memory_bytes > memory_ && l.memory_bytes < 1e15) memory_ = l.memory_bytes;
    if (!std::isnan(l.mfu) && l.step) mfu_.push_back(l.mfu);
    if (l.steps_per_second > 0) return steps_per_second_ = l.steps_per_second, true;
    if (!l.says_step()) return l.memory_bytes > 0;
    bool validation = !std::isnan(l.val_loss);
    int64_t step = last_step_;
    if (l.step) {
      step = *l.step;
    } else if (l.braces && l.has_loss) {  // Hugging Face's Trainer prints the step only in its progress bar
      out.numbered = out.numbered || bar_ == 0;
      step = bar_ > 0 ? bar_ : last_step_ + 1;
    } else if (!validation) {
      return false;
    }
    last_step_ = step;
    add_row(l, step);
    return true;
  }

  void add_row(const LogLine& l, int64_t step) {
    if (rows_.size() >= most_steps) fail(fmt::format("more than {} steps", most_steps), "training log");
    LogRow r;
    r.step = step;
    r.loss = l.loss, r.val_loss = l.val_loss, r.lr = l.lr, r.grad_norm = l.grad_norm;
    r.step_ms = l.step_ms, r.tokens_per_second = l.tokens_per_second, r.skipped = l.skipped;
    // Time since the start, as printed by modded-nanogpt: step times are differences between lines.
    if (!std::isnan(l.elapsed_ms)) {
      if (std::isnan(r.step_ms) && step > elapsed_step_ && l.elapsed_ms > elapsed_ms_ && !std::isnan(elapsed_ms_))
        r.step_ms = (l.elapsed_ms - elapsed_ms_) / double(step - elapsed_step_);
      elapsed_ms_ = l.elapsed_ms, elapsed_step_ = step;
    }
    if (std::isnan(r.val_loss)) {
      ++out.steps;
      step_losses_ += l.has_loss;
    } else {
      ++out.validations;
    }
    rows_.push_back(r);
  }

  std::vector<LogRow> rows_;
  std::vector<double> mfu_;
  Sha256 hash_;
  int64_t last_step_ = 0, bar_ = 0, elapsed_step_ = 0, step_losses_ = 0;
  double elapsed_ms_ = NAN, memory_ = 0, steps_per_second_ = 0;
};

// When the file was last written; "" for a pipe.
std::string time_of_file(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  tm parts{};
  gmtime_r(&info.st_mtim.tv_sec, &parts);
  char text[40];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, info.st_mtim.tv_nsec / 1'000'000);
}

// The same text with the same description is the same run, wherever the file is.
std::string uid_of(const std::string& hash, const std::string& name, const LogDescription& d) {
  std::string told = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", hash, name, d.model, d.device, d.batch, d.seq);
  return sha256_hex(told.data(), told.size()).substr(0, 16);
}

void describe(RunRecord& r, const LineReader& lines, const LogDescription& d) {
  r.kind = "log", r.status = "done", r.imported_from = lines.path();
  r.started = r.finished = time_of_file(lines.path());
  if (r.finished.empty()) r.started = r.finished = utc_now();
  if (!d.model.empty()) r.recipe["model"] = d.model;
  if (d.batch > 0) r.recipe["batch"] = d.batch;
  if (d.seq > 0) r.recipe["seq"] = d.seq;
  if (!d.device.empty()) r.device = {{"kind", ""}, {"name", d.device}};
}

ImportedLog log_of(LogReader& reader, const LineReader& lines, const LogDescription& d) {
  reader.finish(lines.path());
  RunRecord& r = reader.out.record;
  describe(r, lines, d);
  r.name = d.name.empty() ? std::filesystem::path(lines.path()).stem().string() : d.name;
  r.result = reader.result(d);
  r.uid = uid_of(r.uid, r.name, d);
  return std::move(reader.out);
}

RunRecord record_of(const ResultRow& row, const LineReader& lines, const LogDescription& d) {
  RunRecord r;
  describe(r, lines, d);
  r.phase = "step";
  if (!row.heading.empty()) r.recipe["variant"] = row.heading;
  r.recipe["batch"] = row.batch;
  r.name = d.name.empty() ? recipe_name(r) : fmt::format("{}-b{}", d.name, row.batch);
  r.result = Json::object();
  auto add = [&](const char* key, double x) {
    if (std::isfinite(x)) r.result[key] = x;
  };
  add("step_ms_median", row.step_ms);
  const double by_time = d.seq > 0 ? double(row.batch * d.seq) * 1e3 / row.step_ms : NAN;
  add("tokens_per_second", std::isfinite(row.tokens_per_second) ? row.tokens_per_second : by_time);
  if (std::isfinite(row.memory_bytes)) r.result["memory"] = {{"device_peak_bytes", int64_t(row.memory_bytes)}};
  if (!row.note.empty()) r.result["note"] = row.note;
  if (row.out_of_memory) r.status = "out_of_memory", r.result["error"] = "out_of_memory";
  return r;
}

ImportedResults results_of(const ResultTable& table, const ImportedLog& text, const std::string& hash,
                           const LineReader& lines, const LogDescription& d) {
  if (d.batch > 0) fail_usage("each line of the text has its own batch size", "--batch", "Leave it out.");
  ImportedResults results;
  results.lines = text.lines;
  results.repeated = table.repeated, results.unreadable = table.unreadable;
  results.first_unreadable = table.first_unreadable;
  results.others = text.lines - int64_t(table.rows.size()) - table.repeated - table.unreadable;
  const std::string grid = uid_of(hash, d.name, d);
  for (auto& row : table.rows) {
    results.records.push_back(record_of(row, lines, d));
    RunRecord& r = results.records.back();
    r.grid = grid;
    r.uid = uid_of(hash, fmt::format("{}\n{}\n{}", r.name, row.heading, row.batch), d);
    results.out_of_memory += row.out_of_memory;
    if (table.unreadable)
      r.result["unreadable_lines"] = table.unreadable, r.result["first_unreadable"] = table.first_unreadable;
  }
  return results;
}

}  // namespace

ImportedLog import_log(LineReader& lines, const LogDescription& d) {
  LogReader reader;
  for (std::string line; lines.next(line);) reader.read(line);
  return log_of(reader, lines, d);
}

ImportedText import_text(LineReader& lines, const LogDescription& d) {
  LogReader reader;
  ResultTable table;
  for (std::string line; lines.next(line);) {
    reader.read(line);
    table.add(line, lines.number());
  }
  if (reader.empty() && !table.rows.empty())
    return {std::nullopt, results_of(table, reader.out, reader.hash(), lines, d), 0};
  return {log_of(reader, lines, d), std::nullopt, int64_t(table.rows.size())};
}

}  // namespace crest
