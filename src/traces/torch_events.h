// What a PyTorch profiler's trace file says: the events that matter here, in compact form, and the operation class
// (program/op.h) that a kernel's or an operation's name tells.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "program/op.h"

namespace crest {

// Numbers for texts that come again and again.
class TextTable {
 public:
  int number(const std::string& text);
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> texts_;
};

// Times are in microseconds, as in the file.
struct TorchHostRange {  // an operation, or an annotation around some
  int name = 0, thread = 0;
  bool operation = true;
  int64_t external_id = -1;
  double start = 0, end = 0;
};

struct TorchLaunch {  // a call of the CUDA runtime or driver
  int thread = 0;
  int64_t correlation = -1;
  double start = 0;
};

struct TorchDeviceWork {
  int name = 0, stream = 0;
  bool copy = false;  // or memset
  int64_t correlation = -1, external_id = -1;
  double start = 0, end = 0;
};

struct TorchEvents {
  std::string device;
  TextTable names, threads;
  std::vector<TorchHostRange> host;
  std::vector<TorchLaunch> launches;
  std::vector<TorchDeviceWork> work;
  int64_t events = 0;
};

TorchEvents read_torch_events(const std::string& path);

struct KernelClass {
  OpClass op_class;
  bool
      generic;  // an element-wise, reducing or copying kernel: what it serves is said by the operation that launched it
};

// By the name of a device kernel: of PyTorch, cuBLAS, cuDNN, NCCL, or made by Inductor.
std::optional<KernelClass> class_of_kernel(const std::string& name);
// By the name of an operation or annotation; nothing for those that only pass on (views, autograd's nodes).
std::optional<OpClass> class_of_operation(const std::string& name);

}  // namespace crest
