#include "fixture.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include "checkpoint/safetensors.h"
#include "device.h"
#include "plan/memory_plan.h"
#include "program/op.h"
#include "run/parameters.h"

namespace parity {

using namespace crest;

const std::vector<std::string>& names() {
  static const std::vector<std::string> n = {"gpt2-tiny",     "llama-tiny",    "llama3-tied-tiny", "mistral-tiny",
                                             "smollm3-tiny",  "granite-tiny",  "starcoder2-tiny",  "phi3-tiny",
                                             "gpt-neox-tiny", "stablelm-tiny", "qwen3-tiny",       "olmo2-tiny",
                                             "olmo3-tiny",    "gemma3-tiny",   "nanochat-tiny"};
  return n;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
  return std::sqrt(difference / norm);
}

Fixture::Fixture(const std::string& name) : folder(CREST_TEST_DIR "/parity/fixtures/" + name) {
  config = load_model_config(folder);
  std::ifstream(folder + "/info.json") >> info;
  auto file = SafetensorsFile::open(folder + "/expected.safetensors");
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    auto& t = file.tensors()[i];
    std::vector<char> bytes(t.bytes);
    file.read(i, bytes.data(), bytes.size());
    auto& values = expected[t.spec.name];
    for (int64_t e = 0; e < element_count(t.spec); ++e) {
      int32_t whole = 0;
      if (t.spec.dtype == DType::i32) std::memcpy(&whole, &bytes[size_t(e) * 4], 4);
      values.push_back(t.spec.dtype == DType::i32 ? whole : load_element(bytes.data(), t.spec.dtype, e));
    }
    if (t.spec.name == "tokens") batch = t.spec.shape[0], seq = t.spec.shape[1];
  }
}

const std::vector<double>& Fixture::at(const std::string& name) const {
  auto it = expected.find(name);
  if (it == expected.end()) throw std::runtime_error("the fixture has no " + name);
  return it->second;
}

Recipe Fixture::recipe(const std::string& precision) const {
  Recipe r;
  r.model = config, r.batch = batch, r.seq = seq, r.precision = precision;
  auto& o = info["optimizer"];
  r.beta1 = o["betas"][0], r.beta2 = o["betas"][1], r.eps = o["eps"], r.weight_decay = o["weight_decay"];
  r.clip = o["clip"];
  return r;
}

Session::Session(const Fixture& fixture, const Recipe& recipe, const SessionUse& use, bool keep_logits)
    : fixture_(fixture), session_(compile(recipe, crest::test::test_device(0), session_programs(recipe, use))) {
  if (keep_logits) {
    CompiledProgram& c = session_.programs[size_t(session_.find("validation"))];
    for (auto& i : c.program.code)
      if (std::string_view(i.op->name).starts_with("cross_entropy")) {
        c.program.at(i.in[0]).name = "logits";
        c.program.outputs.push_back(i.in[0]);
      }
    c.memory = plan_memory(c.program, c.workspace);
    session_.transient_bytes = std::max(session_.transient_bytes, c.memory.bytes);
  }
  executor_ = std::make_unique<Executor>(session_);
  load();
}

void Session::load() {
  auto file = SafetensorsFile::open(fixture_.folder + "/model.safetensors");
  std::vector<OfferedTensor> offered;
  for (auto& t : file.tensors()) offered.push_back({t.spec.name, t.spec.shape});
  NameMatch match = match_names(fixture_.config, offered, file.path());
  std::map<std::string, std::vector<float>> values;
  for (auto& p : parameters(*executor_)) values[p.name].resize(size_t(p.numel()));
  for (size_t i = 0; i < match.tensors.size(); ++i) {
    const CanonicalTensor& canonical = match.tensors[i];
    auto& t = file.tensors()[match.source[i]];
    std::vector<char> bytes(t.bytes);
    file.read(match.source[i], bytes.data(), bytes.size());
    scatter(canonical, bytes.data(), t.spec.dtype,
            [&](const TensorPart& part) { return values.at(part.parameter).data() + part.row * canonical.columns; });
  }
  for (auto& p : parameters(*executor_)) p.set(values.at(p.name).data());
}

void Session::run(const std::string& program, const std::string& tokens, const std::string& targets, int64_t offset) {
  int p = session_.find(program);
  for (auto& [value, source] : {std::pair<std::string, std::string>{"tokens", tokens}, {"targets", targets}}) {
    TensorRef t = executor_->tensor(p, value);
    auto& from = fixture_.at(source);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < t.shape.numel(); ++i) ids.push_back(int32_t(from.at(size_t(offset + i))));
    t.write(ids.data());
  }
  executor_->run(p);
}

double Session::loss(const std::string& program) {
  return executor_->tensor(session_.find(program), "loss").floats()[0];
}

std::vector<double> Session::logits() {
  int validation = session_.find("validation");
  const Program& program = session_.programs[size_t(validation)].program;
  const Value& v = program.at(program.find("logits"));
  TensorRef t = executor_->tensor(validation, "logits");
  int64_t rows = t.shape.rows(), pitch = v.layout.strides[v.shape.rank() - 2];
  t.shape = {(rows - 1) * pitch + t.shape.back()};  // to the end of the last row, without the rest of its pitch
  std::vector<double> out;
  std::vector<float> all = t.floats();
  const double cap = fixture_.config.logit_cap;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < fixture_.config.vocab; ++i) {
      const double x = all[size_t(row * pitch + i)];
      out.push_back(cap > 0 ? cap * std::tanh(x / cap) : x);  // the loss caps them without storing them
    }
  return out;
}

namespace {

// Whole parameters as the tensors of a file. `offsets`: of values, not of their changes.
std::map<std::string, std::vector<double>> in_file(const ModelConfig& config,
                                                   const std::map<std::string, std::vector<float>>& whole,
                                                   bool offsets) {
  std::map<std::string, std::vector<double>> out;
  for (CanonicalTensor t : canonical_tensors(config)) {
    if (!offsets) t.offset = 0;
    std::vector<float> part(size_t(t.elements()));
    gather(
        t, [&](const TensorPart& p) { return whole.at(p.parameter).data() + p.row * t.columns; }, part.data());
    out[t.name].assign(part.begin(), part.end());
  }
  return out;
}

}  // namespace

std::map<std::string, std::vector<double>> Session::gradients() {
  std::map<std::string, std::vector<float>> whole;
  for (auto& p : parameters_of(fixture_.config)) {
    whole[p.name] = executor_->tensor(0, "grad." + p.name).floats();
    for (float& x : whole[p.name]) x = float(x / executor_->scalars().loss_scale);
  }
  return in_file(fixture_.config, whole, false);
}

std::map<std::string, std::vector<double>> Session::weights() {
  std::map<std::string, std::vector<float>> whole;
  for (auto& p : parameters(*executor_)) {
    whole[p.name].resize(size_t(p.numel()));
    p.get(whole[p.name].data());
  }
  return in_file(fixture_.config, whole, true);
}

}  // namespace parity
