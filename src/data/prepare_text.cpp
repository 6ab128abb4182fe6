#include "data/prepare_text.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

// A named file must be text; in folders, such files are skipped.
void require_text(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  std::ifstream in(path, std::ios::binary);
  std::string head(64 << 10, ' ');
  in.read(head.data(), std::streamsize(head.size()));
  head.resize(size_t(in.gcount()));
  if (head.find('\0') != std::string::npos)
    fail("not a text file (it has NUL bytes)", printable(path),
         "Give a text file. To train on token shards, use --data FOLDER. crest data prepare accepts any bytes.");
}

}  // namespace

PreparedText prepare_text(const std::vector<std::string>& texts, const std::string& tokenizer) {
  PrepareOptions p;
  p.inputs = texts;
  uint64_t bytes = 0;
  std::error_code error;
  for (auto& t : texts) {
    require_text(t);
    if (uint64_t size = fs::file_size(t, error); !error) bytes += size;
  }
  p.tokenizer = !tokenizer.empty() ? tokenizer : bytes < (256 << 10) ? "bytes" : "bpe:2048";
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
