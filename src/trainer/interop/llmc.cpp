#include "interop/llmc.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/text.h"
#include "data/tokenizer.h"
#include "interop/export.h"

namespace crest {

namespace {

constexpr int32_t gpt2_magic = 20240326;
// The members of a layer in the file's order. Each one is stored for all layers before the next one
// begins.
constexpr const char* layer_members[] = {"ln_1.weight",      "ln_1.bias",      "attn.qkv.weight", "attn.qkv.bias",
                                         "attn.proj.weight", "attn.proj.bias", "ln_2.weight",     "ln_2.bias",
                                         "mlp.fc.weight",    "mlp.fc.bias",    "mlp.proj.weight", "mlp.proj.bias"};

int32_t header_word(std::span<const uint8_t> start, size_t index) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | start[4 * index + i];
  return int32_t(value);
}

// llm.c's other files, by their magic numbers.
const char* other_file(int32_t magic) {
  switch (magic) {
    case 20240520:
    case 20240801: return "token data: use --data with its folder to train on it";
    case 20240328: return "a tokenizer: give the model's file (gpt2_124M.bin)";
    case 20240327: return "a debug state: give the model's file (gpt2_124M.bin)";
    case 20240527: return "an optimizer state: give the model's file (model_NNNNNNNN.bin)";
    case 20240803: return "a Llama 3 checkpoint: use its safetensors instead, which Crest opens directly";
    default: return nullptr;
  }
}

uint64_t padding(const LlmcHeader& h) { return uint64_t((h.padded_vocab - h.config.vocab) * h.config.width); }

// Elements in the file. Computed from one layer, so a header is checked before thousands of layers
// are listed.
uint64_t total_numbers(const LlmcHeader& h) {
  ModelConfig one = h.config;
  one.layers = 1;
  uint64_t total = padding(h);
  for (auto& p : parameters_of(one))
    total += uint64_t(p.shape.numel()) * (p.name.starts_with("h.") ? uint64_t(h.config.layers) : 1);
  return total;
}

// The parameters in the file's order.
std::vector<std::string> parameter_order(const ModelConfig& config) {
  std::vector<std::string> names = {"wte.weight", "wpe.weight"};
  for (const char* member : layer_members)
    for (int64_t l = 0; l < config.layers; ++l) names.push_back(fmt::format("h.{}.{}", l, member));
  names.insert(names.end(), {"ln_f.weight", "ln_f.bias"});
  return names;
}

// Where each parameter starts, in elements.
std::map<std::string, uint64_t> layout(const LlmcHeader& h) {
  std::map<std::string, uint64_t> sizes, offsets;
  for (auto& p : parameters_of(h.config)) sizes[p.name] = uint64_t(p.shape.numel());
  uint64_t total = 0;
  for (auto& name : parameter_order(h.config)) {
    offsets[name] = total;
    total += sizes.at(name) + (name == "wte.weight" ? padding(h) : 0);
  }
  return offsets;
}

// 256 little-endian int32.
std::string llmc_header(const std::vector<int64_t>& words) {
  std::string header;
  for (int64_t word : words)
    for (int i = 0; i < 4; ++i) header += char(uint64_t(word) >> (8 * i));
  header.resize(LlmcHeader::bytes);
  return header;
}

// llm.c's sampling reads gpt2_tokenizer.bin: of each token its length in one byte and its bytes.
// Returns why the tokenizer has no such file, or "".
std::string write_tokenizer(const Tokenizer& t, const std::string& path) {
  constexpr int64_t tokenizer_magic = 20240328, version = 2;
  if (!t.end_of_text()) return "it has no end-of-text token";
  std::string bytes = llmc_header({tokenizer_magic, version, t.vocab_size(), *t.end_of_text()});
  for (uint32_t id = 0; id < t.vocab_size(); ++id) {
    std::string_view token = t.decode_token(id);
    if (token.empty() || token.size() > 255)
      return token.empty() ? fmt::format("id {} is unused", id)
                           : fmt::format("token {} has {} bytes, and the file's limit is 255", id, token.size());
    bytes += char(token.size());
    bytes += token;
  }
  write_file_synced(path, bytes);
  return "";
}

}  // namespace

bool is_llmc_checkpoint(std::span<const uint8_t> start) {
  return start.size() >= 8 && (header_word(start, 0) == gpt2_magic || other_file(header_word(start, 0)));
}

LlmcHeader parse_llmc_header(std::span<const uint8_t> start, uint64_t file_bytes, const std::string& where) {
  if (start.size() < 4) fail("is not an llm.c checkpoint: it is too short", where, "Copy or download it again.");
  int32_t magic = header_word(start, 0);
  if (const char* what = other_file(magic)) fail(fmt::format("is an llm.c file, but {}", what), where);
  if (magic != gpt2_magic)
    fail(fmt::format("is not an llm.c checkpoint: its first number is {}, not {}", magic, gpt2_magic), where);
  if (start.size() < LlmcHeader::bytes || file_bytes < LlmcHeader::bytes)
    fail(fmt::format("is cut short: {} bytes, but the header alone has {}", file_bytes, LlmcHeader::bytes), where,
         "Copy or download it again.");
  int32_t version = header_word(start, 1);
  if (version != 3 && version != 5)
    fail(fmt::format("is an llm.c checkpoint of version {}", version), where,
         "Supported: 3 (fp32) and 5 (bf16). Write it again with llm.c's current train_gpt2.py.");
  LlmcHeader h;
  h.dtype = version == 3 ? DType::f32 : DType::bf16;
  ModelConfig& c = h.config;
  c.name = "gpt2";
  c.context = header_word(start, 2), c.vocab = header_word(start, 3), c.layers = header_word(start, 4);
  c.heads = c.kv_heads = header_word(start, 5), c.width = header_word(start, 6);
  h.padded_vocab = header_word(start, 7);
  if (c.heads < 1 || c.width < 1 || c.width % c.heads)
    fail(fmt::format("damaged llm.c checkpoint: {} heads do not divide the width of {}", c.heads, c.width), where,
         "Copy or download it again.");
  c.head_dim = c.width / c.heads, c.ff = 4 * c.width;
  try {
    validate(c, where);
  } catch (const Error& e) {  // an error of the file, not of the command line
    fail("damaged llm.c checkpoint: " + e.problem(), where, e.advice());
  }
  if (h.padded_vocab < c.vocab || h.padded_vocab > c.vocab + (1 << 16))
    fail(fmt::format("damaged llm.c checkpoint: a vocabulary of {} padded to {}", c.vocab, h.padded_vocab), where,
         "Copy or download it again.");
  // Within the limits of validate, this stays below 2^60.
  uint64_t expected = LlmcHeader::bytes + total_numbers(h) * size_of(h.dtype);
  if (expected != file_bytes)
    fail(fmt::format("damaged llm.c checkpoint: {} bytes, but the header describes {}", file_bytes, expected), where,
         file_bytes < expected ? "The file is cut short; copy or download it again."
                               : "There are bytes after the weights; copy or download it again.");
  return h;
}

LlmcCheckpoint::LlmcCheckpoint(const std::string& path) : file_(File::open_read(path)) {
  uint8_t start[LlmcHeader::bytes];
  size_t n = file_.read_some_at(start, sizeof start, 0);
  header_ = parse_llmc_header({start, n}, file_.size(), printable(path));
  offsets_ = layout(header_);
}

void LlmcCheckpoint::read(const Param& p, float* out) const {
  const CanonicalTensor whole = whole_tensor(p);
  size_t length = size_t(whole.elements()) * size_of(header_.dtype);
  uint64_t offset = LlmcHeader::bytes + offsets_.at(p.name) * size_of(header_.dtype);
  if (header_.dtype == DType::f32) return file_.read_at(out, length, offset);
  std::vector<char> bytes(length);
  file_.read_at(bytes.data(), length, offset);
  scatter(whole, bytes.data(), header_.dtype, out);
}

void write_llmc(ExportJob& job) {
  const ModelConfig& c = job.config;
  const int64_t padded = (c.vocab + 127) / 128 * 128, version = job.dtype == DType::f32 ? 3 : 5;
  File file = File::create(join_path(job.folder, "model.bin"));
  file.write(llmc_header({gpt2_magic, version, c.context, c.vocab, c.layers, c.heads, c.width, padded}));
  std::vector<float> values;
  std::vector<char> stored;
  for (auto& name : parameter_order(c)) {
    job.weights.read(name, values);
    const uint64_t parameters = values.size();
    if (name == "wte.weight") values.resize(size_t(padded * c.width));  // zeros
    stored.resize(values.size() * size_of(job.dtype));
    for (size_t i = 0; i < values.size(); ++i) store_element(stored.data(), job.dtype, int64_t(i), values[i]);
    file.write(stored.data(), stored.size());
    job.advance(parameters);
  }
  file.sync();
  file.close();
  job.files = {"model.bin"};
  if (!job.model.tokenizer) {
    job.notes.push_back("The model has no tokenizer, so gpt2_tokenizer.bin was not written.");
    return;
  }
  const std::string name = "gpt2_tokenizer.bin";  // the name opened by llm.c
  if (std::string problem = write_tokenizer(*job.model.tokenizer, join_path(job.folder, name)); problem.empty())
    job.files.push_back(name);
  else
    job.notes.push_back(fmt::format("{} was not written: {}. llm.c trains without it.", name, problem));
}

bool recognises_llmc(const ForeignFile& file) {
  return is_llmc_checkpoint({reinterpret_cast<const uint8_t*>(file.start.data()), file.start.size()});
}

ForeignModel open_llmc(const ForeignFile& file) {
  auto checkpoint = std::make_shared<LlmcCheckpoint>(file.path);
  const LlmcHeader& h = checkpoint->header();
  ForeignModel model;
  model.config = h.config, model.stored = h.dtype;
  if (h.padded_vocab > h.config.vocab)
    model.notes.push_back(fmt::format("The {} rows that pad the vocabulary to {} were left out.",
                                      h.padded_vocab - h.config.vocab, h.padded_vocab));
  model.read = [checkpoint](const Param& p, float* out) { checkpoint->read(p, out); };
  return model;
}

}  // namespace crest
