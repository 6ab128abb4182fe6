#include "lab/judged.h"

#include <fmt/format.h>

#include "core/error.h"
#include "device/data_sheet.h"
#include "lab/result_json.h"

namespace crest::lab {

Json judged_document(Result& result, const Device& device) {
  Json rows = Json::array();
  for (auto& row : result.table.rows) rows.push_back(to_json(row));
  widen_times(result.table, result.noise_floor);
  judge(result, device);
  Json document = to_json(result);
  document["rows"] = rows;
  return document;
}

Json judged_result(const Result& result, const Json& document) {
  return {{"name", result.experiment->name},
          {"scale", result.scale},
          {"claims", document.at("claims")},
          {"cells_left", result.measurements_left}};
}

namespace {

Json recorded_document(const Store& store, const RunRecord& run) {
  try {
    return store.document(run.id, "lab");
  } catch (const Error&) {
    return Json::object();  // ended before its first measurement
  }
}

// A CPU's record has every property used in claims.
Device recorded_cpu(const Json& record) {
  Device device;
  device.name = text_at(record, "name");
  device.threads = record.value("threads", 1);
  device.native_bf16 = record.value("native_bf16", false);
  device.memory = record.value("memory_bytes", int64_t{0});
  return device;
}

Device recorded_device(const RunRecord& run, const Device& here) {
  std::string name = text_at(run.device, "name");
  if (name == here.name) return here;
  if (text_at(run.device, "kind") == "cpu") return recorded_cpu(run.device);
  const DataSheet* sheet = data_sheet_of(name);
  if (!sheet)
    fail(fmt::format("the measurements ran on '{}', which is not here and has no device file", name), "crest lab judge",
         "Judge them on that machine.");
  Device device = described_device(*sheet);
  device.name = name;
  return device;
}

}  // namespace

int64_t find_recorded(const Store& store, const Experiment& experiment, const std::string& scale) {
  RunFilter filter;
  filter.kind = "experiment";
  for (auto& run : store.list(filter)) {
    Json document = recorded_document(store, run);
    bool measurements = document.contains("rows") && !document["rows"].empty();
    if ((measurements || experiment.kind == Kind::arithmetic) && text_at(document, "name") == experiment.name &&
        text_at(document, "scale") == scale)
      return run.id;
  }
  return 0;
}

Result judge_again(Store& store, int64_t id, const Experiment& experiment, const Device& here) {
  RunRecord run = store.head(id);
  Json document = recorded_document(store, run);
  Result result;
  result.experiment = &experiment;
  result.scale = text_at(document, "scale"), result.device = text_at(document, "device");
  // Older records of collectives name the CPU of Gloo's ranks.
  std::string measured_on = text_at(run.device, "name");
  if (experiment.kind == Kind::comm && !measured_on.empty()) result.device = measured_on;
  for (auto& row : document.value("rows", Json::array())) result.table.rows.push_back(row_from_json(row));
  result.noise_floor = document.value("noise_floor", 0.0);
  result.floor_source = document.value("noise_floor_source", "");
  result.measurements_left = document.value("cells_left", size_t{0});
  document = judged_document(result, recorded_device(run, here));
  store.set_document(id, "lab", document);
  run.result = judged_result(result, document);
  store.finish(id, run);
  return result;
}

}  // namespace crest::lab
