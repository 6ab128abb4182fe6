// An unpickler with the opcodes of the memory viewer
// (MemoryViz.js of PyTorch) and nothing else.
#pragma once
#include <bit>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace crest::test {

class Unpickler {
 public:
  explicit Unpickler(const std::string& bytes) : bytes_(bytes) {}

  nlohmann::json run() {
    for (;;) {
      int op = int(unsigned_(1));
      if (op == '.') {
        if (at_ != bytes_.size() || stack_.size() != 1 || !marks_.empty()) throw std::runtime_error("left over");
        return stack_[0];
      }
      step(op);
    }
  }

 private:
  using Json = nlohmann::json;

  uint64_t unsigned_(int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; ++i) v |= uint64_t(uint8_t(bytes_.at(at_++))) << (8 * i);
    return v;
  }

  std::string take(size_t n) {
    std::string s = bytes_.substr(at_, n);
    if (s.size() != n) throw std::runtime_error("text ends early");
    at_ += n;
    return s;
  }

  size_t mark() {
    size_t m = marks_.back();
    marks_.pop_back();
    return m;
  }

  void step(int op) {
    switch (op) {
      case 0x80:
        if (uint64_t v = unsigned_(1); v < 2 || v > 4) throw std::runtime_error("protocol");
        break;
      case 0x95: unsigned_(8); break;                            // FRAME
      case '}': stack_.push_back(Json::object()); break;         // EMPTY_DICT
      case ']': stack_.push_back(Json::array()); break;          // EMPTY_LIST
      case '(': marks_.push_back(stack_.size()); break;          // MARK
      case 'e': appends(); break;                                // APPENDS
      case 'u': setitems(); break;                               // SETITEMS
      case 'K': stack_.push_back(unsigned_(1)); break;           // BININT1
      case 'M': stack_.push_back(unsigned_(2)); break;           // BININT2
      case 'J': stack_.push_back(int32_t(unsigned_(4))); break;  // BININT
      case 0x8a: {                                               // LONG1
        int n = int(unsigned_(1));
        if (n != 8) throw std::runtime_error("LONG1 of other than 8 bytes");
        stack_.push_back(int64_t(unsigned_(8)));
        break;
      }
      case 'G': {  // BINFLOAT, big endian
        uint64_t v = 0;
        for (int i = 0; i < 8; ++i) v = v << 8 | unsigned_(1);
        stack_.push_back(std::bit_cast<double>(v));
        break;
      }
      case 0x8c: stack_.push_back(take(unsigned_(1))); break;     // SHORT_BINUNICODE
      case 'X': stack_.push_back(take(unsigned_(4))); break;      // BINUNICODE
      case 0x88: stack_.push_back(true); break;                   // NEWTRUE
      case 0x89: stack_.push_back(false); break;                  // NEWFALSE
      case 'N': stack_.push_back(nullptr); break;                 // NONE
      case 0x94: memo_.push_back(stack_.back()); break;           // MEMOIZE
      case 'h': stack_.push_back(memo_.at(unsigned_(1))); break;  // BINGET
      case 'j': stack_.push_back(memo_.at(unsigned_(4))); break;  // LONG_BINGET
      default: throw std::runtime_error("opcode " + std::to_string(op) + " is none of the viewer's");
    }
  }

  void appends() {
    size_t m = mark();
    if (stack_.size() - m > 10'000) throw std::runtime_error("too many values at once");
    for (size_t i = m; i < stack_.size(); ++i) stack_[m - 1].push_back(std::move(stack_[i]));
    stack_.resize(m);
  }

  void setitems() {
    size_t m = mark();
    for (size_t i = m; i + 1 < stack_.size(); i += 2) {
      if (stack_[m - 1].contains(stack_[i].get<std::string>())) throw std::runtime_error("key twice");
      stack_[m - 1][stack_[i].get<std::string>()] = std::move(stack_[i + 1]);
    }
    stack_.resize(m);
  }

  const std::string& bytes_;
  size_t at_ = 0;
  std::vector<Json> stack_, memo_;
  std::vector<size_t> marks_;
};

inline nlohmann::json unpickle(const std::string& bytes) { return Unpickler(bytes).run(); }

}  // namespace crest::test
