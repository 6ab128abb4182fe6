#include "traces/torch_events.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <istream>
#include <memory>
#include <nlohmann/json.hpp>
#include <streambuf>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "traces/gzip.h"

namespace crest {

namespace {

constexpr uint64_t max_file = uint64_t(8) << 30;
constexpr size_t max_kept = 20'000'000;
constexpr size_t max_names = 1'000'000;
constexpr size_t max_name = 2000;  // characters; demangled templates are long
constexpr int max_depth = 200;
constexpr double max_time = 1e16;  // microseconds: 300 years

// A file as a stream, read in chunks.
class FileBuffer : public std::streambuf {
 public:
  explicit FileBuffer(File& file) : file_(file) {}

 protected:
  int_type underflow() override {
    size_t n = file_.read_some(data_.data(), data_.size());
    setg(data_.data(), data_.data(), data_.data() + n);
    return n == 0 ? traits_type::eof() : traits_type::to_int_type(data_[0]);
  }

 private:
  File& file_;
  std::array<char, 1 << 16> data_;
};

// The fields of an event while reading it.
struct Event {
  std::string name, category, phase, process, thread;
  double ts = NAN, dur = NAN;
  int64_t correlation = -1, external_id = -1, stream = -1;
};

class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(TorchEvents& out, const std::string& path) : out_(out), where_(printable(path)) {}

  bool found() const { return found_; }

  bool null() override { return scalar(nullptr, NAN); }
  bool boolean(bool) override { return scalar(nullptr, NAN); }
  bool number_integer(number_integer_t v) override { return scalar(nullptr, double(v)); }
  bool number_unsigned(number_unsigned_t v) override { return scalar(nullptr, double(v)); }
  bool number_float(number_float_t v, const string_t&) override { return scalar(nullptr, v); }
  bool string(string_t& v) override { return scalar(&v, NAN); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override {
    open();
    if (section_ == Section::events && depth_ == level_ + 1) event_ = Event();
    return true;
  }

  bool end_object() override {
    if (section_ == Section::events && depth_ == level_ + 1) finish();
    close();
    return true;
  }

  bool start_array(size_t) override {
    // The list of events is under "traceEvents", or is the whole file.
    if (section_ == Section::none && (depth_ == 0 || (depth_ == 1 && key_ == "traceEvents"))) {
      section_ = Section::events, level_ = depth_ + 1, found_ = true;
    } else if (section_ == Section::none && depth_ == 1 && key_ == "deviceProperties") {
      section_ = Section::devices, level_ = depth_ + 1;
    }
    open();
    return true;
  }

  bool end_array() override {
    if (section_ != Section::none && depth_ == level_) section_ = Section::none;
    close();
    return true;
  }

  bool key(string_t& k) override {
    key_ = k;
    if (section_ == Section::events && depth_ == level_ + 1) in_args_ = k == "args";
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& e) override {
    bool range = std::string_view(e.what()).find("out_of_range") != std::string_view::npos;
    fail(range ? "a number is out of range" : "not valid JSON, or truncated", fmt::format("{} (byte {})", where_, byte),
         "Export the trace again.");
  }

 private:
  enum class Section { none, events, devices };

  void open() {
    if (++depth_ > max_depth) fail(fmt::format("JSON is nested deeper than {} levels", max_depth), where_);
  }
  void close() { --depth_; }

  bool scalar(const std::string* text, double number) {
    if (section_ == Section::events && depth_ == level_ + 1)
      field(text, number);
    else if (section_ == Section::events && depth_ == level_ + 2 && in_args_)
      argument(text, number);
    else if (section_ == Section::devices && depth_ == level_ + 1 && key_ == "name" && text && out_.device.empty())
      out_.device = text->substr(0, max_name);
    return true;
  }

  // Process and thread are numbers or strings.
  static std::string id(const std::string* text, double number) {
    return text ? text->substr(0, 100) : fmt::format("{:.0f}", number);
  }

  void field(const std::string* text, double number) {
    if (key_ == "ts") event_.ts = number;
    if (key_ == "dur") event_.dur = number;
    if (key_ == "pid") event_.process = id(text, number);
    if (key_ == "tid") event_.thread = id(text, number);
    if (!text) return;
    if (key_ == "name") event_.name = text->substr(0, max_name);
    if (key_ == "cat") event_.category = *text;
    if (key_ == "ph") event_.phase = *text;
  }

  void argument(const std::string* text, double number) {
    if (text || !(std::abs(number) < 9e15)) return;
    if (key_ == "correlation") event_.correlation = int64_t(number);
    if (key_ == "External id" || key_ == "external id") event_.external_id = int64_t(number);
    if (key_ == "stream") event_.stream = int64_t(number);
  }

  int name() {
    int n = out_.names.number(event_.name);
    if (out_.names.texts().size() > max_names) fail("more than a million different names in one trace", where_);
    return n;
  }

  int thread() { return out_.threads.number(event_.process + "/" + event_.thread); }

  void finish() {
    ++out_.events;
    in_args_ = false;
    const std::string& cat = event_.category;
    if (event_.phase != "X") return;
    bool operation = cat == "cpu_op" || cat == "Operator", copy = cat == "gpu_memcpy" || cat == "gpu_memset";
    bool runtime = cat == "cuda_runtime" || cat == "cuda_driver" || cat == "Runtime";
    if (!operation && !copy && !runtime && cat != "user_annotation" && cat != "kernel" && cat != "Kernel") return;
    if (!(std::abs(event_.ts) < max_time) || !(std::abs(event_.dur) < max_time))
      fail(fmt::format("event {} ('{}') has no usable ts and dur", out_.events, printable(event_.name, 60)), where_,
           "Both must be microseconds, as numbers.");
    keep(operation, copy, runtime);
    if (out_.host.size() + out_.launches.size() + out_.work.size() > max_kept)
      fail(fmt::format("more than {} operations and kernels in one trace", max_kept), where_,
           "Record fewer steps: torch.profiler.schedule(wait=1, warmup=1, active=3).");
  }

  void keep(bool operation, bool copy, bool runtime) {
    double start = event_.ts, end = start + std::max(0.0, event_.dur);
    if (runtime) {
      if (event_.correlation >= 0) out_.launches.push_back({thread(), event_.correlation, start});
    } else if (operation || event_.category == "user_annotation") {
      out_.host.push_back({name(), thread(), operation, event_.external_id, start, end});
    } else {
      auto stream = int(std::min<int64_t>(std::max<int64_t>(event_.stream, 0), INT32_MAX));
      out_.work.push_back({name(), stream, copy, event_.correlation, event_.external_id, start, end});
    }
  }

  TorchEvents& out_;
  std::string where_, key_;
  Section section_ = Section::none;
  int depth_ = 0, level_ = 0;
  bool in_args_ = false, found_ = false;
  Event event_;
};

}  // namespace

int TextTable::number(const std::string& text) {
  auto [at, is_new] = numbers_.try_emplace(text, int(texts_.size()));
  if (is_new) texts_.push_back(text);
  return at->second;
}

TorchEvents read_torch_events(const std::string& path) {
  File file = File::open_read(path);
  std::string where = printable(path);
  if (file.size() > max_file) fail("a trace larger than 8 GiB", where, "Record fewer steps, or without stacks.");
  TorchEvents out;
  Handler handler(out, path);
  std::unique_ptr<std::streambuf> buffer;
  if (is_gzip(file))
    buffer = std::make_unique<GzipBuffer>(file, max_file);
  else
    buffer = std::make_unique<FileBuffer>(file);
  std::istream stream(buffer.get());
  stream.exceptions(std::ios::badbit);  // read errors propagate
  nlohmann::json::sax_parse(stream, &handler);
  if (!handler.found())
    fail("this is JSON but not a trace: the list \"traceEvents\" is missing", where,
         "Name a file that prof.export_chrome_trace wrote.");
  return out;
}

namespace {

struct Row {
  OpClass op_class;
  std::vector<std::string_view> parts;  // any of these, in lower case
};

std::string lower(const std::string& text) {
  std::string out;
  for (char c : text) out += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

bool contains_any(std::string_view name, const std::vector<std::string_view>& parts) {
  for (auto part : parts)
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

const Row* find(const std::vector<Row>& rows, std::string_view name) {
  for (auto& row : rows)
    if (contains_any(name, row.parts)) return &row;
  return nullptr;
}

// Parts of the names of operations and generated kernels. The first match wins. Losses come before
// normalizations, since they contain a log-softmax.
const std::vector<Row> topics = {
    {OpClass::communication, {"nccl", "c10d::", "gloo:", "all_reduce", "allreduce", "all_gather", "reduce_scatter"}},
    {OpClass::optimizer, {"adam", "multi_tensor_apply", "foreach", "optimizer.step", "optimizer.zero_grad"}},
    {OpClass::attention, {"flash", "fmha", "sdpa", "scaled_dot_product", "attention"}},
    {OpClass::loss, {"nll_loss", "cross_entropy", "log_softmax", "logsoftmax"}},
    {OpClass::normalization,
     {"layer_norm", "layernorm", "rms_norm", "rmsnorm", "gammabeta", "group_norm", "batch_norm", "softmax"}},
    {OpClass::embedding, {"embedding"}},
};

// Library kernels. Names of attention kernels also contain cutlass and cuBLAS, but match earlier
// rows.
const std::vector<Row> libraries = {
    {OpClass::contraction,
     {"gemm", "gemv", "cutlass", "nvjet", "cublas", "xmma", "splitk", "triton_mm", "dot_kernel", "convolve"}},
    {OpClass::embedding, {"indexselect"}},
};

const std::vector<Row> generic_kernels = {
    {OpClass::elementwise, {"float16_copy", "gelu", "silu", "dropout"}},  // a cast is element-wise here
    {OpClass::movement, {"memcpy", "memset", "copy", "catarray", "transpose", "fillfunctor"}},
    {OpClass::reduction, {"reduce"}},
    {OpClass::elementwise, {"elementwise", "pointwise"}},
};

// Full names of operations, without aten:: and trailing underscores.
const std::vector<Row> operations = {
    {OpClass::contraction,
     {"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "addmv", "mv", "dot", "einsum", "_scaled_mm",
      "linear_backward", "convolution", "convolution_backward"}},
    {OpClass::reduction, {"sum", "mean", "max", "min", "amax", "norm", "linalg_vector_norm", "argmax", "cumsum"}},
    {OpClass::movement,
     {"copy", "cat", "contiguous", "clone", "fill", "zero", "zeros", "to", "_to_copy", "stack", "_local_scalar_dense",
      "item"}},
    {OpClass::elementwise,
     {"add",
      "sub",
      "mul",
      "div",
      "neg",
      "gelu",
      "gelu_backward",
      "silu",
      "silu_backward",
      "relu",
      "threshold_backward",
      "tanh",
      "tanh_backward",
      "sigmoid",
      "pow",
      "sqrt",
      "rsqrt",
      "exp",
      "log",
      "where",
      "masked_fill",
      "tril",
      "triu",
      "native_dropout",
      "native_dropout_backward",
      "dropout",
      "bernoulli",
      "addcmul",
      "addcdiv",
      "lerp"}},
};

}  // namespace

std::optional<KernelClass> class_of_kernel(const std::string& full_name) {
  std::string name = lower(full_name);
  bool generated = name.starts_with("triton_");
  if (auto* row = find(topics, name)) return KernelClass{row->op_class, false};
  if (generated) {  // triton_KIND_fused_OPERATIONS: a template, pointwise, or a persistent or looping reduction
    if (name.starts_with("triton_tem") || name.starts_with("triton_mm"))
      return KernelClass{OpClass::contraction, false};
    return KernelClass{name.starts_with("triton_poi") ? OpClass::elementwise : OpClass::reduction, false};
  }
  if (auto* row = find(libraries, name)) return KernelClass{row->op_class, false};
  if (auto* row = find(generic_kernels, name)) return KernelClass{row->op_class, true};
  return {};
}

std::optional<OpClass> class_of_operation(const std::string& full_name) {
  std::string name = lower(full_name);
  // Autograd nodes only call operations.
  if (name.starts_with("autograd::") || name.starts_with("torch::autograd")) return {};
  if (auto* row = find(topics, name)) return row->op_class;
  if (!name.starts_with("aten::")) return {};
  name.erase(0, 6);
  if (name.size() > 1 && name.back() == '_') name.pop_back();
  for (auto& row : operations)
    for (auto whole : row.parts)
      if (name == whole) return row.op_class;
  return {};
}

}  // namespace crest
