// Any bytes as a token shard, or as rows from another program: a clear error or tokens below the
// vocabulary, never a crash.
#include "data/shards.h"

#include <fcntl.h>

#include <algorithm>

#include "data/row_stream.h"
#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static void read_all(std::string_view bytes) {
  constexpr uint32_t vocab = 50257;
  ShardReader reader(as_file(bytes), vocab);
  check(reader.file_bytes() == bytes.size());
  int32_t out[100];
  for (uint64_t at = 0; at < reader.tokens(); at += 100) {
    size_t n = size_t(std::min<uint64_t>(100, reader.tokens() - at));
    reader.read(at, n, out);
    for (size_t i = 0; i < n; ++i) check(out[i] >= 0 && uint32_t(out[i]) < vocab);
  }
  bool refused = false;
  or_error([&] {
    refused = true;
    reader.read(reader.tokens(), 1, out);
    refused = false;
  });
  check(refused);
}

// The loss mask beside a shard.
static void read_mask(std::string_view bytes) {
  static const Folder folder;
  static const std::string shard = folder.put("train-000000.bin", [] {
    std::string file("\x88\xd8\x34\x01\1\0\0\0\x32\0\0\0", 12);  // 20240520, version 1, 50 tokens
    file.resize(1024 + 2 * 50, '\1');
    return file;
  }());
  folder.put("train-000000.mask", bytes);
  ShardReader reader(shard, 0);
  check(reader.masked() && reader.tokens() == 50);
  uint8_t out[50];
  reader.read_mask(0, 50, out);
  for (uint8_t trained : out) check(trained <= 1);
}

static void read_rows(std::string_view bytes) {
  constexpr int64_t seq = 3, vocab = 100;
  struct Descriptor {
    int fd;
    ~Descriptor() { ::close(fd); }
  } file{::open(as_file(bytes).c_str(), O_RDONLY)};
  check(file.fd >= 0);
  RowStream stream(file.fd, seq, vocab);
  int32_t x[seq], y[seq];
  auto check_row = [&] {
    for (int64_t i = 0; i < seq; ++i) check(x[i] >= 0 && x[i] < vocab && y[i] >= 0 && y[i] < vocab);
  };
  for (uint64_t row = 0; row < stream.validation_rows(); ++row) stream.validation(row, x, y), check_row();
  try {
    for (uint64_t row = 0;; ++row) stream.sample(row, x, y), check_row();
  } catch (const RowStream::Ended& end) {
    check(12 + end.rows * 4 * (seq + 1) <= bytes.size());
  }
}

static void fuzz_shard(std::string_view input) {
  unsigned way = choose(input, 5);
  or_error([&] {
    if (way == 0) read_all(after_header(input));
    if (way == 1) read_all(input);
    if (way == 3) read_mask(after_header(input));
    if (way == 4) read_rows(input);
    // The header's checks with a size other than the file's: as after a file was cut short.
    std::string bytes = after_header(input);
    if (way == 2) parse_shard_header({reinterpret_cast<uint8_t*>(bytes.data()), 1024}, input.size() * 3 + 1, "input");
  });
}
CREST_FUZZ_TARGET(fuzz_shard)
