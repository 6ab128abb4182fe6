// Python's regular expressions over module names, as adapters of peft have them. Files of others
// choose them, so matching takes time linear in the name: there is no backtracking.
#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

class NamePattern {
 public:
  // Throws for patterns refused by Python, and for look-around, references to groups, flags, and
  // more than most_steps instructions. where: for errors.
  NamePattern(const std::string& pattern, const std::string& where);

  static constexpr size_t most_steps = 5000;
  size_t steps() const { return program_.size(); }
  // re.fullmatch(pattern, name).
  bool matches(std::string_view name) const;

 private:
  friend class PatternParser;
  enum class Kind : uint8_t { set, split, jump, begin, end, border, no_border, accept };
  struct Step {
    Kind kind = Kind::accept;
    std::bitset<256> set = {};  // of bytes
    size_t to = 0, other = 0;   // of a split: both are next; of a jump: `to`
  };
  std::vector<Step> program_;
};

}  // namespace crest
