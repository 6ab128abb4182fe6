// Python's pickle format, as far as Crest writes it: opcodes, and numbers as bytes.
#pragma once
#include <bit>
#include <cstdint>
#include <string>

namespace crest::pickle {

// By their names in Python's pickletools.
enum Opcode : uint8_t {
  PROTO = 0x80,
  STOP = '.',
  MARK = '(',
  EMPTY_DICT = '}',
  SETITEMS = 'u',
  EMPTY_LIST = ']',
  APPENDS = 'e',
  EMPTY_TUPLE = ')',
  TUPLE = 't',
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
  GLOBAL = 'c',
  BINPERSID = 'Q',
  REDUCE = 'R',
};

// Appends the lowest bytes of a value, little endian.
inline void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i));
}

// BININT, or LONG1 with eight bytes for larger numbers.
inline void put_integer(std::string& out, int64_t value) {
  bool small = value == int32_t(value);
  out += char(small ? BININT : LONG1);
  if (!small) out += char(8);
  put(out, uint64_t(value), small ? 4 : 8);
}

// BINFLOAT: big endian.
inline void put_number(std::string& out, double value) {
  out += char(BINFLOAT);
  auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 7; i >= 0; --i) out += char(bits >> (8 * i));
}

}  // namespace crest::pickle
