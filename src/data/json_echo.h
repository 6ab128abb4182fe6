// Writes a part of a JSON document again while SAX events of it pass by.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace crest {

class JsonEcho {
 public:
  // The next value, an object or a list, goes to `out`, which must live as long.
  void start(std::string& out) { out_ = &out, out.clear(), depth_ = 0, first_ = true; }
  bool active() const { return out_ != nullptr; }
  void value(std::string_view text) {
    separate();
    *out_ += text;
  }
  void string(const std::string& text) { value(nlohmann::json(text).dump()); }
  void key(const std::string& name) {
    string(name);
    *out_ += ": ";
    first_ = true;
  }
  void open(char bracket) {
    separate();
    *out_ += bracket;
    first_ = true;
    ++depth_;
  }
  void close(char bracket) {
    *out_ += bracket;
    first_ = false;
    if (--depth_ == 0) out_ = nullptr;
  }

 private:
  void separate() {
    if (!first_) *out_ += ", ";
    first_ = false;
  }
  std::string* out_ = nullptr;
  int depth_ = 0;
  bool first_ = true;
};

}  // namespace crest
