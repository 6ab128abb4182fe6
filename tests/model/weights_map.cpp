#include "model/weights_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "files.h"
#include "model/config.h"

using namespace crest;

namespace {

ModelConfig small(const char* preset) {
  ModelConfig c = load_model_config(preset);
  c.layers = 2, c.width = 48, c.heads = 6, c.kv_heads = preset[0] == 'l' ? 2 : 6, c.head_dim = 8, c.ff = 80;
  c.vocab = 37, c.context = 20;
  return c;
}

ModelConfig fused() {
  ModelConfig c = small("llama-nano");
  c.family = "phi3";
  return c;
}

ModelConfig own() {
  ModelConfig c = small("llama-nano");
  c.norm = NormKind::layer, c.bias = true, c.tied = false;
  return c;
}

std::vector<OfferedTensor> offer(const ModelConfig& c) {
  std::vector<OfferedTensor> out;
  for (auto& t : canonical_tensors(c)) out.push_back({t.name, t.shape});
  return out;
}

NameMatch match(const ModelConfig& c, const std::vector<OfferedTensor>& offered) {
  return match_names(c, offered, "model.safetensors");
}

OfferedTensor& find(std::vector<OfferedTensor>& offered, const std::string& name) {
  auto it = std::find_if(offered.begin(), offered.end(), [&](auto& t) { return t.name == name; });
  EXPECT_NE(it, offered.end()) << name;
  return *it;
}

void drop(std::vector<OfferedTensor>& offered, const std::string& name) {
  offered.erase(offered.begin() + (&find(offered, name) - offered.data()));
}

const CanonicalTensor& find(const std::vector<CanonicalTensor>& all, const std::string& name) {
  auto it = std::find_if(all.begin(), all.end(), [&](auto& t) { return t.name == name; });
  EXPECT_NE(it, all.end()) << name;
  return *it;
}

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

// Tensor names and shapes of a safetensors file: 8 bytes header length, JSON header.
std::vector<OfferedTensor> read_header(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  uint64_t size = 0;
  in.read(reinterpret_cast<char*>(&size), 8);
  std::string text(size, ' ');
  in.read(text.data(), std::streamsize(size));
  std::vector<OfferedTensor> out;
  auto header = nlohmann::json::parse(text);
  for (auto& [name, value] : header.items())
    if (name != "__metadata__") out.push_back({name, value["shape"].get<std::vector<int64_t>>()});
  return out;
}

// Llama with biases.
ModelConfig biased(bool attention, bool qkv, bool mlp) {
  ModelConfig c = small("llama-nano");
  c.attention_bias = attention, c.qkv_bias = qkv, c.mlp_bias = mlp;
  return c;
}

}  // namespace

TEST(WeightsMap, NamesAndShapesAreThoseThatTransformersWrites) {
  for (const char* name : {"gpt2-tiny", "llama-tiny", "llama3-tied-tiny", "mistral-tiny"}) {
    std::string folder = std::string(CREST_TEST_DIR "/parity/fixtures/") + name;
    ModelConfig c = load_model_config(folder);
    std::map<std::string, std::vector<int64_t>> expected, found;
    for (auto& t : read_header(folder + "/model.safetensors")) expected[t.name] = t.shape;
    for (auto& t : canonical_tensors(c)) found[t.name] = t.shape;
    EXPECT_EQ(found, expected) << name;
  }
}

TEST(WeightsMap, EveryElementIsCoveredOnce) {
  for (auto& c :
       {small("nano"), small("llama-nano"), own(), fused(), biased(true, false, true), biased(false, true, false)}) {
    std::map<std::string, std::vector<int>> seen;
    for (auto& p : parameters_of(c)) seen[p.name].resize(size_t(p.shape.numel()));
    for (auto& t : canonical_tensors(c)) {
      EXPECT_EQ(elements(t.shape), t.elements()) << t.name;
      for (auto& part : t.parts)
        for (int64_t i = 0; i < part.rows * t.columns; ++i)
          ++seen.at(part.parameter).at(size_t(part.row * t.columns + i));
    }
    for (auto& [name, counts] : seen)
      for (int n : counts) ASSERT_EQ(n, 1) << name;
  }
}

TEST(WeightsMap, NamesAreThoseOfTheClassOrCrests) {
  auto type = [](const ModelConfig& c) { return family_of(c) ? std::string(family_of(c)->type) : "none"; };
  EXPECT_EQ(type(small("nano")), "gpt2");
  EXPECT_EQ(type(small("llama-nano")), "llama");
  EXPECT_EQ(type(own()), "none");
  ModelConfig gpt2 = small("nano"), llama = small("llama-nano");
  gpt2.window = 5, llama.window = 5;
  EXPECT_EQ(type(gpt2), "none");
  EXPECT_EQ(type(llama), "mistral");
  llama.family = "phi3";  // any family with room for the model
  EXPECT_EQ(type(llama), "phi3");
  llama.family = "gpt2";
  EXPECT_EQ(type(llama), "mistral");
  auto crest = canonical_tensors(own());
  auto parameters = parameters_of(own());
  ASSERT_EQ(crest.size(), parameters.size());
  for (size_t i = 0; i < crest.size(); ++i) {
    EXPECT_EQ(crest[i].name, parameters[i].name);
    EXPECT_EQ(crest[i].shape, parameters[i].shape.dims());
  }
}

// Crest's older checkpoints of models without a class, and a model in another class' names.
TEST(MatchNames, AFileMayHaveTheNamesOfAnyFamilyThatHoldsTheModel) {
  ModelConfig window = small("nano");
  window.window = 5;
  ASSERT_EQ(family_of(window), nullptr);
  EXPECT_EQ(match(window, offer(small("nano"))).tensors[0].name, "transformer.wte.weight");
  const auto offered = offer(fused());
  EXPECT_EQ(find(canonical_tensors(fused()), "model.layers.1.mlp.gate_up_proj.weight").parts.size(), 2u);
  for (auto& c : {fused(), small("llama-nano")}) {
    NameMatch m = match(c, offered);
    for (size_t i = 0; i < offered.size(); ++i) EXPECT_EQ(m.tensors[i].name, offered[m.source[i]].name);
  }
}

TEST(WeightsMap, GatherTransposesConv1DAndSlicesHeads) {
  ModelConfig c = small("nano");
  auto tensors = canonical_tensors(c);
  auto& fc = find(tensors, "transformer.h.1.mlp.c_fc.weight");
  EXPECT_EQ(fc.parts[0].parameter, "h.1.mlp.fc.weight");
  EXPECT_EQ(fc.shape, (std::vector<int64_t>{48, 80}));
  std::vector<float> parameter(size_t(80 * 48)), file(parameter.size());
  for (size_t i = 0; i < parameter.size(); ++i) parameter[i] = float(i);
  gather(fc, parameter.data(), file.data());
  for (int64_t in = 0; in < 48; ++in)
    for (int64_t out = 0; out < 80; ++out) ASSERT_EQ(file[size_t(in * 80 + out)], float(out * 48 + in));

  c = small("llama-nano");  // 6 query heads, 2 key/value heads of 8
  tensors = canonical_tensors(c);
  parameter.resize(size_t(c.qkv_width() * c.width));
  for (size_t i = 0; i < parameter.size(); ++i) parameter[i] = float(i);
  int64_t row = 0;
  for (auto [name, rows] : {std::pair{"q_proj", 48}, {"k_proj", 16}, {"v_proj", 16}}) {
    auto& t = find(tensors, fmt::format("model.layers.0.self_attn.{}.weight", name));
    EXPECT_EQ(t.parts[0].parameter, "h.0.attn.qkv.weight");
    EXPECT_EQ(t.parts[0].row, row);
    EXPECT_EQ(t.shape, (std::vector<int64_t>{rows, 48}));
    file.assign(size_t(t.elements()), -1);
    gather(t, parameter.data(), file.data());
    EXPECT_EQ(file.front(), float(row * 48));
    EXPECT_EQ(file.back(), float((row + rows) * 48 - 1));
    row += rows;
  }
}

TEST(WeightsMap, ScatterUndoesGatherAndTouchesNothingElse) {
  for (auto& c :
       {small("nano"), small("llama-nano"), own(), fused(), biased(true, false, true), biased(false, true, false)}) {
    std::map<std::string, std::vector<float>> from, to;
    const float poison = -12345;
    constexpr size_t padding = 96;  // rows of a padded vocabulary
    float next = 1;
    for (auto& p : parameters_of(c)) {
      auto& f = from[p.name];
      f.assign(size_t(p.shape.numel()) + padding, poison);
      for (size_t i = 0; i + padding < f.size(); ++i) f[i] = next++;
      to[p.name].assign(f.size(), poison);
    }
    for (auto& t : canonical_tensors(c)) {
      std::vector<float> file(size_t(t.elements()) + 1, poison);
      gather(
          t, [&](const TensorPart& p) { return from.at(p.parameter).data() + p.row * t.columns; }, file.data());
      EXPECT_EQ(file.back(), poison) << t.name;
      auto before = to;
      scatter(t, file.data(), DType::f32,
              [&](const TensorPart& p) { return to.at(p.parameter).data() + p.row * t.columns; });
      for (auto& p : t.parts)  // only these rows change
        std::copy_n(to[p.parameter].begin() + p.row * t.columns, p.rows * t.columns,
                    before[p.parameter].begin() + p.row * t.columns);
      ASSERT_EQ(to, before) << t.name;
    }
    EXPECT_EQ(from, to);
  }
}

TEST(WeightsMap, ScatterReadsEveryFloatType) {
  CanonicalTensor t;
  t.name = "x", t.parts = {{"x", 1, 35}}, t.columns = 33, t.transposed = true;
  for (DType d : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    std::vector<char> file(size_t(t.elements()) * size_of(d));
    // Whole numbers up to 256 are exact in every type.
    for (int64_t in = 0; in < t.columns; ++in)
      for (int64_t out = 0; out < t.parts[0].rows; ++out)
        store_element(file.data(), d, in * t.parts[0].rows + out, double((in * 7 + out * 3) % 257 - 128));
    std::vector<float> parameter(size_t((t.parts[0].rows + 2) * t.columns), 1000);
    scatter(t, file.data(), d, parameter.data());
    for (int64_t out = 0; out < t.parts[0].rows; ++out)
      for (int64_t in = 0; in < t.columns; ++in)
        ASSERT_EQ(parameter[size_t((out + 1) * t.columns + in)], float((in * 7 + out * 3) % 257 - 128)) << name(d);
    EXPECT_EQ(parameter.front(), 1000);
    EXPECT_EQ(parameter.back(), 1000);
  }
  float buffer[4] = {};
  expect_error([&] { scatter(t, buffer, DType::i32, buffer); }, {"i32", "not a float"}, Exit::failed);
}

TEST(WeightsMap, LargeTensorsRoundTripInParallel) {
  CanonicalTensor t;
  t.parts = {{"x", 0, 1100}}, t.columns = 1001, t.transposed = true;
  std::vector<float> a(size_t(t.elements())), file(a.size()), b(a.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] = float(i);
  gather(t, a.data(), file.data());
  EXPECT_EQ(file[1], a[1001]);
  scatter(t, file.data(), DType::f32, b.data());
  EXPECT_EQ(a, b);
}

TEST(MatchNames, AnyOrderWithAndWithoutPrefix) {
  for (auto& c :
       {small("nano"), small("llama-nano"), own(), fused(), biased(true, false, true), biased(false, true, false)}) {
    auto offered = offer(c);
    std::reverse(offered.begin(), offered.end());
    auto bare = offered;
    for (auto& t : bare)
      for (std::string prefix : {"transformer.", "model."})
        if (t.name.starts_with(prefix)) t.name.erase(0, prefix.size());
    for (auto& names : {offered, bare}) {
      NameMatch m = match(c, names);
      ASSERT_EQ(m.source.size(), names.size());
      for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(m.source[i], names.size() - 1 - i);
      EXPECT_FALSE(m.redundant_head);
      EXPECT_TRUE(m.ignored.empty());
    }
  }
}

TEST(MatchNames, WrappersOfModulesAreLeftOutWhereverTheyAre) {
  for (auto& c : {small("nano"), small("llama-nano"), own()}) {
    const auto plain = offer(c);
    const std::string layer = family_of(c) && family_of(c)->type == std::string("llama") ? "layers.1." : "h.1.";
    for (auto [start, inner] : {std::pair{"_orig_mod.", ""},
                                {"module.", ""},
                                {"module._orig_mod.", ""},
                                {"", "_orig_mod."},
                                {"_fsdp_wrapped_module.", "_fsdp_wrapped_module._checkpoint_wrapped_module."}}) {
      auto names = plain;
      for (auto& t : names) {
        if (size_t at = t.name.find(layer); at != std::string::npos) t.name.insert(at + layer.size(), inner);
        t.name.insert(0, start);
      }
      const NameMatch m = match(c, names);
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(m.source[i], i);
        EXPECT_EQ(without_wrappers(names[i].name), plain[i].name);
      }
      names.push_back(plain[0]);
      expect_error([&] { match(c, names); }, {"has both", plain[0].name}, Exit::failed);
    }
  }
  // Only whole parts of a name are wrappers.
  for (const char* name : {"submodule.weight", "h.0.modules.x", "orig_mod.x", "module", "_orig_mod", "", "."})
    EXPECT_EQ(without_wrappers(name), name);
}

TEST(MatchNames, BuffersAndTheTiedHeadAreNoParameters) {
  ModelConfig c = small("nano");
  auto offered = offer(c);
  size_t n = offered.size();
  offered.push_back({"transformer.h.0.attn.bias", {1, 1, 20, 20}});
  offered.push_back({"h.1.attn.masked_bias", {}});
  offered.push_back({"lm_head.weight", {37, 48}});
  NameMatch m = match(c, offered);
  EXPECT_EQ(m.redundant_head, n + 2);
  EXPECT_EQ(m.ignored.size(), 2u);
  offered.back().shape = {37, 47};
  expect_error([&] { match(c, offered); }, {"lm_head.weight is [37, 47], not [37, 48]"}, Exit::failed);

  offered = offer(c);
  find(offered, "transformer.wte.weight").name = "lm_head.weight";
  EXPECT_NO_THROW(match(c, offered)) << "the head alone stands for both";

  c = small("llama-nano");
  offered = offer(c);
  offered.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {4}});
  offered.push_back({"gpt_neox.layers.0.attention.bias", {1, 1, 20, 20}});
  offered.push_back({"gpt_neox.layers.0.attention.masked_bias", {}});
  EXPECT_EQ(match(c, offered).ignored.size(), 3u);
}

TEST(MatchNames, PositionsMayBeLongerNotShorter) {
  ModelConfig c = small("nano");
  auto offered = offer(c);
  find(offered, "transformer.wpe.weight").shape = {1024, 48};
  EXPECT_NO_THROW(match(c, offered));
  find(offered, "transformer.wpe.weight").shape = {19, 48};
  expect_error([&] { match(c, offered); }, {"wpe.weight is [19, 48], not [20, 48]", "context at most 19"},
               Exit::failed);
  find(offered, "transformer.wpe.weight").shape = {1024, 47};
  expect_error([&] { match(c, offered); }, {"wpe.weight is [1024, 47]"}, Exit::failed);
}

TEST(MatchNames, DifferencesAreListedWithWhatWouldFit) {
  ModelConfig c = small("nano");
  auto wrong = [&](const ModelConfig& model, std::vector<OfferedTensor> offered, std::vector<std::string> parts) {
    parts.push_back("model.safetensors");
    return expect_error([&] { match(model, offered); }, parts, Exit::failed);
  };
  auto offered = offer(c);
  drop(offered, "transformer.h.1.ln_2.bias");
  wrong(c, offered, {"missing: transformer.h.1.ln_2.bias\n"});
  offered = offer(c);
  offered.push_back({"extra.\x1b[31mweight", {1}});
  std::string text = wrong(c, offered, {"unexpected: extra.\\x1b[31mweight"});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);

  ModelConfig other = c;
  other.layers = 4;
  wrong(c, offer(other), {"unexpected: ", "and 21 more", "layers = 4 (the model has 2)"});
  wrong(other, offer(c), {"missing: transformer.h.2.", "and 21 more", "layers = 2 (the model has 4)"});
  other = c, other.vocab = 40, other.ff = 81;
  wrong(c, offer(other), {"[40, 48], not [37, 48]", "vocab = 40 (the model has 37)", "ff = 81 (the model has 80)"});
  other = small("llama-nano"), other.kv_heads = 3;
  wrong(small("llama-nano"), offer(other), {"kv_heads * head_dim = 24 (the model has 16)"});
  other = small("llama-nano"), other.tied = false;
  wrong(other, offer(small("llama-nano")), {"missing: lm_head.weight", "tied = true"});
  wrong(c, offer(small("llama-nano")), {"tensors of llama", "needs those of gpt2"});
  wrong(own(), offer(c), {"tensors of gpt2", "needs those of Crest"});
  wrong(c, {}, {"missing: transformer.wte.weight, "});

  offered = offer(c);
  std::swap(find(offered, "transformer.h.0.attn.c_attn.weight").shape[0],
            find(offered, "transformer.h.0.attn.c_attn.weight").shape[1]);
  wrong(c, offered, {"c_attn.weight is [144, 48], not [48, 144] (transposed)", "crest import"});
  offered = offer(c);
  offered.push_back({"ln_f.weight", {48}});
  wrong(c, offered, {"has both 'transformer.ln_f.weight' and 'ln_f.weight'"});
}

TEST(MatchNames, HostileNamesAndShapesAreJustDifferent) {
  ModelConfig c = small("nano");
  auto offered = offer(c);
  for (std::string name : {".", "h.", "h.0", "h.99999999999999999999.x", "h.0.", "layers.", "transformer.", "model.x"})
    offered.push_back({name, {}});
  offered.push_back({std::string(512, 'x'), {std::numeric_limits<int64_t>::max(), -1, 0}});
  expect_error([&] { match(c, offered); }, {"unexpected"}, Exit::failed);
}
