// TensorBoard event files, written without TensorFlow: TFRecord framing around Event protocol
// buffers (tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto describe
// both).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/folder.h"

namespace crest {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4) and TFRecord's masked form of it.
uint32_t crc32c(std::string_view data);
uint32_t masked_crc32c(std::string_view data);

// length (8 bytes), its masked CRC (4), data, its masked CRC (4); little-endian.
std::string tfrecord(std::string_view data);
// An Event with one scalar Summary.Value; wall_time in seconds since 1970.
std::string scalar_event(std::string_view tag, int64_t step, float value, double wall_time);

// Appends scalars to one new event file in `folder` (a resumed run adds a file; TensorBoard joins
// it with the earlier ones). nanoGPT's tags: train/loss, val/loss, lr (not mfu, which needs a peak
// rate unknown to a run).
class TensorboardWriter {
 public:
  explicit TensorboardWriter(const Folder& folder);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  // Readers drop later steps of earlier files.
  void start_after(int64_t step);
  // wall_time 0 = now. Buffered; fails with the path when the disk is full.
  void scalar(std::string_view tag, int64_t step, double value, double wall_time = 0);
  void flush();
  const std::string& path() const { return file_.path(); }

 private:
  void write(const std::string& event);
  File file_;
  std::string buffer_;
};

}  // namespace crest
