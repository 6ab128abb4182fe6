// A whole checkpoint folder with one strange file, and a manifest with the right hashes for it, to
// reach the code behind them: a clear error, or readable tensors.
#include "checkpoint/checkpoint.h"

#include <filesystem>
#include <vector>

#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

namespace {

struct GoodCheckpoint {
  fuzz::Folder folder;
  std::string name = "step-000003", path = folder.path() + "/" + name;
  GoodCheckpoint() {
    std::filesystem::create_directories(path);
    std::vector<float> data(6, 1.5f);
    std::string preamble =
        safetensors_preamble({{{"a", DType::f32, {2, 3}}, data.data()}}, TensorOrder::given, {}, &order);
    good[0] = preamble + std::string(reinterpret_cast<char*>(data.data()), 24);
    good[1] = "{\"step\": 3, \"state\": {\"position\": 7}}";
    good[2] = "{\"model_type\": \"gpt2\"}";
  }
  std::string put(const std::string& file, std::string_view bytes) const {
    return folder.put(name + "/" + file, bytes);
  }
  std::vector<size_t> order;
  std::string good[3];
};

constexpr const char* names[3] = {"model.safetensors", "state.json", "config.json"};

// The hashes of the weights' file, whatever it holds; of its tensors if it can be opened.
ManifestFile entry_of(std::string_view bytes, const std::string& path, bool tensors) {
  ManifestFile entry;
  entry.bytes = bytes.size();
  entry.is_tensors = tensors;
  entry.sha256 = sha256(bytes.data(), bytes.size());
  if (tensors)
    or_error([&] {
      SafetensorsFile file = SafetensorsFile::open(path);
      entry.sha256 = file.header_digest();
      for (size_t i = 0; i < file.tensors().size(); ++i) entry.tensors[file.tensors()[i].spec.name] = file.hash(i);
    });
  return entry;
}

}  // namespace

static void fuzz_checkpoint(std::string_view input) {
  static const GoodCheckpoint folder;
  static unsigned strange = 3;  // the file changed by the last input
  unsigned way = choose(input, 4);
  Manifest manifest;
  manifest.step = 3;
  for (unsigned i = 0; i < 3; ++i) {
    std::string path = folder.path + "/" + names[i];
    std::string_view bytes = i == way ? input : std::string_view(folder.good[i]);
    static bool written[3] = {};
    if (i == way || i == strange || !written[i]) folder.put(names[i], bytes), written[i] = true;
    manifest.files[names[i]] = entry_of(bytes, path, i == 0);
  }
  strange = way;
  std::string text = print_manifest(manifest);
  if (way == 3) {
    std::string own = sha256_hex(input.data(), input.size());
    text = std::string(input) + ",\n\"manifest_sha256\": \"" + own + "\"\n}\n";
  }
  folder.put("manifest.json", text);
  or_error([&] {
    Checkpoint c = Checkpoint::open(folder.path);
    check(way == 3 || c.step() == 3);
    c.verify();
    std::vector<std::vector<char>> data;
    std::vector<TensorTarget> targets;
    for (auto& spec : c.weight_specs()) targets.push_back({spec, data.emplace_back(byte_count(spec)).data()});
    c.load_weights(targets);
  });
}
CREST_FUZZ_TARGET(fuzz_checkpoint)
