// Reads tables of results as people write them down: a line for each batch, under a heading that
// names the settings.
//   B) FP32 + TF32 enabled
//   B16:  dt 133 ms   123 k tok/s  42 GB   (+2.6x throughput)
//   B32:  dt 670 ms   49 k tok/s   77 GB   (OOM on H100)
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crest {

// NaN: the line does not say.
struct ResultRow {
  ResultRow();
  int64_t batch = 0;
  double step_ms, tokens_per_second, memory_bytes;
  bool out_of_memory = false;
  std::string note;     // the text in parentheses
  std::string heading;  // of its table, as "B) FP32 + TF32 enabled"; "": none
  bool says_figures() const;
};

struct ScannedResult {
  bool labeled = false;          // starts with a batch size: "B16:", "batch = 16 |", "bs 16,"
  std::optional<ResultRow> row;  // with a figure, or out of memory
};
ScannedResult scan_result_line(std::string_view line);

// The rows of a text, read line by line.
class ResultTable {
 public:
  void add(const std::string& line, int64_t number);

  std::vector<ResultRow> rows;
  int64_t repeated = 0;          // lines with the same figures as an earlier line
  int64_t unreadable = 0;        // lines that start with a batch size and have no figures
  std::string first_unreadable;  // "line 12: B64: killed"

 private:
  std::string above_;    // the last line that is neither empty nor a row; "" after the end of a code block
  std::string heading_;  // of the rows being read
  bool in_rows_ = false, fenced_ = false;
  std::set<std::string> seen_;                       // figures of the rows
  std::set<std::pair<std::string, int64_t>> known_;  // heading and batch
};

}  // namespace crest
