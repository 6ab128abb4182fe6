// Errors of core/json.h.
#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include "core/error.h"

namespace crest {

// Thrown for an invalid JSON text, or one beyond the limits. position: the byte (from 0) of the
// error.
class JsonError : public Error {
 public:
  JsonError(std::string what, std::string where, std::string advice, size_t position)
      : Error(Exit::failed, std::move(what), std::move(where), std::move(advice)), position_(position) {}
  size_t position() const { return position_; }

 private:
  size_t position_;
};

}  // namespace crest
