// Choices between variants of a kernel, made by timing them (Kernel::tune). A continued run repeats
// them: other algorithms add in another order, and bits would change.
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
  // 130100"); a choice is valid there only. Problem: everything else. Only its kernel reads the
  // text of a choice.
  using Table = std::map<std::string, std::map<std::string, std::string>>;

  Choices() = default;
  // earlier: the choices of an earlier session, to be used again.
  explicit Choices(Table earlier) : earlier_(std::move(earlier)) {}

  // This session's choice for a problem, else the earlier one.
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
