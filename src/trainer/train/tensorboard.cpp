#include "train/tensorboard.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>
#include <utility>

#include "core/error.h"

namespace crest {

uint32_t crc32c(std::string_view data) {
  static const auto table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;  // the polynomial, reflected
      t[i] = c;
    }
    return t;
  }();
  uint32_t c = 0xFFFFFFFFu;
  for (char byte : data) c = table[(c ^ uint8_t(byte)) & 0xFF] ^ (c >> 8);
  return ~c;
}

uint32_t masked_crc32c(std::string_view data) {
  uint32_t c = crc32c(data);
  return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
}

namespace {

void put_fixed(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i));
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}

// Wire types of protocol buffers: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
void put_tag(std::string& out, int field, int wire) { put_varint(out, uint64_t(field) << 3 | uint64_t(wire)); }

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_tag(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary (message), 7
// session_log (message).
std::string event_header(double wall_time) {
  std::string out;
  put_tag(out, 1, 1);
  put_fixed(out, std::bit_cast<uint64_t>(wall_time), 8);
  return out;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string tfrecord(std::string_view data) {
  std::string length, out;
  put_fixed(length, data.size(), 8);
  out = length;
  put_fixed(out, masked_crc32c(length), 4);
  out += data;
  put_fixed(out, masked_crc32c(data), 4);
  return out;
}

std::string scalar_event(std::string_view tag, int64_t step, float value, double wall_time) {
  std::string item;  // Summary.Value: 1 tag, 2 simple_value
  put_bytes(item, 1, tag);
  put_tag(item, 2, 5);
  put_fixed(item, std::bit_cast<uint32_t>(value), 4);
  std::string summary;  // Summary: 1 repeated Value
  put_bytes(summary, 1, item);
  std::string event = event_header(wall_time);
  put_tag(event, 2, 0);
  put_varint(event, uint64_t(step));
  put_bytes(event, 5, summary);
  return event;
}

TensorboardWriter::TensorboardWriter(const Folder& folder) {
  // TensorBoard reads files with "tfevents" in the name, sorted by name, so the time comes first.
  // The number distinguishes writers in the same second.
  double time = now();
  std::string name;
  int number = 0;
  do name = fmt::format("events.out.tfevents.{}.crest.{:03}", int64_t(time), number++);
  while (folder.has(name));
  file_ = folder.create(name);
  std::string version = event_header(time);
  put_bytes(version, 3, "brain.Event:2");
  write(version);
  flush();
}

TensorboardWriter::~TensorboardWriter() {
  try {
    flush();
  } catch (const Error&) {  // important rows were flushed before
  }
}

void TensorboardWriter::write(const std::string& event) {
  constexpr size_t most = 4096;
  buffer_ += tfrecord(event);
  if (buffer_.size() > most) flush();
}

void TensorboardWriter::start_after(int64_t step) {
  std::string session;  // SessionLog: 1 status (enum); 1 is START
  put_tag(session, 1, 0);
  put_varint(session, 1);
  std::string event = event_header(now());
  put_tag(event, 2, 0);
  put_varint(event, uint64_t(step) + 1);
  put_bytes(event, 7, session);
  write(event);
  flush();
}

void TensorboardWriter::scalar(std::string_view tag, int64_t step, double value, double wall_time) {
  write(scalar_event(tag, step, float(value), wall_time > 0 ? wall_time : now()));
}

void TensorboardWriter::flush() { file_.write(std::exchange(buffer_, {})); }

}  // namespace crest
