#include "comm/sent_error.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "comm/comm.h"
#include "core/text.h"

namespace crest {

SentError sent_error(const std::exception_ptr& error, size_t longest) {
  SentError sent;
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    sent = {e.code(), std::nullopt, e.problem(), e.where(), e.advice()};
    if (auto* lost = dynamic_cast<const PeerLost*>(&e)) sent.lost = lost->rank();
  } catch (const std::bad_alloc&) {
    sent.code = Exit::does_not_fit, sent.problem = "out of memory";
  } catch (const std::exception& e) {
    sent.problem = e.what();
  }
  for (auto* part : {&sent.problem, &sent.where, &sent.advice}) part->resize(std::min(part->size(), longest));
  return sent;
}

std::string to_text(const SentError& e) {
  return join({std::to_string(int(e.code)), e.lost ? std::to_string(*e.lost) : "own", e.problem, e.where, e.advice},
              std::string(1, '\0'));
}

std::optional<SentError> parse_sent_error(const std::string& text) {
  auto parts = split(text, '\0');
  if (parts.size() != 5) return std::nullopt;
  SentError e = {Exit(std::atoi(parts[0].c_str())), std::nullopt, parts[2], parts[3], parts[4]};
  if (parts[1] != "own") e.lost = std::atoi(parts[1].c_str());
  return e;
}

}  // namespace crest
