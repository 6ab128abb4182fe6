// Options of crest comm, and the resulting plan.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/environment.h"
#include "core/dtype.h"
#include "device/device_options.h"
#include "stats/samples.h"
#include "store/record_options.h"

namespace crest {

struct CommOptions {
  std::vector<std::string> collectives;
  std::string backend = "auto", ranks, sizes = "1MB..64MB", dtype = "fp32", link_rate;
  int nproc = 0, port = 0, samples = 0, warmup = 2;
  double max_seconds = 1, timeout = 15;
  bool json = false;
  DeviceOptions device;
  RecordOptions store;
};
// "1MB..64MB" doubles from the first to the last size, "1KB..1GB:x4" quadruples, "1MB,3MB" is a
// list. Items can be mixed. Usage errors name --sizes.
std::vector<int64_t> parse_sizes(const std::string& text);
// "2,4", each at least `least`. Usage errors name the flag.
std::vector<int> parse_ranks(const std::string& text, const char* flag = "--world-sizes", int least = 1);

// "fp32", as in the flags.
const char* flag_name(DType dtype);
// Usage errors name --dtype.
DType parse_comm_dtype(const std::string& text);

// The options, parsed and checked against each other; `world` ranks exist or will be started.
struct CommPlan {
  std::vector<Collective> collectives;
  std::string backend;
  std::vector<int> ranks;
  int world = 1;
  std::vector<int64_t> sizes;
  DType dtype = DType::f32;
  StoppingRule rule;
  double link_rate = 0;  // bytes per second, 0: not given
};
CommPlan plan_comm(const CommOptions& options, const std::optional<RankEnvironment>& environment);

// Throws does_not_fit, with a size that fits, if the buffers of `local_ranks` ranks exceed `limit`
// bytes.
void check_sizes_fit(const CommPlan& plan, int local_ranks, int64_t limit);

}  // namespace crest
