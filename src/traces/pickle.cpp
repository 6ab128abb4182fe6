#include "traces/pickle.h"

#include <bit>

#include "core/error.h"

namespace crest {

namespace {

// Opcodes of the pickle machine, by their names in Python's pickletools.
enum Opcode : uint8_t {
  PROTO = 0x80,
  STOP = '.',
  MARK = '(',
  EMPTY_DICT = '}',
  SETITEMS = 'u',
  EMPTY_LIST = ']',
  APPENDS = 'e',
  NONE = 'N',
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  BININT1 = 'K',
  BININT2 = 'M',
  BININT = 'J',
  LONG1 = 0x8a,
  BINFLOAT = 'G',
  SHORT_BINUNICODE = 0x8c,
  BINUNICODE = 'X',
  MEMOIZE = 0x94,
  BINGET = 'h',
  LONG_BINGET = 'j',
};

// Values between two marks; a reader may pass them as arguments of one call. The same number as in
// Python.
constexpr size_t batch = 1000;

}  // namespace

PickleWriter::PickleWriter() {
  out_ += char(PROTO);
  out_ += char(4);
}

// Starts a batch of the enclosing list or dict, or the next one when full.
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

void PickleWriter::put_bytes(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += char(value >> (8 * i));
}

void PickleWriter::put_text(std::string_view value) {
  before_value();
  if (auto seen = texts_.find(std::string(value)); seen != texts_.end()) {
    out_ += char(seen->second < 256 ? BINGET : LONG_BINGET);
    put_bytes(seen->second, seen->second < 256 ? 1 : 4);
    return;
  }
  bool small = value.size() < 256;
  out_ += char(small ? SHORT_BINUNICODE : BINUNICODE);
  put_bytes(value.size(), small ? 1 : 4);
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
    put_bytes(uint64_t(value), value < 0x100 ? 1 : 2);
  } else if (value == int32_t(value)) {
    out_ += char(BININT);
    put_bytes(uint32_t(value), 4);
  } else {
    out_ += char(LONG1);
    put_bytes(8, 1);
    put_bytes(uint64_t(value), 8);
  }
}

void PickleWriter::number(double value) {
  before_value();
  out_ += char(BINFLOAT);
  auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 7; i >= 0; --i) out_ += char(bits >> (8 * i));
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
  put_bytes(number, number < 256 ? 1 : 4);
}

std::string PickleWriter::finish() {
  if (!open_.empty()) fail_internal("a pickle's list or dict is still open");
  out_ += char(STOP);
  return std::move(out_);
}

}  // namespace crest
