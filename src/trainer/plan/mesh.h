// How ranks share a model: --mesh data=2,tensor=2,pipeline=2.
#pragma once
#include <cstdint>
#include <string>

namespace crest {

struct Mesh {
  int64_t data = 1, tensor = 1, pipeline = 1;
  int64_t ranks() const { return data * tensor * pipeline; }
  int64_t replica() const { return tensor * pipeline; }  // ranks that hold one copy of the model
  std::string text() const;                              // "data=2,tensor=2,pipeline=1"
};

// Usage errors name --mesh. "": one rank.
Mesh parse_mesh(const std::string& text);

}  // namespace crest
