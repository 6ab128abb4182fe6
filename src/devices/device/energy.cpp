#include "device/energy.h"

#include <cmath>

#include "backend/cuda/nvml.h"
#include "core/timer.h"
#include "device/conditions.h"

namespace crest {

namespace {

constexpr double most_seconds = 3;  // of complete()

}  // namespace

EnergyPoll energy_poll(const Device& device) {
  if (device.kind != "cuda")
    return [] {
      double joules = read_cpu_energy();
      return EnergyReading{steady_seconds(), std::isfinite(joules) ? std::optional(joules) : std::nullopt,
                           std::nullopt};
    };
  std::string bus_id = cuda::pci_bus_id(device.index);
  if (bus_id.empty() || !cuda::Nvml::instance().problem().empty()) return [] { return EnergyReading{}; };
  return [bus_id] {
    const cuda::Nvml& nvml = cuda::Nvml::instance();
    EnergyReading r;
    r.joules = nvml.read_energy_joules(bus_id);
    if (!r.joules) r.watts = nvml.read_power_watts(bus_id);
    r.seconds = steady_seconds();
    return r;
  };
}

std::optional<double> Energy::watts() const {
  return seconds >= least_seconds ? std::optional(joules / seconds) : std::nullopt;
}

EnergyWatch::EnergyWatch(EnergyPoll poll, double interval) : poll_(std::move(poll)), interval_(interval) { begin(); }

void EnergyWatch::begin() {
  energy_ = {}, last_.reset(), changed_ = false;
  read();
}

void EnergyWatch::sampled() {
  if (steady_seconds() - asked_ >= interval_) read();
}

void EnergyWatch::read() {
  EnergyReading r = poll_();
  asked_ = steady_seconds();
  if (!r.joules && !r.watts) return;
  if (!last_) {
    last_ = r;
  } else if (r.joules && last_->joules) {
    if (*r.joules == *last_->joules) return;
    if (changed_ && *r.joules > *last_->joules)  // a counter of RAPL begins again at 0 now and then
      energy_.joules += *r.joules - *last_->joules, energy_.seconds += r.seconds - last_->seconds;
    last_ = r, changed_ = true;
  } else if (r.watts && last_->watts) {
    double seconds = r.seconds - last_->seconds;
    energy_.joules += (*r.watts + *last_->watts) / 2 * seconds, energy_.seconds += seconds;
    last_ = r;
  }
}

void EnergyWatch::complete(const std::function<void()>& run) {
  for (double start = steady_seconds();
       last_ && energy_.seconds < Energy::least_seconds && steady_seconds() - start < most_seconds;) {
    run();
    sampled();
  }
}

}  // namespace crest
