#include "device/rank_device.h"

#include <fmt/format.h>

#include <map>

#include "backend/cuda/discover.h"
#include "backend/cuda/nccl.h"
#include "comm/exchange.h"
#include "comm/gloo.h"
#include "core/error.h"
#include "core/sha256.h"
#include "device/find.h"
#include "device/gpu_spec.h"

namespace crest {

namespace {

// NCCL's own limits never end a run: a rank may wait for another one during its save.
constexpr double no_limit = 1e6;

bool may_be_gpu(const std::string& spec) { return spec == "auto" || gpu_of(spec); }

std::string gpus_text(int n) { return n == 1 ? "1 GPU is" : fmt::format("{} GPUs are", n); }

void check_library(const std::string& problem) {
  if (!problem.empty()) fail(problem, "--ranks");
}

}  // namespace

std::string device_of_rank(const std::string& spec, const RankPlace& place, int gpus) {
  if (!may_be_gpu(spec) || gpus == 0 || place.local_ranks == 1) return spec;
  if (spec != "auto" && spec != "cuda")
    fail_usage(fmt::format("--device {} is one GPU, but {} ranks run on this machine", spec, place.local_ranks),
               "--device",
               "Use --device cuda: each rank takes a GPU of its own. CUDA_VISIBLE_DEVICES selects which ones.");
  if (gpus == 1 && place.own_view) return "cuda:0";  // srun, mpirun and torchrun scripts can bind a GPU to each
  if (gpus < place.local_ranks)
    throw Error(
        Exit::no_device,
        fmt::format("{} ranks on this machine need as many GPUs, but {} visible", place.local_ranks, gpus_text(gpus)),
        "--ranks",
        fmt::format("Use --ranks {}, or --device cpu. --data-parallel {} makes virtual ranks that share a GPU.", gpus,
                    place.local_ranks));
  return fmt::format("cuda:{}", place.local_rank);
}

int usable_gpus(const std::string& spec) {
  if (!may_be_gpu(spec)) return 0;
  cuda::Found found = cuda::find_devices();
  if (found.devices.empty()) return 0;
  // find_device() says why not.
  return cuda::reject_device(found.devices[0]).empty() ? int(found.devices.size()) : 0;
}

void check_devices_of_ranks(const std::string& spec, int ranks) {
  int gpus = usable_gpus(spec);
  device_of_rank(spec, {0, ranks, false}, gpus);
  if (gpus > 0)
    check_library(nccl_problem());
  else if (spec == "auto" || spec == "cpu")
    check_library(gloo_problem());
  else
    check_here(find_device(spec, 0));  // says why there is none
}

void check_one_each(Communicator& host, const std::string& identity) {
  Digest digest = sha256(identity.data(), identity.size());
  auto all = gather(host, std::vector<double>(digest.begin(), digest.end()));
  std::map<std::vector<double>, int> first;
  for (int r = 0; r < host.size(); ++r) {
    auto [it, added] = first.emplace(all[size_t(r)], r);
    if (added) continue;
    if (host.rank() != 0) throw PeerLost(0, "rank 0 ended the run", "start");
    throw Error(Exit::no_device, fmt::format("ranks {} and {} have the same GPU", it->second, r), "--ranks",
                "Each rank needs a GPU of its own: start as many ranks on a machine as it has GPUs, and let every rank "
                "see all of them, or another one each (CUDA_VISIBLE_DEVICES).");
  }
}

void connect_devices(RankGroup& group, const Device& device) {
  check_here(device);
  if (device.kind != "cuda" || device.emulated) return check_library(gloo_problem());
  check_library(nccl_problem());
  group.connect_by([device, ranks = group.size()](Control& control, Communicator& host) {
    check_one_each(host, cuda::identity(device.index));
    return make_nccl_communicator(control, ranks, "run", device, no_limit);
  });
}

}  // namespace crest
