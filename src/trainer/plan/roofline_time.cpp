#include "plan/roofline_time.h"

#include <algorithm>

#include "device/data_sheet.h"
#include "program/op.h"

namespace crest {

namespace {

// Matrix units multiply in the type of their operands. Everything else computes in fp32.
const char* arithmetic_of(const Program& p, const Instr& i) {
  const bool matrix = i.op->op_class == OpClass::contraction || i.op->op_class == OpClass::attention;
  if (!matrix || i.in.empty()) return "fp32";
  if (i.attrs.integer("tf32", 0)) return "tf32";
  const DType t = p.at(i.in[0]).dtype;
  if (is_fp8(t)) return "fp8";
  return t == DType::bf16 ? "bf16" : t == DType::f16 ? "fp16" : "fp32";
}

}  // namespace

AssumedRates assumed_rates(const Device& device) {
  return device.kind == "cuda" ? AssumedRates{600e12, 3e12} : AssumedRates{1e12, 20e9};
}

RooflineTimes roofline_of(const Device& device) {
  const DataSheet* sheet = device.kind == "cuda" ? data_sheet_of(device.name) : nullptr;
  const AssumedRates assumed = assumed_rates(device);
  const double bytes = sheet && sheet->bandwidth > 0 ? sheet->bandwidth : assumed.bytes;
  auto seconds = [=](const Program& p, const Instr& i) {
    if (i.op->crosses_memories()) return 0.0;
    const Cost cost = i.op->cost(p, i);
    double flops = assumed.flops;
    if (sheet) flops = sheet->peak(arithmetic_of(p, i)).value_or(sheet->peak("fp32").value_or(flops));
    return std::max(cost.flops / flops, cost.bytes() / bytes);
  };
  const double link = device.kind == "cpu" ? bytes / 2 : sheet ? sheet->host_link_one_way() : usual_host_link;
  return {seconds, link};
}

}  // namespace crest
