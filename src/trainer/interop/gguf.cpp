// Models for llama.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "data/tokenizer.h"
#include "interop/export.h"
#include "interop/gguf_architecture.h"
#include "interop/gguf_file.h"
#include "interop/gguf_tokenizer.h"

namespace crest {

namespace {

constexpr const char* rope_factors_name = "rope_freqs.weight";

GgufType type_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return GgufType::f16;
    case DType::bf16: return GgufType::bf16;
    case DType::i8: return GgufType::q8_0;
    default: return GgufType::f32;
  }
}

// As llama.cpp's own conversion: vectors and positions stay in fp32. A matrix is f16 if its rows
// are no whole blocks.
GgufType stored_type(const CanonicalTensor& t, GgufType wanted) {
  if (t.shape.size() < 2 || t.name == "position_embd.weight") return GgufType::f32;
  return wanted == GgufType::q8_0 && t.columns % q8_0_block ? GgufType::f16 : wanted;
}

// Value of general.file_type.
int64_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32: return 0;
    case GgufType::f16: return 1;
    case GgufType::q8_0: return 7;
    case GgufType::bf16: return 32;
  }
  return 0;
}

// Of each head, row i and row i + d / 2 become rows 2i and 2i + 1.
void pair_neighbors(std::vector<float>& values, int64_t columns, int64_t head_dim) {
  std::vector<float> head(size_t(head_dim * columns));
  const int64_t half = head_dim / 2;
  for (size_t start = 0; start < values.size(); start += head.size()) {
    for (int64_t i = 0; i < head_dim; ++i)
      std::memcpy(&head[size_t(i * columns)], &values[start + size_t((i % 2 * half + i / 2) * columns)],
                  size_t(columns) * sizeof(float));
    std::copy(head.begin(), head.end(), values.begin() + std::ptrdiff_t(start));
  }
}

// llama.cpp does not load a model with Phi-3's name and without these tokens.
std::string general_name(const std::string& name, const Tokenizer& tokenizer) {
  bool all = true;
  for (const char* token : {"</s>", "<unk>", "<s>", "<|endoftext|>"}) all = all && tokenizer.added(token);
  std::string out = name;
  for (size_t i = 0; i + 3 < out.size() && !all; ++i) {
    std::string start = out.substr(i, 5);
    for (char& c : start) c = c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c;
    if (start.starts_with("phi3") || start == "phi-3")
      out.replace(i, start == "phi-3" ? 5 : 4, out.substr(i, 3) + " 3");
  }
  return out;
}

class TensorWriter {
 public:
  TensorWriter(ExportJob& job, File& file) : job_(job), file_(file) {}

  void write(const GgufTensor& t, GgufType type) {
    std::vector<float> values(size_t(t.tensor.elements()));
    gather(
        t.tensor, [&](const TensorPart& part) { return rows(part.parameter) + part.row * t.tensor.columns; },
        values.data());
    if (t.neighbor_pairs) pair_neighbors(values, t.tensor.columns, job_.config.head_dim);
    write(t.tensor.name, values, type);
    if (!t.again) job_.advance(values.size());
  }
  void write(const std::string& name, const std::vector<float>& values, GgufType type) {
    constexpr size_t at_once = size_t(1) << 20;  // whole blocks
    uint64_t written = 0;
    for (size_t first = 0; first < values.size(); first += at_once) {
      const std::span<const float> part(&values[first], std::min(at_once, values.size() - first));
      bytes_.resize(size_t(stored_bytes(type, int64_t(part.size()))));
      if (!store_values(type, part, bytes_.data()))
        fail(fmt::format("{} has a weight that {} cannot hold", name, crest::name(type)),
             printable(job_.model.weights_path),
             type == GgufType::f16 || type == GgufType::q8_0 ? "If all weights are finite: --dtype bf16 or f32." : "");
      file_.write(bytes_.data(), bytes_.size());
      written += bytes_.size();
    }
    if (const uint64_t rest = written % GgufHeader::alignment)
      file_.write(std::string(size_t(GgufHeader::alignment - rest), '\0'));
  }

 private:
  // Queries, keys and values are three tensors of one parameter: it is read once.
  const float* rows(const std::string& parameter) {
    if (parameter != read_) job_.weights.read(parameter, parameter_);
    read_ = parameter;
    return parameter_.data();
  }

  ExportJob& job_;
  File& file_;
  std::string read_;  // the name of parameter_
  std::vector<float> parameter_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

void write_gguf(ExportJob& job) {
  const ModelConfig& c = job.config;
  const GgufType wanted = type_of(job.dtype);
  GgufHeader header;
  gguf_describe(c, header);
  header.text("general.type", "model");
  header.number("general.file_type", file_type(wanted));
  header.number("general.quantization_version", 2);
  if (std::string shorter; gguf_context(c, &shorter) < c.context) job.notes.push_back(shorter);
  gguf_tokenizer(job.model, header, job.notes);
  header.text("general.name", general_name(c.name, *job.model.tokenizer));
  const std::vector<float> factors = gguf_rope_factors(c);
  const std::vector<GgufTensor> tensors = gguf_tensors(c);
  if (!factors.empty()) header.tensor(rope_factors_name, {int64_t(factors.size())}, GgufType::f32);
  int64_t no_blocks = 0;
  for (auto& t : tensors) {
    const GgufType type = stored_type(t.tensor, wanted);
    header.tensor(t.tensor.name, t.tensor.shape, type);
    no_blocks += wanted == GgufType::q8_0 && type == GgufType::f16;
  }
  if (no_blocks)
    job.notes.push_back(fmt::format("{} in f16: q8_0 needs rows of a multiple of {} elements.",
                                    format_number_of(no_blocks, "tensor"), q8_0_block));
  const std::string start = header.bytes();
  require_free_space(job.folder, start.size() + header.data_bytes(), "the exported model");
  job.files = {"model.gguf"};
  File file = File::create(join_path(job.folder, job.files[0]));
  file.write(start);
  TensorWriter writer(job, file);
  if (!factors.empty()) writer.write(rope_factors_name, factors, GgufType::f32);
  for (auto& t : tensors) writer.write(t, stored_type(t.tensor, wanted));
  file.sync();
  file.close();
}

}  // namespace crest
