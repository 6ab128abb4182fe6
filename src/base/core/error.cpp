#include "core/error.h"

#include <cerrno>

#include "core/system_error.h"

namespace crest {

static std::string compose(const std::string& what, const std::string& where, const std::string& advice) {
  std::string text = what;
  if (!where.empty()) text = where + ": " + text;
  if (!advice.empty()) text += "\n  " + advice;
  return text;
}

// Advice often starts with did_you_mean(), possibly empty, followed by a space.
static std::string without_leading_spaces(std::string text) { return text.erase(0, text.find_first_not_of(' ')); }

Error::Error(Exit code, std::string what, std::string where, std::string advice)
    : std::runtime_error(compose(what, where, without_leading_spaces(advice))),
      code_(code),
      what_(std::move(what)),
      where_(std::move(where)),
      advice_(without_leading_spaces(std::move(advice))) {}

SystemError::SystemError(int number, std::string what, std::string where, std::string advice)
    : Error(Exit::failed, std::move(what), std::move(where), std::move(advice)), number_(number) {}

bool SystemError::missing() const { return number_ == ENOENT || number_ == ENOTDIR; }

void fail(std::string what, std::string where, std::string advice) {
  throw Error(Exit::failed, std::move(what), std::move(where), std::move(advice));
}

void fail_usage(std::string what, std::string where, std::string advice) {
  throw Error(Exit::usage, std::move(what), std::move(where), std::move(advice));
}

void fail_internal(std::string what, std::string where) {
  throw Error(Exit::failed, "internal error: " + std::move(what), std::move(where),
              "This is a bug in Crest. Please report it with the command that caused it.");
}

}  // namespace crest
