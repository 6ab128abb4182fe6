#include "data/prepare_text.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/cache_folder.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "data/generated_text.h"
#include "data/interrupt.h"
#include "data/prepare.h"
#include "data/sources.h"
#include "host/stop_signal.h"

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

// All of the text counts, also files in folders.
bool is_short(const std::vector<std::string>& texts) {
  constexpr uint64_t short_text = 256 << 10;
  uint64_t bytes = 0;
  for (auto& source : list_sources(texts, {}, 0, {})) {
    check_interrupted();
    bytes += text_size(source.path.string(), short_text);
    if (bytes >= short_text) return false;
  }
  return true;
}

}  // namespace

PreparedText prepare_text(const std::vector<std::string>& texts, const TextOptions& options,
                          const PreparationShown& shown) {
  std::optional<StopSignal> signal;  // a caller may have one
  if (!StopSignal::guarded()) signal.emplace();
  PrepareOptions p;
  p.inputs = texts;
  p.chat_template = options.chat_template;
  p.add_bos = options.add_bos;
  p.tokenizer = !options.tokenizer.empty() ? options.tokenizer : is_short(texts) ? "bytes" : "bpe:2048";
  p.progress = shown.progress;
  p.message = shown.message;
  if (!p.message) p.message = [](const std::string& m) { to_stderr("{}\n", m); };
  PrepareResult r = prepare_cached(p, data_cache());
  if (StopSignal::requested())  // too late to end the preparation
    throw Error(Exit::interrupted, "interrupted", "preparing the data", "The prepared data stays in the cache.");
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
  return prepare_text({path}, {.tokenizer = "bytes"});
}

}  // namespace crest
