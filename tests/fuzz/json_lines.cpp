// Any bytes as JSON lines: a clear error, or the same texts wherever the blocks end.
#include "data/json_lines.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace crest;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto read = [&](size_t cut) {
    std::vector<std::string> found;
    JsonLines lines("input", "text");
    auto use = [&](const JsonDocument& d) {
      found.emplace_back(std::string(d.record ? "record" : "text") + "\n" + std::string(d.prompt) + "\n" +
                         std::string(d.text));
    };
    try {
      if (cut > 0) lines.add(text.substr(0, cut), false, use);
      lines.add(text.substr(cut), true, use);
    } catch (const Error& e) {
      found.push_back(e.what());
    }
    return found;
  };
  auto whole = read(0);
  for (size_t cut : {size / 2, size / 3, size_t(1)})
    if (cut < size && read(cut) != whole) std::abort();
  return 0;
}
