// Writes TensorBoard event files without TensorFlow: TFRecord framing around Event protocol buffers
// (see tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/folder.h"

namespace crest {

// CRC-32C (Castagnoli, RFC 3720 appendix B.4) and TFRecord's masked form.
uint32_t crc32c(std::string_view data);
uint32_t masked_crc32c(std::string_view data);

// length (8 bytes), its masked CRC (4), data, its masked CRC (4); little-endian.
std::string tfrecord(std::string_view data);
// An Event with one scalar Summary.Value; wall_time in seconds since 1970.
std::string scalar_event(std::string_view tag, int64_t step, float value, double wall_time);

// Appends scalars to a new event file in `folder` (a resumed run adds a file; TensorBoard joins it
// with the earlier ones). Tags are nanoGPT's: train/loss, val/loss, lr. mfu is left out: a run does
// not know the peak rate.
class TensorboardWriter {
 public:
  explicit TensorboardWriter(const Folder& folder);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  // Tells readers to drop later steps of earlier files.
  void start_after(int64_t step);
  // wall_time 0: now. Buffered. Throws with the path if the disk is full.
  void scalar(std::string_view tag, int64_t step, double value, double wall_time = 0);
  void flush();
  const std::string& path() const { return file_.path(); }

 private:
  void write(const std::string& event);
  File file_;
  std::string buffer_;
};

}  // namespace crest
