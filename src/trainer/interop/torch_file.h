// Files as torch.save writes them: a zip archive without compression, of a pickle (protocol 2) and
// of the bytes of every tensor. torch.load reads them with weights_only=True.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/io.h"

namespace crest {

// A pickle of Python's basic types and of tensors.
class TorchPickle {
 public:
  TorchPickle();
  // Between them, keys and values (dict) or elements (list, tuple).
  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  void text(std::string_view value);
  void integer(int64_t value);
  void number(double value);
  void boolean(bool value);
  void none();
  // An fp32 tensor with elements in storage `number` of the file, row-major.
  void tensor(int64_t number, const std::vector<int64_t>& shape);
  std::string finish();

 private:
  void global(std::string_view name);  // "module\nname\n"
  std::string out_;
};

// The archive. Entries are written one after another; the folder of all is NAME/.
class TorchFile {
 public:
  TorchFile(const std::string& path, std::string name);
  void add(const std::string& entry, std::string_view bytes);
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t offset, bytes;
    uint32_t crc;
  };
  void write(std::string_view bytes);
  File file_;
  std::string name_;
  uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace crest
