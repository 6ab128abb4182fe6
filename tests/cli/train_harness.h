// Tiny training runs of the real binary: data, a model of milliseconds, and comparisons of two
// runs.
#pragma once
#include <algorithm>

#include "cli/run.h"
#include "contains.h"
#include "core/random.h"

namespace crest::test {

using Flags = std::vector<std::string>;

inline Flags operator+(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Words in a simple pattern, the same for the same size.
inline std::string sample_text(size_t words) {
  static const char* list[] = {"the",  "king", "of",  "his",  "house", "said",
                               "unto", "them", "and", "went", "day",   "land"};
  std::string text;
  for (size_t i = 0; i < words; ++i) {
    text += list[random_bits(1, 2, i) % 12];
    text += i % 11 == 10 ? ".\n" : " ";
  }
  return text;
}

// Bytes, so the vocabulary is 257; two layers, two heads, width 32, context 32.
inline const char* byte_model =
    "preset = \"nano\"\nname = \"tiny\"\nlayers = 2\nheads = 2\nkv_heads = 2\nwidth = 32\nhead_dim = 16\nff = 128\n"
    "context = 32\nvocab = 257\n";

class TrainFolder : public TempFolder {
 public:
  explicit TrainFolder(size_t words = 400) {
    write("text.txt", sample_text(words));
    write("tiny.toml", byte_model);
    RunResult r = run_crest({"data", "prepare", "text.txt", "--tokenizer", "bytes", "--out", "data"}, options());
    EXPECT_EQ(r.code, 0) << r.err;
  }
  RunOptions options() const {
    RunOptions o;
    o.folder = path().string();
    // A waiting thread must not spin where tests share cores.
    o.environment = {{"CREST_CACHE", *this / "cache"}, {"OMP_WAIT_POLICY", "passive"}};
    return o;
  }
  // crest train with the tiny model and data (of `more`, if it has --data), one thread unless
  // `more` says otherwise.
  RunResult train(const std::string& out, int steps, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> a = {"train", "--model", "tiny.toml",           "--batch",   "2", "--out",
                                  out,     "--steps", std::to_string(steps), "--threads", "1"};
    if (std::find(more.begin(), more.end(), "--data") == more.end()) a.insert(a.end(), {"--data", "data"});
    a.insert(a.end(), more.begin(), more.end());
    return run_crest(a, options());
  }
  RunResult resume(const std::string& run, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> a = {"train", "--resume", run};
    a.insert(a.end(), more.begin(), more.end());
    return run_crest(a, options());
  }

  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> names;
    std::error_code error;
    for (auto& e : std::filesystem::directory_iterator(path() / run / "checkpoints", error))
      if (std::string n = e.path().filename().string(); n.starts_with("step-")) names.push_back(n);
    std::sort(names.begin(), names.end());
    return names;
  }
  // Weights, moments, step, loader position and scalars of a checkpoint, as the bytes of its files.
  std::string state(const std::string& run, const std::string& name) const {
    std::string folder = run + "/checkpoints/" + name + "/", all;
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
      std::string bytes = read(folder + file);
      EXPECT_FALSE(bytes.empty()) << folder << file;
      all += bytes;
    }
    return all;
  }
  std::string last_state(const std::string& run) const {
    auto names = checkpoints(run);
    return names.empty() ? "" : names.back() + state(run, names.back());
  }
  std::vector<nlohmann::json> log(const std::string& run) const {
    std::vector<nlohmann::json> rows;
    std::istringstream in(read(run + "/log.jsonl"));
    for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
  // The log without clock times.
  std::vector<nlohmann::json> timeless_log(const std::string& run) const {
    auto rows = log(run);
    for (auto& r : rows)
      for (const char* key :
           {"step_ms", "tokens_per_second", "wait_ms", "update_ms", "watts", "clock_mhz", "memory_bytes"})
        r.erase(key);
    return rows;
  }
  size_t log_rows(const std::string& run) const {
    std::string log = read(run + "/log.jsonl");
    return size_t(std::count(log.begin(), log.end(), '\n'));
  }
  // Until the log of a run has so many rows.
  bool wait_for_rows(const RunningProcess& process, const std::string& run, size_t rows) const {
    return process.wait(std::to_string(rows) + " rows in the log", [&] { return log_rows(run) >= rows; });
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(path() / name); }
};

}  // namespace crest::test
