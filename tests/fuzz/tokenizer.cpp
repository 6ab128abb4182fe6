// Any bytes as tokenizer.json (a clear error, or a round-tripping tokenizer), and any bytes as
// text.
#include "data/tokenizer.h"

#include "data/bpe_train.h"
#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static void fuzz_tokenizer(std::string_view text) {
  static const Tokenizer trained = [] {
    BpeTrainer trainer(300);
    trainer.add("the cat sat on the mat, the cat isn't the hat\n\n  and    spaces");
    return trainer.train();
  }();
  static const std::string json = trained.to_json();
  static const size_t merges = json.find("\"merges\"");
  unsigned way = choose(text, 3);
  if (way == 0) return check(trained.decode(trained.encode(text)) == text);
  or_error([&] {
    // The other way puts them into an otherwise right
    // file, to get the fuzzer past the vocabulary.
    Tokenizer t = Tokenizer::parse(way == 1 ? std::string(text) : json.substr(0, merges) + std::string(text), "input");
    std::string decoded = t.decode(t.encode(text));
    check(decoded == text || !t.lossless());
  });
}
CREST_FUZZ_TARGET(fuzz_tokenizer)
