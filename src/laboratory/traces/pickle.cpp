#include "traces/pickle.h"

#include "core/error.h"
#include "core/pickle_codes.h"

namespace crest {

using namespace pickle;

namespace {

// Values between two marks, since a reader may pass them as arguments of one call. Python uses the
// same number.
constexpr size_t batch = 1000;

}  // namespace

PickleWriter::PickleWriter() {
  out_ += char(PROTO);
  out_ += char(4);
}

// Starts a batch of the enclosing list or dict, or the next one if full.
void PickleWriter::before_value() {
  if (open_.empty()) return;
  Level& level = open_.back();
  if (level.values == (level.dict ? 2 * batch : batch)) close();
  if (level.values++ == 0) out_ += char(MARK);
}

void PickleWriter::close() {
  Level& level = open_.back();
  if (level.values > 0) out_ += char(level.dict ? SETITEMS : APPENDS);
  level.values = 0;
}

void PickleWriter::begin_dict() {
  before_value();
  out_ += char(EMPTY_DICT);
  open_.push_back({.dict = true});
}

void PickleWriter::begin_list() {
  before_value();
  out_ += char(EMPTY_LIST);
  open_.push_back({.dict = false});
}

void PickleWriter::end_dict() {
  if (open_.empty() || !open_.back().dict || open_.back().values % 2 != 0) fail_internal("end_dict does not fit");
  close();
  open_.pop_back();
}

void PickleWriter::end_list() {
  if (open_.empty() || open_.back().dict) fail_internal("end_list does not fit");
  close();
  open_.pop_back();
}

void PickleWriter::put_text(std::string_view value) {
  before_value();
  if (auto seen = texts_.find(std::string(value)); seen != texts_.end()) {
    out_ += char(seen->second < 256 ? BINGET : LONG_BINGET);
    put(out_, seen->second, seen->second < 256 ? 1 : 4);
    return;
  }
  bool small = value.size() < 256;
  out_ += char(small ? SHORT_BINUNICODE : BINUNICODE);
  put(out_, value.size(), small ? 1 : 4);
  out_ += value;
  texts_[std::string(value)] = remember();
}

void PickleWriter::key(std::string_view name) {
  if (open_.empty() || !open_.back().dict || open_.back().values % 2 != 0) fail_internal("a key does not fit here");
  put_text(name);
}

void PickleWriter::text(std::string_view value) { put_text(value); }

void PickleWriter::integer(int64_t value) {
  before_value();
  if (value >= 0 && value < 0x10000) {
    out_ += char(value < 0x100 ? BININT1 : BININT2);
    put(out_, uint64_t(value), value < 0x100 ? 1 : 2);
  } else {
    put_integer(out_, value);
  }
}

void PickleWriter::number(double value) {
  before_value();
  put_number(out_, value);
}

void PickleWriter::boolean(bool value) {
  before_value();
  out_ += char(value ? NEWTRUE : NEWFALSE);
}

void PickleWriter::none() {
  before_value();
  out_ += char(NONE);
}

uint32_t PickleWriter::remember() {
  out_ += char(MEMOIZE);
  return remembered_++;
}

void PickleWriter::recall(uint32_t number) {
  if (number >= remembered_) fail_internal("a pickle refers to what was not written");
  before_value();
  out_ += char(number < 256 ? BINGET : LONG_BINGET);
  put(out_, number, number < 256 ? 1 : 4);
}

std::string PickleWriter::finish() {
  if (!open_.empty()) fail_internal("a pickle's list or dict is still open");
  out_ += char(STOP);
  return std::move(out_);
}

}  // namespace crest
