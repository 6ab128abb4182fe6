// A device's records go to their instruction and run.
#include "backend/cuda/work_map.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace crest::cuda {
namespace {

WorkRecord record(const char* name, uint64_t node, double start, double seconds, int stream = 7) {
  return {name, node, stream, start, seconds};
}

TEST(WorkMap, RunsOfTwoGraphsAreToldApartByOrder) {
  NodeMap train = {{10, {0}}, {11, {0}}, {12, {2}}}, update = {{20, {0}}};
  StepTrace first, second, last;
  assign_work({record("sum", 12, 3.0, 0.5), record("gemm", 10, 1.0, 1.0), record("split", 11, 2.0, 0.25),
               record("gemm", 10, 4.0, 2.0), record("split", 11, 6.0, 0.5), record("sum", 12, 6.5, 0.5),
               record("adamw", 20, 8.0, 1.0)},
              {{&train, 3, &first}, {&train, 3, &second}, {&update, 1, &last}});
  EXPECT_EQ(first.seconds, (std::vector<double>{1.25, 0, 0.5}));
  EXPECT_EQ(second.seconds, (std::vector<double>{2.5, 0, 0.5}));
  EXPECT_EQ(last.seconds, (std::vector<double>{1.0}));
  EXPECT_EQ(first.starts, (std::vector<double>{1.0, 2.25, 3.0}));
  EXPECT_EQ(first.start, 1.0);
  EXPECT_EQ(first.total, 2.5);
  ASSERT_EQ(first.work.size(), 3u);
  EXPECT_EQ(first.work[1].name, "split");
  EXPECT_EQ(first.work[1].instruction, 0);
  EXPECT_EQ(first.work[2].stream, 7);
}

TEST(WorkMap, ARunThatNobodyTracedStillCounts) {
  NodeMap nodes = {{1, {0}}};
  StepTrace traced;
  assign_work({record("a", 1, 1.0, 1.0), record("a", 1, 5.0, 3.0)}, {{&nodes, 1, nullptr}, {&nodes, 1, &traced}});
  EXPECT_EQ(traced.seconds, (std::vector<double>{3.0}));
  EXPECT_EQ(traced.start, 5.0);
}

TEST(WorkMap, CopiesOutsideOfGraphsGoToTheRunTheyComeBefore) {
  NodeMap nodes = {{1, {0}}};
  StepTrace trace;
  assign_work({record("memcpy", 0, 0.0, 0.5), record("a", 1, 1.0, 1.0), record("memcpy", 0, 3.0, 0.5)},
              {{&nodes, 1, &trace}});
  ASSERT_EQ(trace.work.size(), 3u);
  EXPECT_EQ(trace.work[0].instruction, -1);
  EXPECT_EQ(trace.work[1].instruction, 0);
  EXPECT_EQ(trace.work[2].instruction, -1);
  EXPECT_EQ(trace.seconds, (std::vector<double>{1.0}));
  EXPECT_EQ(trace.total, 3.5);
}

// Kernel 2 started while kernel 1 ended, and waited for it. Kernel 3 waited for kernel 2. Meanwhile
// the communication ran for its whole time.
TEST(WorkMap, AKernelThatWaitsForTheOneBeforeBeginsAtItsEnd) {
  NodeMap nodes = {{1, {0, 0}}, {2, {1, 0}}, {3, {2, 0}}, {9, {3, 1}}};
  StepTrace first, second;
  assign_work(
      {record("a", 1, 1.0, 1.0), record("b", 2, 1.75, 0.75), record("reduce", 9, 1.5, 2.0), record("c", 3, 2.25, 0.25),
       record("a", 1, 4.0, 1.0), record("b", 2, 5.0, 0.5), record("c", 3, 5.5, 0.25), record("reduce", 9, 5.5, 1.0)},
      {{&nodes, 4, &first}, {&nodes, 4, &second}});
  EXPECT_EQ(first.seconds, (std::vector<double>{1.0, 0.5, 0.0, 2.0}));
  EXPECT_EQ(first.starts, (std::vector<double>{1.0, 2.0, 2.5, 1.5}));
  EXPECT_EQ(first.total, 2.5);
  ASSERT_EQ(first.work.size(), 4u);
  EXPECT_EQ(first.work[1].start, 1.5);  // in the order of the records: reduce, then b
  EXPECT_EQ(first.work[2].start, 2.0);
  EXPECT_EQ(second.seconds, (std::vector<double>{1.0, 0.5, 0.25, 1.0}));
  EXPECT_EQ(second.starts, (std::vector<double>{4.0, 5.0, 5.5, 5.5}));
}

TEST(WorkMap, LostRecordsAreAnError) {
  NodeMap nodes = {{1, {0}}, {2, {1}}};
  StepTrace trace;
  EXPECT_THROW(assign_work({record("a", 1, 1.0, 1.0)}, {{&nodes, 2, &trace}}), Error);
}

TEST(WorkMap, ATraceWithoutWorkHasRows) {
  NodeMap nodes;
  StepTrace trace;
  assign_work({}, {{&nodes, 2, &trace}});
  EXPECT_EQ(trace.seconds, (std::vector<double>{0, 0}));
  EXPECT_EQ(trace.starts.size(), 2u);
}

}  // namespace
}  // namespace crest::cuda
