#include "bench/comm_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backend/cuda/discover.h"
#include "backend/cuda/nccl.h"
#include "backend/device_json.h"
#include "bench/comm_progress.h"
#include "bench/comm_report.h"
#include "comm/gloo.h"
#include "comm/launch.h"
#include "comm/secret.h"
#include "core/error.h"
#include "core/text.h"
#include "device/conditions.h"
#include "device/data_sheet.h"
#include "device/find.h"
#include "host/stop_signal.h"
#include "store/new_record.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

constexpr int64_t largest_link_bytes = 16 << 20;

// srun and mpirun may show each task only one GPU, as number 0.
int gpu_of(const RankEnvironment& e) {
  bool bound = e.launcher != "torchrun" && e.local_size > 1 && cuda::find_devices().devices.size() == 1;
  return bound ? 0 : e.local_rank;
}

// Not DeviceOptions::find(): every rank would repeat its messages about the device.
Device device_of(const CommOptions& o, const std::string& backend, const RankEnvironment& environment) {
  o.device.libraries.use();
  return find_device(backend == "nccl" ? fmt::format("cuda:{}", gpu_of(environment)) : "cpu", o.device.threads);
}

class CommRank {
 public:
  CommRank(const CommOptions& o, const RankEnvironment& environment)
      : o_(o), environment_(environment), plan_(plan_comm(o, environment)) {
    check_fits_here(o, plan_, environment.local_size);
  }

  int run() {
    RankSecret secret(environment_, after(o_.timeout));
    control_ = join_ranks(environment_, o_.timeout, secret);
    process_seconds_ = seconds_since_start();
    device_ = device_of(o_, plan_.backend, environment_);
    runtime_ = make_runtime(device_, nullptr);
    if (first()) {
      recorder_ = o_.store.open();
      progress_ = std::make_unique<CommProgress>(plan_.ranks.size() * plan_.collectives.size() * plan_.sizes.size());
    }
    for (int ranks : plan_.ranks) measure_with(ranks);
    if (first() && o_.json) print_json(document());
    return 0;
  }

 private:
  bool first() const { return environment_.rank == 0; }

  // Ranks outside the group wait for the others to finish.
  void measure_with(int ranks) {
    std::string done = fmt::format("done/{}", ranks);
    if (environment_.rank >= ranks) {
      constexpr double forever = 1e8;  // ends when another rank exits
      control_->get(done, forever);
      return;
    }
    std::unique_ptr<Communicator> comm;
    double connect = time_once([&] {
      comm = connect_ranks(ranks);
      comm->barrier();
    });
    CommGroup group;
    group.backend = plan_.backend, group.ranks = ranks, group.dtype = plan_.dtype;
    group.connect_seconds = slowest(*comm, connect);
    group.process_seconds = slowest(*comm, process_seconds_);
    set_expected_link(group);
    for (Collective c : plan_.collectives) {
      group.collective = c;
      measure_recorded(*comm, group);
    }
    comm->barrier();
    if (first()) control_->set(done, "");
  }

  std::unique_ptr<Communicator> connect_ranks(int ranks) {
    std::string group = std::to_string(ranks);
    if (plan_.backend == "nccl") return make_nccl_communicator(*control_, ranks, group, device_, o_.timeout);
    return make_gloo_communicator(*control_, ranks, group, o_.timeout, o_.timeout);
  }

  double slowest(Communicator& comm, double seconds) {
    auto all = gather_values(comm, *runtime_, seconds);
    return *std::max_element(all.begin(), all.end());
  }

  void set_expected_link(CommGroup& group) const {
    if (plan_.link_rate > 0) {
      group.link_expected = plan_.link_rate, group.link_source = "given by --link-rate";
    } else if (const DataSheet* sheet = data_sheet_of(device_.name); sheet && sheet->link_bandwidth > 0) {
      group.link_expected = sheet->link_bandwidth / 2;  // of one direction
      group.link_source = fmt::format("{}, data sheet of {}", sheet->link, sheet->title);
    }
  }

  void measure_recorded(Communicator& comm, CommGroup& group) {
    RunRecord record = begin_record(group);
    try {
      measure(comm, group, record);
    } catch (const Error& e) {
      finish_record(record, StopSignal::requested() ? "interrupted" : "failed", nullptr, e.what());
      throw;
    }
    if (!first()) return;
    progress_->clear();
    Json result = to_json(group);
    result["rows"] = rows_to_json(group);
    for (auto& row : result["rows"]) rows_.push_back(row);
    groups_.push_back(to_json(group));
    finish_record(record, "done", result, "");
    if (!o_.json) {
      fmt::print("{}{}", groups_.size() > 1 ? "\n" : "", group_text(group, use_color(STDOUT_FILENO)));
      std::fflush(stdout);
    }
  }

  void measure(Communicator& comm, CommGroup& group, const RunRecord& record) {
    auto stop = [this] {
      if (first() && StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest comm");
    };
    CpuCounters before = read_cpu_counters();
    measure_sizes(comm, group, record, stop);
    // Right after the largest size, so both see the same load from other processes.
    if (group.ranks > 1)
      group.link_measured = measure_link(comm, *runtime_, std::min(largest_link_bytes, plan_.sizes.back()));
    group.other_load = other_load(comm, before);
  }

  // CPU time used by other processes.
  double other_load(Communicator& comm, const CpuCounters& before) {
    CpuCounters now = read_cpu_counters();
    auto own = gather_values(comm, *runtime_, now.own - before.own);
    if (environment_.local_size < environment_.size) return -1;
    double busy = now.busy - before.busy - std::accumulate(own.begin(), own.end(), 0.0);
    return std::max(0.0, busy / (now.seconds - before.seconds));
  }

  void measure_sizes(Communicator& comm, CommGroup& group, const RunRecord& record, const std::function<void()>& stop) {
    CollectiveMeasure bench(comm, *runtime_, group.collective, plan_.dtype, plan_.sizes.back());
    group.first_call_seconds = bench.first_call(plan_.sizes.front());
    StoppingRule quick = plan_.rule;
    quick.max_seconds = std::min(quick.max_seconds, 0.3);
    group.latency_seconds = bench.run(0, quick, stop).seconds.median();
    group.times.clear();
    for (int64_t bytes : plan_.sizes) {
      if (first())
        progress_->next(
            fmt::format("{}, {} ranks, {}", name(group.collective), group.ranks, format_si(double(bytes), "B")));
      group.times.push_back(bench.run(bytes, plan_.rule, stop));
      add_samples(record, group.times.back());
    }
  }

  RunRecord begin_record(const CommGroup& group) {
    RunRecord record;
    if (!first() || !recorder_.on()) return record;
    before_ = read_conditions(device_);
    record.kind = "comm", record.phase = name(group.collective);
    record.name = o_.store.name.empty()
                      ? fmt::format("comm-{}-{}-{}", name(group.collective), group.backend, group.ranks)
                      : o_.store.name;
    record.command = command_line();
    record.device = device_to_json(device_);
    record.key = measurement_key(
        {{"backend", group.backend}, {"ranks", group.ranks}, {"dtype", flag_name(group.dtype)}, {"sizes", plan_.sizes}},
        record.device, record.phase);
    record.environment = environment_json(device_, before_);
    recorder_.begin(record);
    return record;
  }

  void add_samples(const RunRecord& record, const CollectiveTime& t) {
    std::vector<SampleRow> rows;
    for (double seconds : t.seconds.values())
      rows.push_back({seconds * 1e3, int(rows.size()), fmt::format("{} B", t.bytes), false});
    recorder_.add_samples(record, rows);
  }

  void finish_record(RunRecord& record, const std::string& status, const Json& result, const std::string& error) {
    if (record.id == 0) return;
    record.environment_after = environment_after_json(device_, before_);
    record.status = status, record.result = result, record.error = error;
    recorder_.finish(record);
  }

  Json document() const {
    return {{"backend", plan_.backend},
            {"library", plan_.backend == "nccl" ? "nccl " + nccl_version() : "gloo " + gloo_version()},
            {"launcher", is_launched() ? "crest" : environment_.launcher},
            {"world_size", environment_.size},
            {"device", device_to_json(device_)},
            {"rows", rows_},
            {"groups", groups_}};
  }

  const CommOptions& o_;
  RankEnvironment environment_;
  CommPlan plan_;
  std::unique_ptr<Control> control_;
  double process_seconds_ = 0;
  Device device_;
  std::unique_ptr<Runtime> runtime_;
  Recorder recorder_;  // on rank 0
  Conditions before_;
  std::unique_ptr<CommProgress> progress_;
  Json rows_ = Json::array(), groups_ = Json::array();
};

}  // namespace

void check_fits_here(const CommOptions& o, const CommPlan& plan, int local_ranks) {
  Device device = device_of(o, plan.backend, RankEnvironment());
  // Ranks on the CPU share its memory; ranks on GPUs have one GPU each.
  check_sizes_fit(plan, plan.backend == "nccl" ? 1 : local_ranks, o.device.limit(device));
}

int run_comm_rank(const CommOptions& o, const RankEnvironment& environment) {
  if (environment.rank != 0) return CommRank(o, environment).run();
  StopSignal signal;  // rank 0 still records its measurements; the others just exit
  try {
    return CommRank(o, environment).run();
  } catch (const Error& e) {
    if (!StopSignal::requested()) throw;
    throw Error(Exit::interrupted, "interrupted", "crest comm");
  }
}

}  // namespace crest
