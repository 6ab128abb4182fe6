// A few steps on ranks of a mesh and on one rank, compared.
#pragma once
#include <cmath>

#include "train/run_fixture.h"

namespace crest::test {

// The same global batch.
inline Recipe shared_by(Recipe r, const Mesh& mesh) {
  r.batch /= mesh.size(Axis::data), r.data_parallel = mesh.ranks(), r.mesh = mesh;
  return r;
}

inline std::vector<std::vector<float>> weights_of(Engine& e) {
  std::vector<std::vector<float>> list;
  with_parameters(e, [&](const ParameterRef& p) {
    list.emplace_back(size_t(p.numel()));
    p.get(list.back().data());
  });
  return list;
}

inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += std::pow(double(a[i]) - b[i], 2), norm += std::pow(b[i], 2);
  return norm == 0 ? difference : std::sqrt(difference / norm);
}

struct StepsOnMesh {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> weights;
  double validation;
};

inline StepsOnMesh run_on_mesh(const Recipe& r, const SampleSource& source) {
  Engine e = make_engine(r);
  e.read_whole_steps(true);  // as several ranks do: targets below 0 do not count
  StepsOnMesh t;
  for (int s = 0; s < 3; ++s) {
    StepResult result = e.step(s, 0.1, 11, source);
    t.losses.push_back(result.loss), t.norms.push_back(result.grad_norm);
  }
  t.weights = weights_of(e), t.validation = e.validate(2, source);
  return t;
}

inline StepsOnMesh run_on_mesh(const Recipe& r) {
  return run_on_mesh(r, [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); });
}

inline void expect_equal(const StepsOnMesh& parts, const StepsOnMesh& one) {
  for (size_t s = 0; s < one.losses.size(); ++s) {
    EXPECT_NEAR(parts.losses[s], one.losses[s], 1e-5 * one.losses[s]) << "step " << s;
    EXPECT_NEAR(parts.norms[s], one.norms[s], 1e-5 * one.norms[s]) << "step " << s;
  }
  EXPECT_NEAR(parts.validation, one.validation, 1e-5 * one.validation);
  for (size_t i = 0; i < one.weights.size(); ++i)
    EXPECT_LT(relative_distance(parts.weights[i], one.weights[i]), 1e-5) << "parameter " << i;
}

}  // namespace crest::test
