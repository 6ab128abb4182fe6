#include "device/matmul_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "backend/cpu/gemm.h"
#include "core/cache_folder.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/timer.h"
#include "host/isa.h"

namespace crest {

namespace {

constexpr int rates_format = 1;
constexpr int most_rounds = 8;
constexpr double enough_seconds = 0.1;

// Forward, input gradient and weight gradient, as a linear layer has them in training.
class LayerProducts {
 public:
  LayerProducts(DType type, int64_t rows, int64_t width, int threads) : flops_(6.0 * double(rows * width * width)) {
    GemmShape forward{.m = rows, .n = width, .k = width, .ab = type, .c = type};
    forward.lda = forward.ldb = forward.ldc = width, forward.threads = threads;
    GemmShape dx = forward, dw = forward;
    forward.b_transposed = true;
    dw.m = width, dw.k = rows, dw.a_transposed = true, dw.c = DType::f32;
    for (auto& shape : {forward, dx, dw}) gemms_.push_back(find_gemm(shape).gemm);
    size_t workspace = 0;
    for (auto& gemm : gemms_)
      if (gemm) workspace = std::max(workspace, gemm->workspace());
    const auto elements = size_t(std::max(rows, width) * width);
    for (auto& operand : operands_) operand.assign(elements, 0.0f);  // zero in every type
    workspace_.resize(workspace / sizeof(Line) + 1);
  }
  bool supported() const {
    return std::all_of(gemms_.begin(), gemms_.end(), [](auto& gemm) { return gemm != nullptr; });
  }
  void run() {
    Timer timer;
    for (auto& gemm : gemms_)
      gemm->run(operands_[0].data(), operands_[1].data(), nullptr, operands_[2].data(), workspace_.data());
    best_ = std::min(best_, timer.seconds());
  }
  void forget() { best_ = std::numeric_limits<double>::infinity(); }
  double rate() const { return flops_ / best_; }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  const double flops_;
  std::vector<std::shared_ptr<const Gemm>> gemms_;
  std::array<std::vector<float>, 3> operands_;
  std::vector<Line> workspace_;
  double best_ = std::numeric_limits<double>::infinity();
};

// Empty where the file is missing, damaged, or of another format: then it is written anew.
nlohmann::json read_rates(const std::string& path) {
  try {
    if (path.empty() || !path_exists(path)) return nlohmann::json::object();
    nlohmann::json file = nlohmann::json::parse(read_file(path, 1 << 20));
    if (file.at("format") == rates_format && file.at("rates").is_object()) return file.at("rates");
  } catch (const std::exception&) {  // from another version, or cut off
  }
  return nlohmann::json::object();
}

std::optional<MatmulRates> known_rates(const nlohmann::json& rates, const std::string& key) {
  auto found = rates.find(key);
  if (found == rates.end() || !found->is_object()) return {};
  auto number = [&](const char* name) {
    auto it = found->find(name);
    return it != found->end() && it->is_number() ? it->get<double>() : 0.0;
  };
  MatmulRates r{number("fp32"), number("bf16")};
  if (!(r.fp32 > 0 && r.bf16 > 0)) return {};
  return r;
}

// A cache without write access costs a measurement at the next start, and nothing else.
void keep_rates(const std::string& path, const std::string& key, const MatmulRates& r) {
  if (path.empty()) return;
  try {
    create_directories(parent_path(path));
    nlohmann::json rates = read_rates(path);
    rates[key] = {{"fp32", r.fp32}, {"bf16", r.bf16}};
    write_file_atomic(path, nlohmann::json{{"format", rates_format}, {"rates", rates}}.dump(1) + "\n");
  } catch (const Error&) {
  }
}

}  // namespace

MatmulRates measure_matmul_rates(int threads) {
  const int64_t rows = std::clamp<int64_t>(int64_t(128) * threads, 256, 4096), width = 512;
  OpenMpThreads of_the_step(threads);
  LayerProducts fp32(DType::f32, rows, width, threads), bf16(DType::bf16, rows, width, threads);
  if (!fp32.supported() || !bf16.supported()) return {};
  Timer timer;
  fp32.run(), bf16.run();  // their first run touches memory
  fp32.forget(), bf16.forget();
  for (int i = 0; i < most_rounds && (i == 0 || timer.seconds() < enough_seconds); ++i) fp32.run(), bf16.run();
  return {fp32.rate(), bf16.rate()};
}

std::string matmul_rates_path() {
  std::string folder = cache_folder();
  return folder.empty() ? "" : join_path(folder, "matmul-rates.json");
}

std::string matmul_rates_key(const Device& device) {
  const char* held = std::getenv("ONEDNN_MAX_CPU_ISA");  // the library multiplies
  return fmt::format("{}, {}, Crest {}{}", printable(cpu_name()), device.isa, CREST_VERSION,
                     held ? fmt::format(", oneDNN {}", printable(held)) : "");
}

std::optional<MatmulRates> matmul_rates(const Device& device) {
  if (device.kind != "cpu" || device.described || !device.native_bf16) return {};
  const std::string path = matmul_rates_path(), key = matmul_rates_key(device);
  if (auto known = known_rates(read_rates(path), key)) return known;
  if (device.emulated || device.isa != name(active_isa()) || active_isa() > best_isa()) return {};
  const MatmulRates measured = measure_matmul_rates(device.threads);
  if (!(measured.fp32 > 0 && measured.bf16 > 0)) return {};
  keep_rates(path, key, measured);
  return measured;
}

}  // namespace crest
