// Frames of tokens as another program writes them (data/row_stream.h).
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

namespace crest::test {

inline std::string bytes_of(const std::vector<int32_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]};
}

inline std::string frame(const std::string& kind, int32_t columns, const std::vector<int32_t>& tokens) {
  return kind + bytes_of({int32_t(tokens.size()) / columns, columns}) + bytes_of(tokens);
}

// A stream with this content. open: its writer goes on, but writes nothing more.
class StreamOf {
 public:
  explicit StreamOf(const std::string& content, bool open = false) {
    if (open ? ::pipe(ends_) != 0 : (ends_[0] = ends_[1] = ::memfd_create("frames", 0)) < 0) std::abort();
    if (::write(ends_[1], content.data(), content.size()) != ssize_t(content.size())) std::abort();
    if (!open) ::lseek(ends_[0], 0, SEEK_SET);
  }
  ~StreamOf() {
    ::close(ends_[0]);
    if (ends_[1] != ends_[0]) ::close(ends_[1]);
  }
  StreamOf(const StreamOf&) = delete;
  int descriptor() const { return ends_[0]; }

 private:
  int ends_[2];
};

}  // namespace crest::test
