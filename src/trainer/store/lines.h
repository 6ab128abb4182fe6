// Reads a file or pipe line by line, whatever its length.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/io.h"

namespace crest {

class LineReader {
 public:
  // "-" is standard input. A line of more than `limit` bytes is an error.
  LineReader(const std::string& path, uint64_t limit);

  // False at the end. The line excludes its "\n" or "\r\n".
  bool next(std::string& line);
  // Returns the last line again on the next call.
  void unread(std::string line) { again_ = std::move(line), --number_; }
  int64_t number() const { return number_; }  // number of the last line, from 1
  // "FILE, line 3", safe for a terminal.
  std::string where() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  uint64_t limit_;
  File file_;
  std::string buffer_;
  std::optional<std::string> again_;
  size_t used_ = 0;
  bool ended_ = false;
  int64_t number_ = 0;
};

}  // namespace crest
