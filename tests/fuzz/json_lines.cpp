// Any bytes as JSON lines: a clear error, or the same texts wherever the blocks end.
#include "data/json_lines.h"

#include <vector>

#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static std::vector<std::string> read(std::string_view text, size_t cut) {
  std::vector<std::string> found;
  JsonLines lines("input", "text");
  auto use = [&](const JsonDocument& d) {
    found.push_back(std::string(d.record ? "record" : "text") + "\n" + std::string(d.prompt) + "\n" +
                    std::string(d.text));
  };
  try {
    if (cut > 0) lines.add(text.substr(0, cut), false, use);
    lines.add(text.substr(cut), true, use);
  } catch (const Error& e) {
    found.push_back(e.what());
  }
  return found;
}

static void fuzz_json_lines(std::string_view text) {
  size_t cut = choose(text, 256);
  auto whole = read(text, 0);
  if (cut > 0 && cut < text.size()) check(read(text, cut) == whole);
}
CREST_FUZZ_TARGET(fuzz_json_lines)
