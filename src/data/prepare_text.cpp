#include "data/prepare_text.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "core/cache_folder.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "data/generated_text.h"
#include "data/prepare.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

// $CREST_CACHE itself; in a user's cache folder, a subfolder for data.
std::string data_cache() {
  std::string folder = cache_folder();
  if (folder.empty()) return ".crest-cache/data";
  const char* set = std::getenv("CREST_CACHE");
  return set && *set ? folder : folder + "/data";
}

}  // namespace

PreparedText prepare_text(const std::vector<std::string>& texts, const std::string& tokenizer,
                          const std::string& chat_template) {
  constexpr uint64_t short_text = 256 << 10;
  PrepareOptions p;
  p.inputs = texts;
  p.chat_template = chat_template;
  uint64_t bytes = 0;
  std::error_code error;
  for (auto& t : texts)
    if (tokenizer.empty() && fs::is_regular_file(t, error)) bytes += text_size(t, short_text);
  p.tokenizer = !tokenizer.empty() ? tokenizer : bytes < short_text ? "bytes" : "bpe:2048";
  p.message = [](const std::string& m) { to_stderr("{}\n", m); };
  PrepareResult r = prepare_cached(p, data_cache());
  return {r.folder.string(), r.reused, p.tokenizer, r.info.train_tokens + r.info.val_tokens, r.info.vocab_size};
}

PreparedText prepare_generated_text() {
  constexpr size_t size = 4 << 20;
  std::string path = data_cache() + "/generated-4MiB-v1.txt";
  std::error_code error;
  if (fs::file_size(path, error) != size || error) {
    fs::create_directories(data_cache(), error);
    write_file_atomic(path, generated_text(size));
  }
  return prepare_text({path}, "bytes");
}

}  // namespace crest
