#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/git_lfs.h"
#include "core/shell_word.h"
#include "core/text.h"

namespace crest {

static constexpr uint64_t max_header = uint64_t(100) << 20;

bool is_pickle(const std::string& path, std::string_view first_bytes) {
  // torch.save never writes '{' as the ninth byte, and every safetensors file has it there. So the
  // content decides.
  if (first_bytes.size() > 8 && first_bytes[8] == '{') return false;
  bool zip = first_bytes.starts_with(std::string_view("PK\x03\x04", 4));
  bool pickle = first_bytes.size() >= 2 && first_bytes[0] == '\x80' && first_bytes[1] >= 2 && first_bytes[1] <= 5;
  bool named = false;
  for (const char* end : {".pt", ".pth", ".ckpt", ".pkl", ".pickle"}) named = named || path.ends_with(end);
  return zip || pickle || named;
}

void refuse_pickle(const std::string& path, std::string_view first_bytes) {
  bool safetensors = first_bytes.size() > 8 && first_bytes[8] == '{';
  if (is_pickle(path, first_bytes) || (path.ends_with(".bin") && !safetensors))  // pytorch_model.bin
    fail_pickle(path);
}

void fail_pickle(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1), folder = parent_path(path);
  const char* problem = "a PyTorch file (pickle) can run arbitrary code when opened, so Crest does not read it";
  if (name.starts_with("consolidated."))
    fail(problem, printable(path),
         "It is a part of Meta's own form of Llama. Use the model's Hugging Face form (config.json and safetensors): "
         "transformers' convert_llama_weights_to_hf.py makes it.");
  std::string files =
      name.starts_with("pytorch_model-") ? shell_path(folder) + "/pytorch_model-*.bin" : shell_path(path);
  std::string made = join_path(folder, "model.safetensors");
  bool of_transformers = name.starts_with("pytorch_model");
  fail(problem, printable(path),
       fmt::format(
           "Convert it in an environment with torch and safetensors; weights_only=True makes torch refuse "
           "code:\n  python -c \"import sys, torch, safetensors.torch as s; c = [torch.load(f, "
           "map_location='cpu', weights_only=True) for f in sys.argv[2:]]; s.save_file({{k: "
           "v.contiguous().clone() for d in c for k, v in d.get('model', d).items()}}, sys.argv[1], {{k: str(v) "
           "for d in c for k, v in d.get('model_args', {{}}).items()}})\" {} {}\n  {}",
           shell_path(made), files,
           of_transformers ? std::string("Then repeat the command: Crest prefers model.safetensors.")
                           : fmt::format("Then, for a checkpoint of nanoGPT: crest import {} --out DIR. For a model of "
                                         "transformers, put its config.json next to it and give its folder: --init {}",
                                         shell_path(made), shell_path(folder))));
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile out;
  out.file_ = File::open_read(path);
  uint64_t size = out.file_.size();
  unsigned char first[lfs_pointer_start.size()] = {};
  size_t have = size_t(std::min<uint64_t>(size, sizeof first));
  out.file_.read_at(first, have, 0);
  const std::string_view start(reinterpret_cast<char*>(first), have);
  refuse_lfs_pointer(start, path);
  refuse_pickle(path, start);
  if (size < 9)
    fail(fmt::format("is not a safetensors file: it has {} bytes, at least 10 are needed", size), printable(path),
         "The file is empty or cut short; copy or download it again.");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | first[i];
  if (first[8] != '{')
    fail("is not a safetensors file: its header does not start with '{'", printable(path),
         "Give a .safetensors file, or a folder with model.safetensors.");
  if (length > size - 8 || length > max_header)
    fail(fmt::format("damaged safetensors file: a header of {} bytes in a file of {}", length, size), printable(path),
         "The file is cut short or damaged; copy or download it again.");
  std::string preamble(size_t(8 + length), '\0');
  out.file_.read_at(preamble.data(), preamble.size(), 0);
  out.header_digest_ = sha256(preamble.data(), preamble.size());
  out.header_ = parse_safetensors_header(std::string_view(preamble).substr(8), size - 8 - length, path);
  out.by_name_.resize(out.header_.tensors.size());
  std::iota(out.by_name_.begin(), out.by_name_.end(), 0u);
  std::sort(out.by_name_.begin(), out.by_name_.end(), [&](uint32_t a, uint32_t b) {
    return out.header_.tensors[a].spec.name < out.header_.tensors[b].spec.name;
  });
  return out;
}

int64_t SafetensorsFile::find(std::string_view name) const {
  auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                             [&](uint32_t i, std::string_view n) { return header_.tensors[i].spec.name < n; });
  return at != by_name_.end() && header_.tensors[*at].spec.name == name ? int64_t(*at) : -1;
}

void SafetensorsFile::read(size_t index, void* to, uint64_t bytes) const {
  auto& t = header_.tensors.at(index);
  if (!t.readable)
    fail(fmt::format("tensor '{}' has dtype {}, which Crest does not support", printable(t.spec.name), t.stored_as),
         printable(path()), "Convert it to F32, BF16 or F16.");
  if (bytes != t.bytes)
    fail_internal(fmt::format("buffer of {} bytes for {} ({} bytes)", bytes, describe(t.spec), t.bytes), path());
  file_.read_at(to, size_t(bytes), t.offset);
}

Digest SafetensorsFile::read_hashed(size_t index, void* to, uint64_t bytes) const {
  read(index, to, bytes);
  return sha256(to, size_t(bytes));
}

Digest SafetensorsFile::hash(size_t index) const {
  auto& t = header_.tensors.at(index);
  constexpr uint64_t piece = 1 << 18;  // fits the L2 cache
  auto buffer = std::make_unique<char[]>(size_t(std::min(piece, std::max<uint64_t>(t.bytes, 1))));
  Sha256 hash;
  for (uint64_t at = 0; at < t.bytes; at += piece) {
    size_t n = size_t(std::min(piece, t.bytes - at));
    file_.read_at(buffer.get(), n, t.offset + at);
    hash.update(buffer.get(), n);
  }
  return hash.digest();
}

void require_same_tensors(const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& found,
                          const std::string& what, const std::string& where) {
  std::unordered_map<std::string_view, const TensorSpec*> by_name;
  for (auto& spec : found) by_name.emplace(spec.name, &spec);
  std::vector<std::string> differences;
  size_t matched = 0;
  for (auto& spec : expected) {
    auto at = by_name.find(spec.name);
    if (at == by_name.end()) {
      differences.push_back("missing: " + describe(spec));
      continue;
    }
    ++matched;
    if (!(*at->second == spec))
      differences.push_back(
          fmt::format("the model has {}, but the file has {}", describe(spec), describe(*at->second)));
    by_name.erase(at);
  }
  if (matched < found.size())
    for (auto& spec : found)  // in file order, for a reproducible message
      if (by_name.count(spec.name)) differences.push_back("not in the model: " + describe(spec));
  if (differences.empty()) return;
  std::string text = fmt::format("{} of a different model: {} tensors differ", what, differences.size());
  for (size_t i = 0; i < std::min<size_t>(differences.size(), 5); ++i) text += "\n    " + differences[i];
  if (differences.size() > 5) text += fmt::format("\n    and {} more", differences.size() - 5);
  fail(text, printable(where), "Use the configuration that they were saved with, or choose another folder.");
}

}  // namespace crest
