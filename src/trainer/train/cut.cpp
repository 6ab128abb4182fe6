#include "train/cut.h"

#include <fmt/format.h>

#include "comm/exchange.h"
#include "comm/sent_error.h"
#include "core/error.h"

namespace crest {

// An error reported by another rank.
static std::exception_ptr error_of(const std::string& text, int rank) {
  SentError e = parse_sent_error(text).value_or(SentError());
  return std::make_exception_ptr(Error(e.code, fmt::format("rank {}: {}", rank, e.problem), e.where, e.advice));
}

Cut::Agreed agree(Communicator* host, const Cut& own, int signal) {
  Cut::Agreed agreed = {signal, own.error};
  if (!host) return agreed;
  auto all = gather(*host, {double(own.kind), double(signal)});
  for (int r = int(all.size()) - 1; r >= 0; --r) {
    agreed.signal = agreed.signal ? agreed.signal : int(all[size_t(r)][1]);
    if (int(all[size_t(r)][0]) != int(Cut::failed)) continue;
    std::string text = broadcast_text(*host, own.error ? to_text(sent_error(own.error)) : "", r);
    if (!own.error) agreed.error = error_of(text, r);
  }
  return agreed;
}

}  // namespace crest
