// PyTorch profiler traces: a recorded one of a CPU, a made-up one with the fields of a GPU's, and
// broken ones.
#include "traces/torch_trace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <map>

#include "core/error.h"
#include "core/io.h"
#include "core/random.h"
#include "traces/chrome_trace.h"
#include "traces/torch_events.h"

using namespace crest;

namespace {

std::string fixture(const std::string& name) { return std::string(CREST_TEST_DIR) + "/traces/fixtures/" + name; }

std::string write(const std::string& text) {
  std::string path = testing::TempDir() + "crest_torch_trace.json";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TorchTrace read(const std::string& events) { return read_torch_trace(write("{\"traceEvents\": [" + events + "]}")); }

void expect_error(const std::string& text, const std::string& part) {
  try {
    read_torch_trace(write(text));
    ADD_FAILURE() << "read: " << text.substr(0, 100);
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

std::map<std::string, double> rows(const Profile& p) {
  std::map<std::string, double> out;
  for (auto& i : p.instrs) out[i.op_class + " " + i.phase] = i.ms;
  return out;
}

std::string op(const char* name, double ts, double dur, const char* cat = "cpu_op", int id = 0, int tid = 1) {
  return "{\"ph\":\"X\",\"cat\":\"" + std::string(cat) + "\",\"name\":\"" + name +
         "\",\"pid\":1,\"tid\":" + std::to_string(tid) + ",\"ts\":" + std::to_string(ts) +
         ",\"dur\":" + std::to_string(dur) + ",\"args\":{\"correlation\":" + std::to_string(id) +
         ",\"External id\":" + std::to_string(id) + "}}";
}

}  // namespace

// The sums of the table in tests/tools/make_torch_trace.py.
TEST(TorchTrace, GpuStepsAddUpByHand) {
  TorchTrace t = read_torch_trace(fixture("torch_gpu.json"));
  EXPECT_TRUE(t.gpu);
  EXPECT_EQ(t.device, "NVIDIA H200");
  ASSERT_EQ(t.steps.size(), 2u) << "the last of three has no end";
  for (auto& s : t.steps) {
    EXPECT_EQ(s.work.size(), 14u);
    EXPECT_NEAR(s.span_ms, 1.0, 1e-9) << "until the next step's first work";
    // 522 us of work; the all-reduce runs beside the 2 us of the memset and the last 5 us of the
    // kernel before.
    EXPECT_NEAR(s.busy_ms, 0.515, 1e-9) << s.name;
    EXPECT_NEAR(s.busy_ms + s.idle_ms, s.span_ms, 1e-9);
  }
  EXPECT_EQ(t.outside_ms, 0);
}

TEST(TorchTrace, GpuClassesAndPhases) {
  auto found = rows(profile_of(read_torch_trace(fixture("torch_gpu.json"))));
  std::map<std::string, double> want = {
      {"embedding forward", 0.010},    {"normalization forward", 0.020}, {"contraction forward", 0.100},
      {"attention forward", 0.060},    {"elementwise forward", 0.030},   {"loss forward", 0.025},
      {"movement forward", 0.005},     {"contraction backward", 0.125},  {"normalization backward", 0.022},
      {"elementwise backward", 0.033}, {"movement backward", 0.002},     {"communication backward", 0.040},
      {"optimizer update", 0.050}};
  ASSERT_EQ(found.size(), want.size());
  for (auto& [row, ms] : want) EXPECT_NEAR(found[row], ms, 1e-9) << row;
}

TEST(TorchTrace, CpuTraceOfPyTorchItself) {
  TorchTrace t = read_torch_trace(fixture("torch_cpu.json"));
  EXPECT_FALSE(t.gpu);
  ASSERT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.steps[0].name, "ProfilerStep#2");
  Profile p = profile_of(t);
  auto found = rows(p);
  for (const char* row : {"contraction forward", "contraction backward", "attention forward", "attention backward",
                          "normalization forward", "normalization backward", "loss forward", "loss backward",
                          "embedding forward", "embedding backward", "elementwise forward", "optimizer update"})
    EXPECT_GT(found[row], 0) << row;
  for (auto& [row, ms] : found) EXPECT_TRUE(!row.ends_with(" update") || row == "optimizer update") << row;
  // One thread: own times are a partition of the busy time.
  double sum = 0, largest = 0;
  for (auto& w : t.steps[0].work) sum += w.ms;
  EXPECT_NEAR(sum, t.steps[0].busy_ms, 1e-6);
  EXPECT_LT(t.steps[0].busy_ms, t.steps[0].span_ms);
  for (auto& k : p.kernels)
    if (k.name == "aten::addmm") {
      largest = k.ms;
      EXPECT_EQ(k.count, 4) << "four linear layers";
    }
  EXPECT_GT(largest, 0);
}

// Times in another unit are as many times longer, and the order of a file means nothing.
TEST(TorchTrace, ScaledAndShuffledTracesSayTheSame) {
  for (const char* file : {"torch_gpu.json", "torch_cpu.json"}) {
    SCOPED_TRACE(file);
    std::ifstream in(fixture(file));
    const Json original = Json::parse(in);
    const Profile p = profile_of(read_torch_trace(fixture(file)));
    Json scaled = original, shuffled = original;
    for (auto& e : scaled["traceEvents"])
      for (const char* key : {"ts", "dur"})
        if (e.contains(key)) e[key] = 4 * e[key].get<double>();
    auto& events = shuffled["traceEvents"];
    for (size_t i = events.size() - 1; i > 0; --i) std::swap(events[i], events[random_bits(1, 0, i) % (i + 1)]);
    const Profile longer = profile_of(read_torch_trace(write(scaled.dump())));
    const Profile other = profile_of(read_torch_trace(write(shuffled.dump())));
    ASSERT_EQ(longer.instrs.size(), p.instrs.size());
    for (size_t i = 0; i < p.instrs.size(); ++i)
      EXPECT_NEAR(longer.instrs[i].ms, 4 * p.instrs[i].ms, 1e-6 * p.span_ms) << p.instrs[i].op_class;
    EXPECT_NEAR(longer.busy_ms, 4 * p.busy_ms, 1e-6 * p.span_ms);
    EXPECT_NEAR(longer.idle_ms, 4 * p.idle_ms, 1e-6 * p.span_ms);
    EXPECT_EQ(longer.launches, p.launches);
    EXPECT_EQ(rows(other), rows(p));
    EXPECT_EQ(other.step_ms, p.step_ms);
    EXPECT_EQ(other.launches, p.launches);
  }
}

TEST(TorchTrace, ProfileHasKernelsBeneathClasses) {
  Profile p = profile_of(read_torch_trace(fixture("torch_gpu.json")));
  EXPECT_TRUE(p.recipe.is_null());
  EXPECT_EQ(p.launches, 14);
  EXPECT_EQ(p.intervals.size(), 14u);
  EXPECT_EQ(p.step_ms.size(), 2u);
  double busy = 0;
  for (auto& i : p.intervals) {
    EXPECT_EQ(p.kernels[size_t(i.kernel)].instr, i.instr);
    EXPECT_GE(i.start_ms, 0);
    busy += i.ms;
  }
  EXPECT_NEAR(busy, 0.522, 1e-9);
  EXPECT_NE(chrome_trace(p).find("nvjet"), std::string::npos) << "and it can be written again";
}

TEST(TorchTrace, OwnTimeIsWhatCalledOperationsLeave) {
  TorchTrace t = read(op("aten::linear", 100, 100) + "," + op("aten::addmm", 120, 50) + "," +
                      op("aten::copy_", 130, 10) + "," + op("aten::gelu", 300, 20));
  ASSERT_EQ(t.steps.size(), 1u);
  EXPECT_EQ(t.steps[0].name, "whole trace");
  std::map<std::string, double> ms;
  for (auto& w : t.steps[0].work) ms[t.names[size_t(w.name)]] += w.ms;
  EXPECT_NEAR(ms["aten::linear"], 0.050, 1e-9);
  EXPECT_NEAR(ms["aten::addmm"], 0.040, 1e-9);
  EXPECT_NEAR(ms["aten::copy_"], 0.010, 1e-9);
  EXPECT_NEAR(t.steps[0].busy_ms, 0.120, 1e-9);
  EXPECT_NEAR(t.steps[0].span_ms, 0.220, 1e-9);
  EXPECT_EQ(t.steps[0].work[0].phase, "unknown") << "nobody says what is forward";
  Profile p = profile_of(t);
  for (auto& k : p.kernels)
    if (k.name == "aten::addmm") {
      EXPECT_EQ(k.count, 1);
      EXPECT_NEAR(k.max_ms, 0.040, 1e-9) << "two stretches of one call";
    }
}

TEST(TorchTrace, AKernelIsOfTheStepThatLaunchedIt) {
  TorchTrace t =
      read(op("ProfilerStep#1", 0, 100, "user_annotation") + "," + op("ProfilerStep#2", 100, 100, "user_annotation") +
           "," + op("cudaLaunchKernel", 50, 5, "cuda_runtime", 7) + "," + op("late", 150, 10, "kernel", 7) + "," +
           op("no launch", 160, 10, "kernel", 99) + "," + op("ProfilerStep#3", 200, 100, "user_annotation") + "," +
           op("last", 220, 10, "kernel", 97) + "," + op("after all", 350, 10, "kernel", 98));
  ASSERT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.names[size_t(t.steps[0].work[0].name)], "late");
  EXPECT_EQ(t.names[size_t(t.steps[1].work[0].name)], "no launch");
  EXPECT_NEAR(t.steps[1].span_ms, 0.060, 1e-9) << "until the work of the last step, which is left out";
  EXPECT_NEAR(t.outside_ms, 0.010, 1e-9);
}

// The device is behind the host: work left over when
// recording begins belongs to no recorded step.
TEST(TorchTrace, WorkFromBeforeTheRecordingIsOutside) {
  TorchTrace t =
      read(op("ProfilerStep#3", 0, 100, "user_annotation") + "," + op("ProfilerStep#4", 100, 100, "user_annotation") +
           "," + op("of step 2", 5, 80, "kernel", 98) + "," + op("of step 2", 90, 10, "kernel", 99) + "," +
           op("cudaLaunchKernel", 10, 5, "cuda_runtime", 7) + "," + op("of step 3", 105, 70, "kernel", 7) + "," +
           op("cudaLaunchKernel", 110, 5, "cuda_runtime", 8) + "," + op("of step 4", 180, 90, "kernel", 8));
  ASSERT_EQ(t.steps.size(), 1u) << "the last one is left out";
  ASSERT_EQ(t.steps[0].work.size(), 1u);
  EXPECT_EQ(t.names[size_t(t.steps[0].work[0].name)], "of step 3");
  EXPECT_NEAR(t.steps[0].span_ms, 0.075, 1e-9);
  EXPECT_NEAR(t.outside_ms, 0.090, 1e-9);
}

// A generic kernel belongs to the operation behind its launch. A named kernel is classified by its
// name.
TEST(TorchTrace, TheLauncherNamesAGenericKernel) {
  TorchTrace t = read(op("aten::nll_loss_backward", 0, 10) + "," + op("cudaLaunchKernel", 5, 1, "cuda_runtime", 1) +
                      "," + op("vectorized_elementwise_kernel<4>", 20, 5, "kernel", 1) + "," +
                      op("aten::nll_loss_backward", 30, 10) + "," + op("cudaLaunchKernel", 35, 1, "cuda_runtime", 2) +
                      "," + op("ampere_sgemm_128x64", 40, 5, "kernel", 2));
  EXPECT_EQ(t.steps[0].work[0].op_class, "loss");
  EXPECT_EQ(t.steps[0].work[1].op_class, "contraction");
}

TEST(TorchTrace, ClassesOfKernels) {
  auto is = [](const char* kernel) {
    auto c = class_of_kernel(kernel);
    return c ? std::string(name(c->op_class)) : "none";
  };
  EXPECT_EQ(is("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(...)"), "attention");
  EXPECT_EQ(is("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64"), "attention");
  EXPECT_EQ(is("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64>"), "contraction");
  EXPECT_EQ(is("triton_tem_fused_mm_2"), "contraction");
  EXPECT_EQ(is("triton_poi_fused_addmm_gelu_1"), "elementwise");
  EXPECT_EQ(is("triton_red_fused_sum_4"), "reduction");
  EXPECT_EQ(is("triton_red_fused__log_softmax_nll_loss_forward_9"), "loss");
  EXPECT_EQ(is("triton_per_fused_add_embedding_native_layer_norm_0"), "normalization");
  EXPECT_EQ(is("void at::native::reduce_kernel<512, 1>"), "reduction");
  EXPECT_EQ(is("my_kernel"), "none");
}

TEST(TorchTrace, AListOfEventsIsATraceToo) {
  TorchTrace t = read_torch_trace(write("[" + op("aten::mm", 1, 2) + "]"));
  EXPECT_EQ(t.steps[0].work.size(), 1u);
}

TEST(TorchTrace, WhatIsNotATraceIsRefused) {
  expect_error("", "truncated");
  expect_error("{\"traceEvents\": [", "truncated");
  expect_error("not json", "not valid JSON");
  expect_error("{\"a\": 1}", "traceEvents");
  expect_error("{\"traceEvents\": 3}", "traceEvents");
  expect_error("{\"traceEvents\": []}", "no kernels and no operations");
  expect_error("{\"traceEvents\": [1, \"x\", [[]]]}", "no kernels and no operations");
  expect_error("{\"traceEvents\": [{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\"}]}", "no usable ts");
  expect_error("{\"traceEvents\": [{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":\"1\",\"dur\":1}]}",
               "no usable ts");
  expect_error("{\"traceEvents\": [{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1e300,\"dur\":1}]}",
               "no usable ts");
  expect_error("{\"a\": 1e999}", "out of range");
  expect_error(std::string(1000, '['), "nested deeper");
  expect_error("\x1f\x8b\x08", "truncated");
  expect_error(
      "{\"traceEvents\": [" + op("ProfilerStep#1", 0, 10, "user_annotation") + "," + op("k", 50, 1, "kernel") + "]}",
      "inside a step");
  EXPECT_THROW(read_torch_trace("/no/such/trace.json"), Error);
  EXPECT_THROW(read_torch_trace("/"), Error);
}

static std::string packed(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, uLong(text.size())), '\0'), in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data()), stream.avail_in = uInt(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data()), stream.avail_out = uInt(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(TorchTrace, PackedTracesAreTheSame) {
  std::string text = read_file(fixture("torch_gpu.json"), 1 << 30);
  Profile plain = profile_of(read_torch_trace(fixture("torch_gpu.json")));
  std::string half = text.substr(0, text.size() / 2), rest = text.substr(half.size());
  for (const std::string& file : {packed(text), packed(half) + packed(rest)}) {
    Profile p = profile_of(read_torch_trace(write(file)));
    EXPECT_EQ(rows(p), rows(plain));
    EXPECT_EQ(p.step_ms, plain.step_ms);
  }
  std::string whole = packed(text);
  for (size_t size : {size_t(2), size_t(9), size_t(12), whole.size() / 2, whole.size() - 1})
    expect_error(whole.substr(0, size), "truncated");
  std::string damaged = whole;
  damaged[damaged.size() - 5] = char(damaged[damaged.size() - 5] ^ 1);  // of the checksum
  expect_error(damaged, "it is damaged");
  expect_error("\x1f\x8b not packed", "it is damaged");
  expect_error(whole + "more", "it is damaged");
}

TEST(TorchTrace, DamagedRangesAreCut) {
  // The second one ends behind the first one although it starts within; times stay a partition.
  TorchTrace t = read(op("aten::mm", 0, 10) + "," + op("aten::add", 5, 100) + "," + op("aten::gelu", 8, -5));
  double sum = 0;
  for (auto& w : t.steps[0].work) sum += w.ms;
  EXPECT_NEAR(sum, 0.010, 1e-9);
  EXPECT_NEAR(t.steps[0].busy_ms, 0.010, 1e-9);
}
