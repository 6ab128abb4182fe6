// Typed errors. Every error for a user states the problem, its place, and the remedy.
#pragma once
#include <stdexcept>
#include <string>

namespace crest {

// Exit codes, as in docs/reference/contract.md.
enum class Exit { ok = 0, failed = 1, usage = 2, does_not_fit = 3, no_device = 4, interrupted = 130 };

// what: the problem. where: file, flag, instruction (may be empty). advice: the remedy (may be
// empty).
class Error : public std::runtime_error {
 public:
  Error(Exit code, std::string what, std::string where = {}, std::string advice = {});
  Exit code() const { return code_; }
  const std::string& problem() const { return what_; }
  const std::string& where() const { return where_; }
  const std::string& advice() const { return advice_; }

 private:
  Exit code_;
  std::string what_, where_, advice_;
};

// A failure of the requested action (bad file, I/O, mismatch): exit code 1.
[[noreturn]] void fail(std::string what, std::string where = {}, std::string advice = {});
// Wrong flags, keys or values: exit code 2.
[[noreturn]] void fail_usage(std::string what, std::string where = {}, std::string advice = {});
// A broken invariant of Crest itself (a bug): exit code 1, and the message says so.
[[noreturn]] void fail_internal(std::string what, std::string where = {});

}  // namespace crest
