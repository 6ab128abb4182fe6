// Any bytes as JSON lines: a clear error, or the same texts wherever the blocks end. Every chat
// template, with and without special tokens of its own.
#include "data/json_lines.h"

#include <vector>

#include "data/tokenizer.h"
#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static std::vector<std::string> read(std::string_view text, size_t cut, const ChatFormat& format) {
  std::vector<std::string> found;
  JsonLines lines("input", "text", format);
  auto use = [&](const JsonDocument& d) {
    check(!d.chat || d.record());
    found.push_back("document\n" + std::string(d.text));
    bool trained = false;
    for (auto& part : d.parts) {
      found.push_back(std::string(part.trained ? "answer" : "prompt") + "\n" + part.text);
      check(!part.token || part.text.empty());
      trained |= part.trained;
    }
    check(!d.record() || trained);
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
  static const Tokenizer tokenizer = Tokenizer::bytes();
  size_t cut = choose(text, 256);
  auto templates = chat_templates();
  size_t form = cut % (templates.size() + 1);
  ChatFormat format(form ? templates[form - 1].name : "", cut & 16 ? &tokenizer : nullptr);
  auto whole = read(text, 0, format);
  if (cut > 0 && cut < text.size()) check(read(text, cut, format) == whole);
}
CREST_FUZZ_TARGET(fuzz_json_lines)
