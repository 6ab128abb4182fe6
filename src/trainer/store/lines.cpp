#include "store/lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace crest {

constexpr size_t chunk_bytes = size_t(1) << 15;

LineReader::LineReader(const std::string& path, uint64_t limit)
    : path_(path == "-" ? "standard input" : path),
      limit_(limit),
      file_(path == "-" ? File::duplicate(STDIN_FILENO, path_) : File::open_stream(path)) {}

std::string LineReader::where() const { return fmt::format("{}, line {}", printable(path_), number_); }

bool LineReader::next(std::string& line) {
  if (again_) {
    line = std::move(*again_);
    again_.reset();
    ++number_;
    return true;
  }
  size_t end = buffer_.find('\n', used_);
  while (end == std::string::npos && !ended_) {
    buffer_.erase(0, used_);
    used_ = 0;
    size_t old = buffer_.size();
    if (old > limit_) {
      ++number_;
      fail(fmt::format("is longer than the limit of {} per line", format_bytes(double(limit_))), where(),
           "Check that this is the right file.");
    }
    buffer_.resize(old + chunk_bytes);
    size_t got = file_.read_some(buffer_.data() + old, chunk_bytes);
    buffer_.resize(old + got);
    ended_ = got < chunk_bytes;
    end = buffer_.find('\n', old);
  }
  if (end == std::string::npos) {
    if (used_ == buffer_.size()) return false;
    end = buffer_.size();
  }
  line.assign(buffer_, used_, end - used_);
  used_ = std::min(end + 1, buffer_.size());
  if (!line.empty() && line.back() == '\r') line.pop_back();
  ++number_;
  return true;
}

}  // namespace crest
