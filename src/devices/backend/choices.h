// Choices between variants of a kernel that were made by timing them (Kernel::tune). A run that is
// continued makes the same ones again: other algorithms add up in another order, and bits change.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace crest {

// The choices of one session. Used by one thread at a time.
class Choices {
 public:
  // scope -> problem -> choice. Scope: device and library with its version ("NVIDIA H200, cuBLASLt
  // 130100"), outside of which a choice means nothing. Problem: all else that it depends on. The
  // choice is text that only its kernel reads.
  using Table = std::map<std::string, std::map<std::string, std::string>>;

  Choices() = default;
  // earlier: what an earlier session used; to be used again.
  explicit Choices(Table earlier) : earlier_(std::move(earlier)) {}

  // What this session uses for a problem already, else what the earlier one did.
  std::optional<std::string> find(const std::string& scope, const std::string& problem) const;
  void use(const std::string& scope, const std::string& problem, const std::string& choice);
  const Table& used() const { return used_; }
  // In one line how this session's choices differ from the earlier one's; empty when bits stay.
  std::string difference() const;

 private:
  Table earlier_, used_;
};

// JSON of a table, and back. Throws an Error for anything else; `where` is the file.
std::string to_json(const Choices::Table& table);
Choices::Table parse_choices(std::string_view text, const std::string& where);

}  // namespace crest
