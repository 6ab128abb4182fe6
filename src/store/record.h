// One recorded run: what was asked, where, and every number that came out. Plain data; the store reads and writes it,
// comparisons and reports are made from it.
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
  int round = 0;           // of an interleaved measurement; else the number of the sample
  std::string contender;   // "", or "a", "a again", "b", "peer"
  bool throttled = false;  // the device was slowed down by power or temperature while it was taken
};

struct LogRow {  // a step or a validation of a training run; NaN: not said
  int64_t step = 0;
  double loss, val_loss, lr, grad_norm, step_ms, tokens_per_second;
  bool skipped = false;
  LogRow();
};

struct RunRecord {
  int64_t id = 0;                 // in this store
  std::string uid;                // the same everywhere: 16 hexadecimal digits
  std::string name;               // given by --name, or made from kind, model and recipe; need not be unique
  std::string kind;               // bench, noise, peer, profile, train, compare, experiment, gemm, log (imported)
  std::string status;             // running, done, failed, interrupted, lost (its process is gone), out_of_memory
  std::string started, finished;  // UTC, "2026-01-31T12:00:00.000Z"
  std::string command;            // the command line
  std::string folder;             // RUN of a training, else ""
  std::string grid;               // cells of one grid share it
  std::string key;                // hash of resolved recipe, device and phase: equal for repeated measurements
  std::string phase;              // forward, backward, step; "" for training
  std::string error;              // message of a failed run
  std::string imported_from;      // file, "" for a run of this machine
  Json recipe, device;            // docs/contract.md; null when unknown (imported logs)
  Json environment;               // before: machine, versions, clocks, power, temperature, throttling, other load
  Json environment_after;
  Json result;  // the row that the command prints with --json
  std::vector<SampleRow> samples;
  std::vector<LogRow> log;
  std::vector<std::string> damage;        // of a list: what cannot be read ("recipe: not valid JSON"), and is left out
  std::map<std::string, Json> documents;  // "profile" (profile/profile.h), "plan", "program", "comparison"
};

// 16 random hexadecimal digits.
std::string new_uid();
// One line of JSON. NaN becomes null; bytes that are no UTF-8 (of a command line) become U+FFFD.
std::string dump_json(const Json& json);
// The value of a key as text, "" when it is not there.
std::string text_at(const Json& object, const char* key);
// A name made from kind, model and levers: "bench-gpt2-124M-bf16-naive-b16-t1024".
std::string recipe_name(const RunRecord& record);
// RunRecord::key; "" for an unknown recipe.
std::string measurement_key(const Json& recipe, const Json& device, const std::string& phase);

}  // namespace crest
