#include "device/conditions.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "backend/cuda/loader.h"
#include "comm/environment.h"
#include "core/error.h"
#include "core/json_number.h"
#include "core/text.h"
#include "core/timer.h"
#include "device/libraries.h"
#include "host/cgroup.h"
#include "host/environment.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

constexpr int most_cpus_read = 64;  // frequencies are read from one file per CPU

std::optional<double> number_in(const std::string& path) {
  std::string text = read_system_file(path);
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() ? std::nullopt : std::optional(value);
}

std::string cpu_folder(const std::string& root, int cpu) {
  return fmt::format("{}/sys/devices/system/cpu/cpu{}", root, cpu);
}

std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int i = 0; i < CPU_SETSIZE && int(cpus.size()) < most_cpus_read; ++i)
    if (CPU_ISSET(i, &set)) cpus.push_back(i);
  return cpus;
}

bool has_other_ranks() {
  try {
    auto environment = rank_environment();
    return environment && environment->local_size > 1;
  } catch (const Error&) {  // a command without ranks does not care
    return false;
  }
}

// Of the other ranks on this machine: processes of the same program with the same parent.
double cpu_seconds_of_other_ranks() {
  namespace fs = std::filesystem;
  if (!has_other_ranks()) return 0;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  double ticks = 0;
  for (fs::directory_iterator process("/proc", ignored), end; process != end; process.increment(ignored)) {
    std::string id = process->path().filename();
    if (id.find_first_not_of("0123456789") != id.npos || id == std::to_string(getpid())) continue;
    // "ID (NAME) state parent ..", with the ticks of user and system at places 14 and 15 (proc(5)).
    std::string text = read_system_file("/proc/" + id + "/stat"), word;
    size_t name_ends = text.rfind(')');
    if (name_ends == text.npos) continue;
    std::istringstream stat(text.substr(name_ends + 1));
    pid_t parent = 0;
    if (!(stat >> word >> parent) || parent != getppid()) continue;
    if (fs::read_symlink("/proc/" + id + "/exe", ignored) != program) continue;
    double user = 0, system = 0;
    for (int place = 5; place < 14; ++place) stat >> word;
    if (stat >> user >> system) ticks += user + system;
  }
  return ticks / double(sysconf(_SC_CLK_TCK));
}

double own_cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * double(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

const double process_start = steady_seconds();

double read_temperature(const std::string& root) {
  for (int i = 0; i < 32; ++i) {
    std::string zone = fmt::format("{}/sys/class/thermal/thermal_zone{}", root, i);
    std::string type = read_system_file(zone + "/type");
    if (type.starts_with("x86_pkg_temp") || type.starts_with("cpu"))
      if (auto value = number_in(zone + "/temp")) return *value / 1e3;
    std::string monitor = fmt::format("{}/sys/class/hwmon/hwmon{}", root, i);
    std::string name = read_system_file(monitor + "/name");
    if (name.starts_with("coretemp") || name.starts_with("k10temp"))
      if (auto value = number_in(monitor + "/temp1_input")) return *value / 1e3;
  }
  return NAN;
}

// The share of a process in the one-minute load average, from its seconds of CPU time, assuming an
// even load since its start.
double load_of(double own_seconds) {
  double age = std::max(1e-3, steady_seconds() - process_start);
  return own_seconds / age * (1 - std::exp(-age / 60));
}

template <class T>
Json value(const std::optional<T>& x) {
  return x ? Json(*x) : Json(nullptr);
}

Json gpu_json(const cuda::GpuState& g) {
  Json processes = nullptr;
  if (g.other_processes)
    processes = {{"own_listed", g.own_listed},
                 {"own_bytes", g.own_bytes},
                 {"others", *g.other_processes},
                 {"others_bytes", *g.other_processes_bytes}};
  return {{"sm_mhz", value(g.sm_mhz)},
          {"sm_max_mhz", value(g.sm_max_mhz)},
          {"memory_mhz", value(g.memory_mhz)},
          {"memory_max_mhz", value(g.memory_max_mhz)},
          {"power_watts", value(g.power_watts)},
          {"power_limit_watts", value(g.power_limit_watts)},
          {"temperature_c", value(g.temperature_c)},
          {"utilization_percent", value(g.utilization_percent)},
          {"throttle_reasons", g.throttle_bits ? Json(cuda::throttle_reasons(*g.throttle_bits)) : Json(nullptr)},
          {"memory_used_bytes", value(g.memory_used_bytes)},
          {"processes", processes}};
}

void read_gpu(const Device& device, Conditions& c) {
  const cuda::Nvml& nvml = cuda::Nvml::instance();
  c.gpu_problem = nvml.problem();
  if (!c.gpu_problem.empty()) return;
  try {
    c.gpu = nvml.read(cuda::pci_bus_id(device.index));
  } catch (const Error& e) {
    c.gpu_problem = e.what();
  }
}

}  // namespace

CpuCounters read_cpu_counters(const std::string& root) {
  CpuCounters c;
  c.seconds = steady_seconds();
  c.own = own_cpu_seconds();
  // "cpu user nice system idle iowait irq softirq steal ...", in ticks (proc(5)).
  std::istringstream stat(read_system_file(root + "/proc/stat"));
  std::string word;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
  if (stat >> word >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal) {
    double tick = 1.0 / double(sysconf(_SC_CLK_TCK));
    c.busy = (user + nice + system + irq + softirq) * tick;
    c.steal = steal * tick;
  }
  c.quota_throttles = read_cgroup_throttles(root);
  std::string folder = cpu_folder(root, own_cpus().front()) + "/thermal_throttle";
  for (const char* file : {"/core_throttle_count", "/package_throttle_count"})
    c.thermal_throttles += int64_t(number_in(folder + file).value_or(0));
  return c;
}

double read_cpu_mhz(const std::string& root) {
  double sum = 0, count = 0;
  for (int cpu : own_cpus())
    if (auto khz = number_in(cpu_folder(root, cpu) + "/cpufreq/scaling_cur_freq")) sum += *khz / 1e3, ++count;
  if (count) return sum / count;
  std::string text = read_system_file(root + "/proc/cpuinfo");
  for (auto& line : split(text, '\n'))
    if (size_t colon = line.find(':'); line.starts_with("cpu MHz") && colon != std::string::npos)
      sum += std::atof(line.c_str() + colon + 1), ++count;
  return count ? sum / count : NAN;
}

double read_cpu_energy(const std::string& root) {
  double sum = NAN;
  for (int package = 0; package < 8; ++package)
    if (auto value = number_in(fmt::format("{}/sys/class/powercap/intel-rapl:{}/energy_uj", root, package)))
      sum = (std::isfinite(sum) ? sum : 0) + *value / 1e6;
  return sum;
}

Conditions read_conditions(const Device& device, const Conditions* before, const std::string& root) {
  Conditions c;
  c.time_utc = utc_now();
  c.cpu = read_cpu_counters(root);
  c.cpu.own += cpu_seconds_of_other_ranks();
  c.cpu_mhz = read_cpu_mhz(root);
  c.cpu_max_mhz = number_in(cpu_folder(root, own_cpus().front()) + "/cpufreq/cpuinfo_max_freq").value_or(NAN) / 1e3;
  c.cpu_temperature_c = read_temperature(root);
  c.cpu_energy_joules = read_cpu_energy(root);
  c.load_average = std::atof(read_system_file(root + "/proc/loadavg").c_str());
  double elapsed = before ? c.cpu.seconds - before->cpu.seconds : 0;
  if (elapsed > 0.1)  // ten ticks
    c.other_load = ((c.cpu.busy - before->cpu.busy) - (c.cpu.own - before->cpu.own)) / elapsed;
  else
    c.other_load = c.load_average - load_of(c.cpu.own);
  c.other_load = std::max(0.0, c.other_load);
  if (device.kind == "cuda" && !device.described) read_gpu(device, c);
  return c;
}

Json to_json(const Conditions& c) {
  Json json = {{"time_utc", c.time_utc},
               {"cpu_mhz", number_or_null(c.cpu_mhz)},
               {"cpu_max_mhz", number_or_null(c.cpu_max_mhz)},
               {"cpu_temperature_c", number_or_null(c.cpu_temperature_c)},
               {"cpu_energy_joules", number_or_null(c.cpu_energy_joules)},
               {"cpu_steal_seconds", c.cpu.steal},
               {"cpu_quota_throttles", c.cpu.quota_throttles},
               {"cpu_thermal_throttles", c.cpu.thermal_throttles},
               {"load_average", c.load_average},
               {"other_load", c.other_load},
               {"gpu", c.gpu ? gpu_json(*c.gpu) : Json(nullptr)}};
  if (!c.gpu_problem.empty()) json["gpu_problem"] = c.gpu_problem;
  return json;
}

// Only the user's settings: the default places may contain a user's name.
static Json chosen_libraries_json() {
  cuda::LibraryChoice choice = cuda::chosen_libraries();
  Json json = Json::object();
  if (!choice.folders.empty()) json["libraries"] = join(choice.folders, ":");
  for (auto& [stem, path] : choice.paths) json[stem] = path;
  return json;
}

Json environment_json(const Device& device, const Conditions& conditions) {
  Json json = Json::parse(to_json(read_environment(library_versions(device))));
  if (Json chosen = chosen_libraries_json(); !chosen.empty()) json["chosen_libraries"] = chosen;
  json["conditions"] = to_json(conditions);
  return json;
}

Json environment_after_json(const Device& device, const Conditions& before) {
  return {{"conditions", to_json(read_conditions(device, &before))}};
}

}  // namespace crest
