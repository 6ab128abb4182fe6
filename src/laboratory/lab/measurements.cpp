// The kinds of measurements, one row each.
#include <algorithm>

#include "lab/recipe_measurement.h"

namespace crest {

namespace {

template <class Measurement>
std::unique_ptr<LabMeasurement> make(const lab::Experiment& e, lab::MeasurementSpec spec, const Device& device,
                                     int64_t limit) {
  return std::make_unique<Measurement>(e, std::move(spec), device, limit);
}

MeasurementMaker* maker_of(lab::Kind kind) {
  switch (kind) {
    case lab::Kind::arithmetic: break;  // no measurements
    case lab::Kind::plan: return make<PlanMeasurement>;
    case lab::Kind::bench: return make<TimedMeasurement>;
    case lab::Kind::profile: return make<ProfileMeasurement>;
    case lab::Kind::gemm: return make_gemm_measurement;
    case lab::Kind::train: return make_train_measurement;
    case lab::Kind::comm: return make_comm_measurement;
  }
  return nullptr;
}

}  // namespace

LabMeasurements lab_measurements(const lab::Experiment& e, const std::string& scale, const Device& device,
                                 int64_t limit, const std::string& data) {
  LabMeasurements measurements;
  std::vector<lab::MeasurementSpec> specs = lab::measurements_of(e, scale, device.kind);
  MeasurementMaker* maker = maker_of(e.kind);
  bool runs = e.kind == lab::Kind::bench || e.kind == lab::Kind::profile;
  if (runs && std::any_of(specs.begin(), specs.end(), wants_processes)) maker = make_process_measurement;
  for (auto& spec : specs) {
    if (lab::info(e.kind).reads_text && !data.empty() && !spec.keys.count("data"))
      spec.settings.emplace_back("data", data), spec.keys["data"] = data, spec.places["data"] = "--data";
    bool peer = e.kind == lab::Kind::bench && spec.keys.count("peer");
    measurements.push_back((peer ? make_peer_measurement : maker)(e, spec, device, limit));
    measurements.back()->read();
    measurements.back()->group_with(measurements);
  }
  return measurements;
}

}  // namespace crest
