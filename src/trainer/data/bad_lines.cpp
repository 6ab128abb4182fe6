#include "data/bad_lines.h"

#include <fmt/format.h>

#include "core/text.h"

namespace crest {

static constexpr uint64_t most_printed = 10;

BadLines::BadLines(uint64_t allowed, std::function<void(const std::string&)> message)
    : allowed_(allowed), message_(std::move(message)) {}

void BadLines::skip(const BadLine& line) {
  if (!first_reading_) return;
  if (skipped_ == allowed_ && allowed_ == 0)
    throw BadLine(line.problem(), line.where(),
                  line.advice() + " crest data prepare --skip-bad-lines N skips up to N bad lines.");
  if (skipped_ == allowed_)
    throw BadLine(line.problem(), line.where(),
                  fmt::format("{} Before it, --skip-bad-lines skipped {}.", line.advice(),
                              format_number_of(int64_t(skipped_), "bad line")));
  if (++skipped_ <= most_printed && message_) message_(fmt::format("skipped {}: {}", line.where(), line.problem()));
}

void BadLines::end_first_reading() {
  first_reading_ = false;
  if (skipped_ && message_) message_(format_number_of(int64_t(skipped_), "bad line") + " skipped");
}

}  // namespace crest
