// One recorded run: its settings, its machine, and all its results. Plain data; the store reads and
// writes it, and comparisons and reports use it.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace crest {

using Json = nlohmann::ordered_json;

struct SampleRow {
  double ms = 0;
  int round = 0;           // round of an interleaved measurement; else the index of the sample
  std::string contender;   // "", or "a", "b", "peer"; "a again" in records of earlier versions
  bool throttled = false;  // the device was throttled (power or temperature) during the sample
};

struct LogRow {  // a step or a validation of a training run; NaN: missing
  int64_t step = 0;
  double loss, val_loss, lr, grad_norm, step_ms, tokens_per_second;
  bool skipped = false;
  // Parts of step_ms: waiting for samples, and the optimizer step.
  double wait_ms, update_ms;
  // The device, read once a second: power, clock, memory in use (device/device_watch.h).
  double watts, clock_mhz, memory_bytes;
  LogRow();
};

// The numbers of a row in the order of the table `log`, by column. The first ones come before
// `skipped`, the others after it.
struct LogColumn {
  const char* name;
  double LogRow::*field;
};
inline constexpr LogColumn log_columns[] = {{"loss", &LogRow::loss},
                                            {"val_loss", &LogRow::val_loss},
                                            {"lr", &LogRow::lr},
                                            {"grad_norm", &LogRow::grad_norm},
                                            {"step_ms", &LogRow::step_ms},
                                            {"tokens_per_second", &LogRow::tokens_per_second},
                                            {"wait_ms", &LogRow::wait_ms},
                                            {"update_ms", &LogRow::update_ms},
                                            {"watts", &LogRow::watts},
                                            {"clock_mhz", &LogRow::clock_mhz},
                                            {"memory_bytes", &LogRow::memory_bytes}};
inline constexpr size_t log_columns_before_skipped = 6;

struct RunRecord {
  int64_t id = 0;                 // in this store
  std::string uid;                // the same in every store: 16 hexadecimal digits
  std::string name;               // from --name, or made from kind, model and recipe; not necessarily unique
  std::string kind;               // bench, noise, peer, profile, train, compare, experiment, gemm, log (imported)
  std::string status;             // running, done, failed, interrupted, lost (its process is gone), out_of_memory
  std::string started, finished;  // UTC, "2026-01-31T12:00:00.000Z"
  std::string command;            // the command line
  std::string folder;             // RUN folder of a training, else ""
  std::string grid;               // shared by the measurements of a grid
  std::string key;                // hash of resolved recipe, device and phase; equal for repeated measurements
  std::string phase;              // forward, backward, step; "" for training
  std::string error;              // message of a failed run
  std::string imported_from;      // file; "" for a run of this machine
  Json recipe, device;            // docs/reference/contract.md; null when unknown (imported logs)
  Json environment;  // before the run: machine, versions, clocks, power, temperature, throttling, other load
  Json environment_after;
  Json result;  // the row the command prints with --json
  std::vector<SampleRow> samples;
  std::vector<LogRow> log;
  std::vector<std::string> damage;  // in a list: unreadable parts ("recipe: not valid JSON"), which are left empty
  std::map<std::string, Json> documents;  // "profile" (profile/profile.h), "plan", "program", "comparison"
};

// 16 random hexadecimal digits.
std::string new_uid();
// One line of JSON. NaN becomes null; invalid UTF-8 (in a command line) becomes U+FFFD.
std::string dump_json(const Json& json);
// The value of a key as text; "" when missing.
std::string text_at(const Json& object, const char* key);
// A name made from kind, model and settings: "bench-gpt2-124M-bf16-naive-b16-t1024".
std::string recipe_name(const RunRecord& record);
// RunRecord::key; "" for an unknown recipe.
std::string measurement_key(const Json& recipe, const Json& device, const std::string& phase);

}  // namespace crest
