// How much CPU memory each part of a command takes and gives back.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crest {

// Resident memory of this process, in bytes: before a part, at most during it, and after it.
struct MemoryPart {
  std::string part;
  int64_t start = 0;
  std::optional<int64_t> peak;  // absent: the system does not reset the peak
  int64_t end = 0;
};

// Divides the time of a process into parts, one after the other. It resets the peak of
// peak_resident_bytes() at each border.
class MemoryParts {
 public:
  // The part from the start of the process until the next begin().
  explicit MemoryParts(std::string first);
  // Ends the current part and starts another.
  void begin(std::string part);
  // Ends the last part. Call it once.
  std::vector<MemoryPart> end();

 private:
  void close();

  std::vector<MemoryPart> parts_;
  bool peak_known_ = true;  // of the current part
};

}  // namespace crest
