#include "train/engine.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "comm/local.h"
#include "core/error.h"
#include "run/ranks.h"

namespace crest {

Engine::Engine(CompiledSession session) : session_(std::move(session)), calls_(training_step(session_)) {
  int ranks = session_.recipe.data_parallel;
  if (ranks > 1) communicators_ = make_local_communicators(ranks);
  for (int r = 0; r < ranks; ++r)
    executors_.push_back(std::make_unique<Executor>(session_, ranks > 1 ? communicators_[size_t(r)].get() : nullptr));
}

void Engine::initialize_weights(uint64_t seed) {
  run_on_ranks(ranks(), [&](int r) { initialize(rank(r), seed); });
}

void Engine::fill(int r, int program, uint64_t first, const SampleSource& source) {
  TensorRef tokens = rank(r).tensor(program, "tokens"), targets = rank(r).tensor(program, "targets");
  int64_t batch = tokens.shape[0], seq = tokens.shape[1];
  for (int64_t b = 0; b < batch; ++b)
    source(first + uint64_t(b), static_cast<int32_t*>(tokens.data) + b * seq,
           static_cast<int32_t*>(targets.data) + b * seq);
}

StepResult Engine::step(int64_t step, double lr, uint64_t seed, const SampleSource& source) {
  auto start = std::chrono::steady_clock::now();
  const Recipe& recipe = session_.recipe;
  StepResult result;
  result.loss_scale = rank(0).scalars().loss_scale;
  int loss_program = 0;
  for (auto& call : calls_)
    if (call.micro >= 0) loss_program = call.segment;
  double loss = 0;
  run_on_ranks(ranks(), [&](int r) {
    Executor& e = rank(r);
    for (auto& call : calls_) {
      if (call.micro >= 0) {
        uint64_t first = (uint64_t(step * recipe.grad_accumulation + call.micro) * uint64_t(ranks()) + uint64_t(r)) *
                         uint64_t(recipe.batch);
        e.scalars().seed = seed;
        e.scalars().sample_base = int64_t(first);
        e.scalars().lr = float(lr);
        fill(r, call.segment, first, source);
      }
      e.run(call.segment);
      if (call.segment == loss_program && r == 0) loss = *static_cast<float*>(e.tensor(loss_program, "loss").data);
    }
  });
  const Scalars& s = rank(0).scalars();
  result.loss = loss;
  result.grad_norm = s.grad_norm;
  result.skipped = s.found_inf != 0;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

int64_t Engine::validation_batch() const {
  int program = session_.find("validation");
  return program < 0 ? 0 : session_.programs[size_t(program)].spec.batch;
}

double Engine::validate(int64_t batches, const SampleSource& source) {
  int program = session_.find("validation");
  if (program < 0) fail_internal("the session has no validation program");
  double sum = 0;
  run_on_ranks(ranks(), [&](int r) {
    for (int64_t i = 0; i < batches; ++i) {
      fill(r, program, uint64_t((i * ranks() + r) * validation_batch()), source);
      rank(r).run(program);
      if (r == 0) sum += *static_cast<float*>(rank(r).tensor(program, "loss").data);
    }
  });
  return sum / double(batches);
}

void Engine::broadcast() {
  std::vector<ParameterRef> from = parameters(rank(0));
  for (int r = 1; r < ranks(); ++r) {
    std::vector<ParameterRef> to = parameters(rank(r));
    for (size_t q = 0; q < to.size(); ++q)
      for (auto part : {&ParameterRef::weight, &ParameterRef::master, &ParameterRef::m, &ParameterRef::v}) {
        TensorRef& t = to[q].*part;
        if (t.data) std::memcpy(t.data, (from[q].*part).data, size_t(t.shape.numel()) * size_of(t.dtype));
      }
    rank(r).scalars() = rank(0).scalars();
  }
}

}  // namespace crest
