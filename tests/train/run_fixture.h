// run_training() on a tiny model and text in a separate folder, and kernels that a test replaces.
#pragma once
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/tiny.h"
#include "data/prepare.h"
#include "device.h"
#include "device/kernels.h"
#include "memory_folder.h"
#include "train/harness.h"
#include "train/run.h"

namespace crest::test {

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 300; ++i) text << "word " << i % 17 << " and ";
    text.close();
    PrepareOptions p;
    p.inputs = {folder / "text.txt"};
    p.out = folder / "data";
    prepare(p);
  }
  TrainOptions options() const {
    TrainOptions o;
    o.recipe = tiny_recipe();
    o.recipe.model.vocab = 257;
    o.recipe.batch = 2;
    o.device = crest::test::test_device(1);
    o.memory_limit = int64_t(1) << 30;
    o.data = {folder / "data"};
    o.out = folder / "run";
    o.quiet = true;
    o.val_every = 0;
    o.steps = 4;
    o.lr = 1e-3;
    return o;
  }
  std::string newest() const {
    auto found = find_checkpoint(folder / "run/checkpoints", [](const std::string& m) { ADD_FAILURE() << m; });
    return found ? checkpoint_name(found->step()) : "none";
  }
  MemoryFolder folder;
};

// Changes every kernel of an operation on the tests' device, for its own lifetime.
class ChangedKernels {
 public:
  template <class Change>
  ChangedKernels(const std::string& op, Change change) {
    for (auto& k : kernels_of(crest::test::test_device(1).kind))
      if (k.op == op) {
        auto& kernel = const_cast<Kernel&>(k);  // the vector is constant, its elements were not made so
        before_.emplace_back(&kernel, kernel);
        change(kernel);
      }
    EXPECT_FALSE(before_.empty()) << op;
  }
  ~ChangedKernels() {
    for (auto& [kernel, before] : before_) *kernel = before;
  }
  ChangedKernels(const ChangedKernels&) = delete;

 private:
  std::vector<std::pair<Kernel*, Kernel>> before_;
};

}  // namespace crest::test
