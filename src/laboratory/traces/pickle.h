// Writes Python's pickle format (protocol 4) with only the opcodes of small unpicklers: lists,
// dicts, text, numbers, and references to earlier values.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace crest {

class PickleWriter {
 public:
  PickleWriter();

  void begin_dict();
  void key(std::string_view name);  // followed by one value
  void end_dict();
  void begin_list();
  void end_list();
  void text(std::string_view value);  // UTF-8; equal texts are stored once
  void integer(int64_t value);
  void number(double value);
  void boolean(bool value);
  void none();

  // Numbers the value just written. recall(number) writes a reference to it.
  uint32_t remember();
  void recall(uint32_t number);

  // Returns the pickle, and ends writing.
  std::string finish();

 private:
  struct Level {
    bool dict;
    size_t values = 0;  // since the last mark: keys and values of a dict
  };

  void before_value();
  void close();
  void put_text(std::string_view value);

  std::string out_;
  std::vector<Level> open_;
  std::unordered_map<std::string, uint32_t> texts_;
  uint32_t remembered_ = 0;
};

}  // namespace crest
