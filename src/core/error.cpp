#include "core/error.h"

namespace crest {

static std::string compose(const std::string& what, const std::string& where, const std::string& todo) {
  std::string text = what;
  if (!where.empty()) text = where + ": " + text;
  if (!todo.empty()) text += "\n  " + todo;
  return text;
}

Error::Error(Exit code, std::string what, std::string where, std::string todo)
    : std::runtime_error(compose(what, where, todo)),
      code_(code),
      what_(std::move(what)),
      where_(std::move(where)),
      todo_(std::move(todo)) {}

void fail(std::string what, std::string where, std::string todo) {
  throw Error(Exit::failed, std::move(what), std::move(where), std::move(todo));
}

void fail_usage(std::string what, std::string where, std::string todo) {
  throw Error(Exit::usage, std::move(what), std::move(where), std::move(todo));
}

void fail_internal(std::string what, std::string where) {
  throw Error(Exit::failed, "internal error: " + std::move(what), std::move(where),
              "This is a bug in Crest; please report it with the command that led here.");
}

}  // namespace crest
