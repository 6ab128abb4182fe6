// The whole reader on a file in memory, and the header parser with a correct length, which random
// files rarely have.
#include "checkpoint/safetensors.h"

#include <vector>

#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static void check_layout(const std::vector<TensorEntry>& tensors, uint64_t start, uint64_t end) {
  for (auto& t : tensors) {
    check(t.offset == start && t.spec.shape.size() <= 8 && t.spec.name.size() <= 512);
    if (t.readable) check(byte_count(t.spec) == t.bytes);
    start += t.bytes;
  }
  check(start == end);
}

static void whole(std::string_view bytes) {
  SafetensorsFile file = SafetensorsFile::open(as_file(bytes));
  uint64_t total = 0;
  for (auto& t : file.tensors()) total += t.bytes;
  check_layout(file.tensors(), bytes.size() - total, bytes.size());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    auto& t = file.tensors()[i];
    check(file.find(t.spec.name) == int64_t(i));
    std::vector<char> buffer(t.bytes);
    if (t.readable) check(file.read_hashed(i, buffer.data(), t.bytes) == file.hash(i));
  }
}

static void fuzz_safetensors(std::string_view input) {
  unsigned way = choose(input, 3);
  or_error([&] {
    if (way == 0) return whole(input);
    uint8_t data_bytes = uint8_t(choose(input, 256));
    if (way == 1) {
      auto header = parse_safetensors_header(input, data_bytes, "fuzz");
      return check_layout(header.tensors, header.data_start, header.data_start + data_bytes);
    }
    // A file with the right length bytes.
    std::string file;
    for (int i = 0; i < 8; ++i) file += char(uint64_t(input.size()) >> (8 * i));
    whole(file.append(input).append(data_bytes, 'x'));
  });
}
CREST_FUZZ_TARGET(fuzz_safetensors)
