// Training on a failing disk or device: run_training()
// with faults at its system calls and kernels.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "checkpoint/faults.h"
#include "checkpoint/weights_io.h"
#include "core/error.h"
#include "train/run_fixture.h"

using namespace crest;
using namespace crest::test;

namespace {

class RunFaults : public RunTest {};
class SaveFaults : public RunFaults, public ::testing::WithParamInterface<SaveMode> {};

}  // namespace

TEST_P(SaveFaults, AnyCallThatFailsLeavesTheLastCheckpoint) {
  ASSERT_FALSE(run_training(options()).interrupted);
  std::filesystem::copy(folder / "run", folder / "saved", std::filesystem::copy_options::recursive);
  TrainOptions more = options();
  more.resume = true;
  more.steps = 6;
  more.save_mode = GetParam();
  if (GetParam() == SaveMode::background) more.save_every = 1;
  int failed = 0;
  int64_t k = 0;
  for (;; ++k) {
    SCOPED_TRACE(k);
    remove_tree(folder / "run");
    std::filesystem::copy(folder / "saved", folder / "run", std::filesystem::copy_options::recursive);
    std::string hit, error;
    {
      Faults faults(Fault::fail_from, k, ENOSPC);
      error = error_of([&] { run_training(more); });
      hit = faults.hit();
    }
    if (hit.empty()) break;
    if (!error.empty()) {
      ++failed;
      // If only the sync of its folder failed, the new checkpoint is already valid.
      EXPECT_TRUE(newest() == "step-000004" || newest() == "step-000006" ||
                  (newest() == "step-000005" && GetParam() == SaveMode::background))
          << hit << newest();
      EXPECT_TRUE(contains(error, "No space left on device") || contains(error, "space")) << error;
    } else {
      EXPECT_EQ(newest(), "step-000006") << hit;  // only the work after the save failed
    }
    ASSERT_FALSE(run_training(more).interrupted) << "the run continues once there is space";
    EXPECT_EQ(newest(), "step-000006");
  }
  EXPECT_GT(k, 20);
  EXPECT_GT(failed, 15);
}

INSTANTIATE_TEST_SUITE_P(Modes, SaveFaults, ::testing::Values(SaveMode::waiting, SaveMode::background),
                         [](auto& i) { return i.param == SaveMode::waiting ? "Waiting" : "Background"; });

// A signal interrupts a system call. The call is repeated, whichever it is, and nothing is lost.
TEST_F(RunFaults, AnInterruptedCallIsRepeated) {
  ASSERT_FALSE(run_training(options()).interrupted);
  std::filesystem::copy(folder / "run", folder / "saved", std::filesystem::copy_options::recursive);
  TrainOptions more = options();
  more.resume = true;
  more.steps = 6;
  auto rows = [&] { return read_file(folder / "run/log.jsonl", 1 << 20); };
  int64_t k = 0, writes = 0;
  for (std::string hit;; ++k) {
    SCOPED_TRACE(k);
    remove_tree(folder / "run");
    std::filesystem::copy(folder / "saved", folder / "run", std::filesystem::copy_options::recursive);
    Faults faults(Fault::fail_once, k, EINTR);
    EXPECT_NO_THROW(run_training(more));
    hit = faults.hit();
    EXPECT_EQ(newest(), "step-000006") << hit;
    std::string log = rows();
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 6) << hit;
    writes += hit == "write";
    if (hit.empty()) break;
  }
  EXPECT_GT(k, 20);
  EXPECT_GT(writes, 5);
}

// Two faults in a continued run, the second during the handling of the first: 12 seeded pairs,
// CREST_FAULT_PAIRS.
TEST_F(RunFaults, PairsOverAContinuedRunLeaveTheLastCheckpoint) {
  ASSERT_FALSE(run_training(options()).interrupted);
  std::filesystem::copy(folder / "run", folder / "saved", std::filesystem::copy_options::recursive);
  TrainOptions more = options();
  more.resume = true;
  more.steps = 6;
  more.save_every = 1;
  auto again = [&] {
    remove_tree(folder / "run");
    std::filesystem::copy(folder / "saved", folder / "run", std::filesystem::copy_options::recursive);
  };
  int64_t calls = 0;
  {
    again();
    Faults count;
    run_training(more);
    calls = count.calls();
  }
  const int64_t pairs = count_from("CREST_FAULT_PAIRS", 12);
  int failed = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    auto random = [&](uint64_t what, int64_t below) {
      return int64_t(random_bits(42, what, uint64_t(i)) % uint64_t(below));
    };
    int64_t first = random(0, calls), second = first + 1 + random(1, 12);
    SCOPED_TRACE(::testing::Message() << "pair " << i << ": calls " << first << " and " << second << " of " << calls);
    again();
    more.save_mode = random(2, 2) ? SaveMode::background : SaveMode::waiting;
    std::string error;
    {
      Faults faults(Fault::fail_once, first, random(3, 2) ? ENOSPC : EIO);
      faults.then(random(4, 2) ? Fault::fail_once : Fault::fail_from, second, random(5, 2) ? EROFS : EIO);
      error = error_of([&] { run_training(more); });
    }
    failed += !error.empty();
    EXPECT_TRUE(newest() >= "step-000004" && newest() <= "step-000006") << newest();
    if (error.empty()) {
      EXPECT_EQ(newest(), "step-000006");
    }
    ASSERT_FALSE(run_training(more).interrupted) << "the run continues";
    EXPECT_EQ(newest(), "step-000006");
  }
  EXPECT_GT(failed, pairs / 4);
  std::printf("%lld pairs of faults over a continued run (%lld calls): %d ended it, 0 checkpoints lost\n",
              (long long)pairs, (long long)calls, failed);
}

TEST_F(RunFaults, AFullDiskIsToldBeforeAnythingIsWritten) {
  ASSERT_FALSE(run_training(options()).interrupted);
  TrainOptions more = options();
  more.resume = true;
  more.steps = 6;
  Faults faults;
  faults.free_bytes = 4096;
  std::string error = error_of([&] { run_training(more); });
  EXPECT_TRUE(contains(error, "free")) << error;
  EXPECT_TRUE(contains(error, "checkpoint")) << error;
  EXPECT_EQ(newest(), "step-000004");
}

// A run without space for a checkpoint does not begin.
TEST_F(RunFaults, TooLittleSpaceIsToldBeforeTheFirstStep) {
  TrainOptions o = options();
  int steps = 0;
  o.save_every = 1, o.quiet = false, o.on_step = [&](const StepRow&) { ++steps; };
  Engine e = make_engine(o.recipe, 1);
  const uint64_t one = checkpoint_bytes(e.rank(0));
  ASSERT_GT(one, 100000u);
  Faults faults;
  faults.free_bytes = one - 1;
  std::string error = error_of([&] { run_training(o); });
  EXPECT_TRUE(contains(error, "not enough disk space for a checkpoint")) << error;
  EXPECT_EQ(steps, 0);
  o.overwrite = true;
  const uint64_t of_one = one + 1'250'000;  // with a little for the run's other files
  ASSERT_LT(of_one, 3 * one);
  for (auto [free, keep, said] :
       {std::tuple{of_one, 2, "3 checkpoints"}, {10 * one, 2, ""}, {of_one, 0, "4 checkpoints"}}) {
    o.keep = keep;
    faults.free_bytes = int64_t(free);
    testing::internal::CaptureStderr();
    run_training(o);
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_EQ(contains(told, "will not fit"), *said != 0) << told;
    EXPECT_TRUE(contains(told, said)) << told;
  }
}

TEST_F(RunFaults, ALogThatCannotGrowEndsTheRun) {
  if (options().device.kind == "cuda") GTEST_SKIP() << "the limit on files would meet the GPU driver, too";
  ASSERT_FALSE(run_training(options()).interrupted);
  TrainOptions more = options();
  more.resume = true;
  more.steps = 1000;
  struct rlimit old {
  }, low{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  low = old, low.rlim_cur = 3000;
  auto handler = signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit then fails as on a full disk
  setrlimit(RLIMIT_FSIZE, &low);
  std::string error = error_of([&] { run_training(more); });
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(contains(error, "log.jsonl")) << error;
  EXPECT_TRUE(contains(error, "File too large")) << error;
  EXPECT_TRUE(contains(error, "continue with --resume")) << error;
  EXPECT_EQ(newest(), "step-000004");
}

// A lost GPU: a launch fails in the middle of a step. The run ends with this error and saves
// nothing, because the device's memory cannot be trusted.
TEST_F(RunFaults, ALostDeviceEndsTheRunAndLeavesTheLastCheckpoint) {
  TrainOptions straight = options(), cut = options();
  straight.steps = cut.steps = 8;
  straight.out = folder / "straight";
  cut.stop_after = 4;
  ASSERT_FALSE(run_training(straight).interrupted);
  ASSERT_FALSE(run_training(cut).interrupted);
  cut.stop_after = 0;
  cut.resume = true;
  cut.save_every = 1;
  static int launches_left;
  for (const char* op : {"linear_dw", "adamw"}) {
    SCOPED_TRACE(op);
    launches_left = 0;
    std::string error;
    {
      ChangedKernels lost(op, [](Kernel& k) {
        k.launch = [](const KernelCall& c) {
          if (launches_left-- <= 0) fail("unspecified launch failure", c.instr_name());
        };
      });
      error = error_of([&] { run_training(cut); });
    }
    EXPECT_TRUE(contains(error, op) && contains(error, "unspecified launch failure")) << error;
    EXPECT_EQ(newest(), "step-000004");
  }
  ASSERT_FALSE(run_training(cut).interrupted) << "a new process on a good device goes on";
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_TRUE(read_file(folder / "run/checkpoints/step-000008/" + file, 1 << 30) ==
                read_file(folder / "straight/checkpoints/step-000008/" + file, 1 << 30))
        << file;
}

// One poisoned step is skipped and counted, and leaves weights and moments as they were.
TEST(NotFiniteStep, IsSkippedAndCounted) {
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    Recipe r = tiny_recipe();
    r.precision = precision;
    Engine e = make_engine(r);
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    for (int s = 0; s < 3; ++s) EXPECT_FALSE(e.step(s, 1e-3, 11, source).skipped);
    auto snapshot = [&] {
      std::vector<std::vector<float>> all;
      for (auto& p : parameters(e.rank(0))) {
        all.emplace_back(size_t(p.numel()));
        p.get(all.back().data());
      }
      return all;
    };
    // The final norm's weight, as the step reads it.
    auto poison = [&](bool on) {
      static std::vector<char> before;
      for (auto& p : parameters(e.rank(0))) {
        if (p.name.find("ln_f.weight") == std::string::npos) continue;
        auto size = int64_t(size_of(p.weight.dtype));
        if (on) {
          before.resize(size_t(size));
          p.weight.read(before.data(), size);
          p.weight.write(std::string(8, '\xff').data(), size);  // a NaN in every float type
        } else {
          p.weight.write(before.data(), size);
        }
        return true;
      }
      return false;
    };
    auto weights = snapshot();
    int64_t adam = e.rank(0).scalars().adam_step;
    ASSERT_TRUE(poison(true));
    StepResult bad = e.step(3, 1e-3, 11, source);
    ASSERT_TRUE(poison(false));
    EXPECT_TRUE(bad.skipped);
    EXPECT_EQ(e.rank(0).scalars().skipped, 1);
    EXPECT_EQ(e.rank(0).scalars().adam_step, adam);
    EXPECT_EQ(snapshot(), weights);
    StepResult next = e.step(4, 1e-3, 11, source);
    EXPECT_FALSE(next.skipped);
    EXPECT_TRUE(std::isfinite(next.loss));
    EXPECT_EQ(e.rank(0).scalars().adam_step, adam + 1);
  }
}
