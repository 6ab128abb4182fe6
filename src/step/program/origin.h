// Where an instruction came from: a set of model scopes ("h.3.attn.softmax"). Sets are interned, so
// an Origin is one number. Passes unite origins when they fuse, and copy them when they clone or
// differentiate.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

class Origin {
 public:
  Origin() = default;
  explicit Origin(std::string_view scope);
  Origin operator|(Origin other) const;  // union
  const std::vector<std::string>& scopes() const;
  std::string text() const;  // "h.0.attn" or "h.0.fc+h.0.gelu"
  static Origin parse(std::string_view text);
  bool empty() const { return id_ == 0; }
  bool operator==(const Origin&) const = default;
  // Layer number of the first scope ("h.3.x" is 3); -1 outside the layers.
  int layer() const;

 private:
  uint32_t id_ = 0;
};

}  // namespace crest
