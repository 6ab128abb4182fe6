// Trace and snapshot of a step profiled by the real binary.
#include <algorithm>

#include "cli/run.h"
#include "traces/python.h"
#include "traces/unpickle.h"

namespace crest::test {

static std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ProfiledStep, TraceAndSnapshotAreWhole) {
  TempFolder folder;
  std::string trace = folder / "trace.json", snapshot = folder / "snapshot.pickle";
  RunResult r = run_crest({"profile",
                           "--model",
                           "nano",
                           "--batch",
                           "2",
                           "--seq",
                           "64",
                           "--grad-accumulation",
                           "2",
                           "--samples",
                           "1",
                           "--warmup",
                           "1",
                           "--rates",
                           "fp32=1e12,bf16=1e12,bandwidth=1e10",
                           "--no-store",
                           "--device",
                           "cpu",
                           "--json",
                           "--trace",
                           trace,
                           "--snapshot",
                           snapshot});
  ASSERT_EQ(r.code, 0) << r.err;
  nlohmann::json memory = r.json()["memory"];

  int64_t held = 0, peak = 0;
  nlohmann::json pickled = unpickle(read_all(snapshot));
  for (auto& e : pickled["device_traces"][0]) {
    if (e["action"] == "alloc") held += e["size"].get<int64_t>();
    if (e["action"] == "free_completed") held -= e["size"].get<int64_t>();
    peak = std::max(peak, held);
  }
  EXPECT_EQ(held, memory["persistent_bytes"]);
  EXPECT_LE(peak, memory["planned_bytes"]);
  EXPECT_GE(peak, memory["planned_bytes"].get<int64_t>() * 95 / 100) << "the arena is nearly full at its peak";

  expect_python("check_snapshot.py", snapshot, "ok: 2 segments");
  expect_python("check_trace.py", trace, "ok: ");
}

}  // namespace crest::test
