// Any bytes as another program's checkpoint (llm.c, nanoGPT after its conversion): a clear error,
// or weights inside the file.
#include "fuzz.h"
#include "interop/import.h"
#include "interop/llmc.h"

using namespace crest;
using namespace crest::fuzz;

static void open_all(std::string_view bytes, int64_t heads) {
  ForeignFile file{as_file(bytes), std::string(bytes.substr(0, 1024)), bytes.size(), heads};
  for (auto& format : foreign_formats()) {
    if (!format.recognises(file)) continue;
    ForeignModel model = format.open(file);
    std::vector<float> values;
    for (auto& p : parameters_of(model.config)) {
      auto n = size_t(p.shape.numel());
      check(n <= bytes.size());  // a number takes two bytes at least
      values.resize(n);
      model.read(p, values.data());
    }
    return;
  }
}

static void fuzz_foreign(std::string_view input) {
  unsigned way = choose(input, 4);
  or_error([&] {
    if (way == 0) open_all(after_header(input), 0);
    if (way == 1) open_all(input, 0);
    if (way == 2) open_all(input, 1);
    // The header's checks with a size other than the file's: as after a file was cut short.
    std::string bytes = after_header(input);
    if (way == 3) parse_llmc_header({reinterpret_cast<uint8_t*>(bytes.data()), 1024}, input.size() * 300 + 1, "input");
  });
}
CREST_FUZZ_TARGET(fuzz_foreign)
