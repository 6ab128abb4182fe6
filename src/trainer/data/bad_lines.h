// Lines of JSON and rows of Parquet that cannot be used: an error, or skipped and counted.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "core/error.h"

namespace crest {

// Thrown where such a line is found. The place is file, line and column.
class BadLine : public Error {
 public:
  BadLine(std::string what, std::string where, std::string advice)
      : Error(Exit::failed, std::move(what), std::move(where), std::move(advice)) {}
};

// The bad lines of a preparation. Its files are read several times; only the first reading counts.
class BadLines {
 public:
  // allowed: how many may be skipped. message: receives a line for each of the first ones.
  explicit BadLines(uint64_t allowed, std::function<void(const std::string&)> message = {});
  // Skips the line, or throws its error if too many were skipped.
  void skip(const BadLine& line);
  // The first reading has ended: prints the number.
  void end_first_reading();
  uint64_t skipped() const { return skipped_; }

 private:
  uint64_t allowed_, skipped_ = 0;
  bool first_reading_ = true;
  std::function<void(const std::string&)> message_;
};

}  // namespace crest
