// Values exchanged by ranks on GPUs over the control channel.
#include "comm/control_communicator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "comm/exchange.h"
#include "loopback.h"
#include "ranks.h"

namespace crest::test {

namespace {

void expect_well(const std::vector<std::string>& errors) {
  for (auto& e : errors) EXPECT_EQ(e, "");
}

}  // namespace

TEST(ControlCommunicator, EveryCollective) {
  NEEDS_LOOPBACK();
  for (int ranks : {1, 3})
    expect_well(with_ranks(ranks, [&](Control& control) {
      auto comm = make_control_communicator(control);
      int own = comm->rank();
      float sum[2] = {float(own), 1}, mean = float(own + 1);
      comm->all_reduce(sum, DType::f32, 2, false), comm->all_reduce(&mean, DType::f32, 1, true);
      EXPECT_EQ(sum[0], float(ranks * (ranks - 1) / 2));
      EXPECT_EQ(sum[1], float(ranks));
      EXPECT_EQ(mean, float(ranks + 1) / 2);
      auto all = gather(*comm, {double(own), 0.5});
      ASSERT_EQ(int(all.size()), ranks);
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(all[size_t(r)], (std::vector<double>{double(r), 0.5}));
      std::vector<double> parts(static_cast<size_t>(ranks));
      std::iota(parts.begin(), parts.end(), 10 * own);
      double share = 0;
      comm->reduce_scatter(parts.data(), &share, DType::f64, 1);
      EXPECT_EQ(share, 10 * ranks * (ranks - 1) / 2 + own * ranks);
      int next = (own + 1) % ranks, before = (own + ranks - 1) % ranks, from = -1;
      comm->send_receive(&own, next, &from, before, sizeof own);
      EXPECT_EQ(from, before);
      EXPECT_EQ(broadcast_text(*comm, own == ranks - 1 ? "text" : "", ranks - 1), "text");
      comm->barrier();
    }));
}

// More than a message of the channel holds.
TEST(ControlCommunicator, LargeValuesGoInPieces) {
  NEEDS_LOOPBACK();
  expect_well(with_ranks(2, [&](Control& control) {
    auto comm = make_control_communicator(control);
    std::string text(2 * exchange_bytes + 7, 'a');
    text[exchange_bytes] = 'b';
    EXPECT_EQ(broadcast_text(*comm, comm->rank() == 0 ? text : "", 0), text);
    std::vector<double> own(exchange_bytes / 8 + 3, comm->rank());
    own.back() = 5 + comm->rank();
    auto all = gather(*comm, own);
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(all[size_t(r)].front(), r);
      EXPECT_EQ(all[size_t(r)].back(), 5 + r);
    }
  }));
}

TEST(ControlCommunicator, ARankThatEndsIsNamed) {
  NEEDS_LOOPBACK();
  auto errors = with_ranks(3, [&](Control& control) {
    auto comm = make_control_communicator(control);
    comm->barrier();
    if (control.rank() == 1) fail("this rank fails");
    comm->barrier();
  });
  for (int r : {0, 2})
    EXPECT_NE(errors[size_t(r)].find("rank 1 is gone"), std::string::npos) << "rank " << r << ": " << errors[size_t(r)];
}

TEST(ControlCommunicator, DifferentCallsEndAtOnce) {
  NEEDS_LOOPBACK();
  auto errors = with_ranks(3, [&](Control& control) {
    auto comm = make_control_communicator(control);
    if (control.rank() == 1)
      gather(*comm, {1, 2});
    else
      comm->barrier();
  });
  for (auto& e : errors)
    EXPECT_NE(e.find("rank 1 waits in another collective than the others: rank 0 in barrier; rank 1 in all-gather of 2 "
                     "f64; rank 2 in barrier"),
              std::string::npos)
        << e;
}

}  // namespace crest::test
