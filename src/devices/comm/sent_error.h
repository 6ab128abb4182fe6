// An error on its way from one process of a run to another, as text.
#pragma once
#include <exception>
#include <optional>
#include <string>

#include "core/error.h"

namespace crest {

struct SentError {
  Exit code = Exit::failed;
  std::optional<int> lost;  // the rank that caused it (PeerLost); empty: the sender
  std::string problem, where, advice;
};

// From any exception. Parts are cut to `longest` characters.
SentError sent_error(const std::exception_ptr& error, size_t longest = 10'000);
std::string to_text(const SentError& error);
// Empty if the text is not from to_text().
std::optional<SentError> parse_sent_error(const std::string& text);

}  // namespace crest
