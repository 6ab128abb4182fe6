#include "measure/bench_gemm.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "program/builder.h"

namespace crest {

namespace {

struct Problem {
  Device device;
  Program program;
  const Kernel* kernel = nullptr;
  std::vector<char> weight;  // b transposed: [n, k]
  std::unique_ptr<void, void (*)(void*)> workspace{nullptr, std::free};
  std::shared_ptr<void> prepared;
  void* in[2];
  void* out[1];

  void run() const {
    kernel->launch({program, program.code[0], in, out, workspace.get(), prepared.get(), device.threads, nullptr});
  }
};

void transpose(const void* from, void* to, int64_t rows, int64_t columns, size_t element) {
  auto* f = static_cast<const char*>(from);
  auto* t = static_cast<char*>(to);
#pragma omp parallel for
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(t + size_t(c * rows + r) * element, f + size_t(r * columns + c) * element, element);
}

const Kernel* chosen(const KernelQuery& query) {
  for (auto& kernel : kernels_of(query.device.kind))
    if (std::string_view(kernel.op) == "linear" && (!kernel.reject || kernel.reject(query).empty())) return &kernel;
  return nullptr;
}

}  // namespace

GemmFactory linear_kernel_factory(const Device& device) {
  return [device](const GemmProblem& g) -> std::function<void()> {
    auto p = std::make_shared<Problem>();
    p->device = device;
    Builder builder(p->program);
    ValueId x = builder.declare("x", g.type, Shape{g.m, g.k}, Role::input, Lifetime::micro);
    ValueId w = builder.declare("w", g.type, Shape{g.n, g.k}, Role::weight, Lifetime::persistent);
    builder.emit1("linear", {x, w});
    KernelQuery query{p->program, p->program.code[0], p->device};
    p->kernel = chosen(query);
    if (!p->kernel || std::string_view(p->kernel->name).find("reference") != std::string_view::npos) return {};
    p->weight.resize(size_t(g.n * g.k) * size_of(g.type));
    transpose(g.b, p->weight.data(), g.k, g.n, size_of(g.type));
    size_t bytes = p->kernel->workspace ? p->kernel->workspace(query) : 0;
    if (bytes) {
      p->workspace.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      if (!p->workspace) throw std::bad_alloc();
    }
    if (p->kernel->prepare) p->prepared = p->kernel->prepare(query);
    p->in[0] = const_cast<void*>(g.a);
    p->in[1] = p->weight.data();
    p->out[0] = g.c;
    return [p] { p->run(); };
  };
}

GemmRate quick_gemm_rate(const Device& device, DType type) {
  return measure_gemm_rate(
      type, linear_kernel_factory(device), {{1024, 3072, 768}, {1024, 768, 3072}},
      {.warmup = 1, .min_samples = 6, .max_samples = 20, .max_seconds = 0.4, .target_relative_ci = 0.02});
}

}  // namespace crest
