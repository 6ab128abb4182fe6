// Training logs of other programs: their printed lines, and the resulting run.
#include <cmath>

#include "core/random.h"
#include "store/files.h"
#include "store/import_log.h"
#include "store/log_line.h"

namespace crest::test {

namespace {

ImportedLog imported(const std::string& text, const LogDescription& description = {}) {
  Folder folder;
  LineReader lines(folder.write("some.log", text), log_line_limit);
  return import_log(lines, description);
}

}  // namespace

// https://github.com/karpathy/nanoGPT, train.py
TEST(LogLine, NanoGpt) {
  LogLine l = scan_log_line("iter 100: loss 3.1415, time 123.45ms, mfu 12.30%");
  EXPECT_EQ(l.step, 100);
  EXPECT_EQ(l.loss, 3.1415);
  EXPECT_EQ(l.step_ms, 123.45);
  EXPECT_DOUBLE_EQ(l.mfu, 0.123);
  EXPECT_TRUE(std::isnan(scan_log_line("iter 0: loss 10.9881, time 45020.31ms, mfu -100.00%").mfu)) << "not known yet";
  l = scan_log_line("step 250: train loss 2.5014, val loss 2.6125");
  EXPECT_EQ(l.step, 250);
  EXPECT_EQ(l.loss, 2.5014);
  EXPECT_EQ(l.val_loss, 2.6125);
}

// https://github.com/karpathy/llm.c: train_gpt2.cu, train_gpt2.c, train_gpt2.py, main.log
TEST(LogLine, LlmC) {
  LogLine l = scan_log_line(
      "step    7/1000 | loss 11.009483 (+nanz)| norm 15.3730 (-1.20z)| lr 7.00e-07 | 100.50 ms | 50.2% bf16 MFU | "
      "520000 tok/s");
  EXPECT_EQ(l.step, 7);
  EXPECT_EQ(l.loss, 11.009483);
  EXPECT_EQ(l.grad_norm, 15.3730);
  EXPECT_EQ(l.lr, 7e-7);
  EXPECT_EQ(l.step_ms, 100.5);
  EXPECT_DOUBLE_EQ(l.mfu, 0.502);
  EXPECT_EQ(l.tokens_per_second, 520000);
  EXPECT_EQ(scan_log_line("val loss 10.5").val_loss, 10.5);
  EXPECT_FALSE(scan_log_line("val loss 10.5").step);
  l = scan_log_line("step 3: train loss 5.356082 (took 1234.500000 ms)");
  EXPECT_EQ(l.step, 3);
  EXPECT_EQ(l.loss, 5.356082);
  EXPECT_EQ(l.step_ms, 1234.5);
  l = scan_log_line("step    2/10 | train loss 5.270000 | norm 30.4 | lr 1.00e-04 | (12.34 ms | 331825 tok/s)");
  EXPECT_EQ(l.step, 2);
  EXPECT_EQ(l.loss, 5.27);
  EXPECT_EQ(l.step_ms, 12.34);
  EXPECT_EQ(l.tokens_per_second, 331825);
  l = scan_log_line("s:20 trl:9.5 lr:6.0e-04 norm:1.10");
  EXPECT_EQ(l.step, 20);
  EXPECT_EQ(l.loss, 9.5);
  EXPECT_EQ(l.lr, 6e-4);
  EXPECT_EQ(scan_log_line("s:20 tel:9.25").val_loss, 9.25);
}

// https://github.com/karpathy/build-nanogpt and its derivatives
TEST(LogLine, BuildNanoGpt) {
  LogLine l =
      scan_log_line("step     0 | loss: 10.955029 | lr 8.3916e-07 | norm: 15.3647 | dt: 339.02ms | tok/sec: 48000.25");
  EXPECT_EQ(l.step, 0);
  EXPECT_EQ(l.loss, 10.955029);
  EXPECT_EQ(l.lr, 8.3916e-7);
  EXPECT_EQ(l.grad_norm, 15.3647);
  EXPECT_EQ(l.step_ms, 339.02);
  EXPECT_EQ(l.tokens_per_second, 48000.25);
  l = scan_log_line("Step:   12 | Tok/sec: 1,234,567.5 | Loss: 1.5 | mem: 10.5GB | dt 0.25s, | Norm:2");
  EXPECT_EQ(l.step, 12);
  EXPECT_EQ(l.tokens_per_second, 1234567.5);
  EXPECT_EQ(l.loss, 1.5);
  EXPECT_EQ(l.step_ms, 250);
  EXPECT_EQ(l.grad_norm, 2);
  EXPECT_EQ(l.memory_bytes, 10.5e9);
  EXPECT_EQ(scan_log_line("validation loss: 3.2784").val_loss, 3.2784);
  l = scan_log_line("250 val 3.2784");
  EXPECT_EQ(l.step, 250);
  EXPECT_EQ(l.val_loss, 3.2784);
  l = scan_log_line("19 train 5.955029");
  EXPECT_EQ(l.step, 19);
  EXPECT_EQ(l.loss, 5.955029);
  EXPECT_TRUE(scan_log_line("250 hella 0.2953").says_nothing());
  l = scan_log_line("step=3 loss=2.5 tokens/s=48.5k memory_mb=2000 step_ms=12.5");
  EXPECT_EQ(l.step, 3);
  EXPECT_EQ(l.tokens_per_second, 48500);
  EXPECT_EQ(l.memory_bytes, 2e9);
  EXPECT_EQ(l.step_ms, 12.5);
}

// https://github.com/KellerJordan/modded-nanogpt
TEST(LogLine, ModdedNanoGpt) {
  LogLine l = scan_log_line("step:10/1750 val_loss:7.6543 train_time:1,234ms step_avg:123.40ms");
  EXPECT_EQ(l.step, 10);
  EXPECT_EQ(l.val_loss, 7.6543);
  EXPECT_EQ(l.elapsed_ms, 1234);
  EXPECT_TRUE(std::isnan(l.step_ms)) << "an average of all steps is not the time of one";
  EXPECT_EQ(scan_log_line("step:0/1750 train_time:0ms step_avg:nanms").step, 0);
  EXPECT_EQ(scan_log_line("peak memory allocated: 36001 MiB reserved: 37000 MiB").memory_bytes, 36001 * 0x1p20);
}

// https://github.com/huggingface/transformers, Trainer
TEST(LogLine, HuggingFaceTrainer) {
  for (const char* line :
       {"{'loss': 2.125, 'grad_norm': 1.5, 'learning_rate': 4.9e-05, 'epoch': 0.1}",
        "{'loss': '2.125', 'grad_norm': '1.5', 'learning_rate': '4.9e-05', 'epoch': '0.1'}",
        "trainer-1  | {\"loss\": 2.125, \"grad_norm\": 1.5, \"learning_rate\": 4.9e-05, \"epoch\": 0.1}"}) {
    LogLine l = scan_log_line(line);
    EXPECT_TRUE(l.braces) << line;
    EXPECT_EQ(l.loss, 2.125) << line;
    EXPECT_EQ(l.grad_norm, 1.5) << line;
    EXPECT_EQ(l.lr, 4.9e-5) << line;
    EXPECT_FALSE(l.step) << line;
  }
  EXPECT_EQ(scan_log_line("{'eval_loss': 1.5, 'eval_runtime': 3.2, 'epoch': 1.0}").val_loss, 1.5);
  EXPECT_EQ(scan_log_line(" 10%|\xE2\x96\x88  | 500/5000 [01:00<09:00,  8.33it/s]").bar, 500);
  EXPECT_EQ(
      scan_log_line("{'train_runtime': 600.1, 'train_steps_per_second': 8.33, 'train_loss': 2.0}").steps_per_second,
      8.33);
}

TEST(LogLine, CrestsOwn) {
  LogLine l = scan_log_line(
      R"({"step": 5, "loss": null, "lr": 0.001, "grad_norm": 0.5, "step_ms": 12.345, "tokens_per_second": 41000.5, "skipped": true})");
  EXPECT_EQ(l.step, 5);
  EXPECT_TRUE(std::isnan(l.loss));
  EXPECT_TRUE(l.has_loss);
  EXPECT_EQ(l.lr, 0.001);
  EXPECT_EQ(l.grad_norm, 0.5);
  EXPECT_EQ(l.step_ms, 12.345);
  EXPECT_EQ(l.tokens_per_second, 41000.5);
  EXPECT_TRUE(l.skipped);
  EXPECT_EQ(scan_log_line(R"({"step": 5, "val_loss": 2.5})").val_loss, 2.5);
}

TEST(LogLine, LoggersAndColors) {
  LogLine l = scan_log_line("2026-01-31 12:00:05,123 - trainer - INFO - step 5 | loss 2.5 | dt 10ms");
  EXPECT_EQ(l.step, 5);
  EXPECT_EQ(l.loss, 2.5);
  EXPECT_EQ(l.step_ms, 10);
  l = scan_log_line("[rank0]: INFO train step 6 loss \x1b[1;32m2.25\x1b[0m lr 1e-4");
  EXPECT_EQ(l.step, 6);
  EXPECT_EQ(l.loss, 2.25);
  EXPECT_EQ(l.lr, 1e-4);
  EXPECT_TRUE(scan_log_line("step 7 loss nan").has_loss) << "a diverged step is a step";
  EXPECT_TRUE(std::isnan(scan_log_line("step 7 loss inf").loss));
}

TEST(LogLine, OtherQuantitiesAreNotTaken) {
  for (const char* line :
       {"saving checkpoint at step 500", "number of parameters: 123.59M", "Epoch 3", "", "loss", "step", "{}",
        "2026-01-31 12:00:05", "found 50 samples in 3.2s", "max_steps: 1000, warmup 10"})
    EXPECT_TRUE(scan_log_line(line).says_nothing()) << line;
  LogLine l =
      scan_log_line("step 5 | aux loss 0.1 | z_loss 0.2 | loss 2.5 | byte loss 0.9 | tokens/sec/gpu 5 | loss 9");
  EXPECT_EQ(l.loss, 2.5) << "the first that is the loss";
  EXPECT_TRUE(std::isnan(l.tokens_per_second)) << "per GPU is another quantity";
  EXPECT_FALSE(scan_log_line("step 1.5 loss 2").step);
  EXPECT_FALSE(scan_log_line("step -3 loss 2").step);
  l = scan_log_line("step 5 loss 2.5 dt: 0.25 mem: 10");
  EXPECT_TRUE(std::isnan(l.step_ms)) << "no unit, no time";
  EXPECT_EQ(l.without_unit, 2);
}

TEST(LogLine, AnyBytes) {
  const std::string seed = "step 7/10 | loss 11.0 (+nanz)| 50.2% MFU {'loss': 1e-5} 1,234 \x1b[0m 500/5000 [01:00<";
  for (uint64_t i = 0; i < 20'000; ++i) {
    std::string text = seed;
    for (uint64_t k = 0; k < 6; ++k) {
      uint64_t bits = random_bits(3, i, k);
      if (bits & 1)
        text[bits / 512 % text.size()] = char(bits >> 1);
      else
        text.erase(bits / 512 % text.size(), bits / 2 % 4);
      if (text.empty()) text = "1";
    }
    LogLine l = scan_log_line(text);
    EXPECT_FALSE(std::isinf(l.step_ms));
    EXPECT_GE(l.step.value_or(0), 0);
  }
  EXPECT_FALSE(scan_log_line("step " + std::string(100'000, '9')).step);
  scan_log_line(std::string(1'000'000, 'a') + " 1");
  scan_log_line("loss 1e-" + std::string(10'000, '9'));
}

TEST(TrainingLog, BecomesARunWithMedians) {
  ImportedLog log = imported(
      "tokens per iteration will be: 491,520\n"
      "step 0: train loss 10.9892, val loss 10.9893\n"
      "iter 0: loss 10.9881, time 45020.31ms, mfu -100.00%\n"
      "iter 10: loss 9.6230, time 250.00ms, mfu 44.00%\n"
      "iter 20: loss 8.6230, time 252.00ms, mfu 46.00%\n"
      "saving checkpoint to out\n"
      "step 25: train loss 8.5000, val loss 8.6000\n",
      {.name = "", .model = "gpt2-124M", .device = "A100", .batch = 12, .seq = 1024});
  const RunRecord& r = log.record;
  EXPECT_EQ(r.kind, "log");
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.name, "some");
  EXPECT_EQ(r.uid.size(), 16u);
  EXPECT_EQ(r.recipe.dump(), R"({"model":"gpt2-124M","batch":12,"seq":1024})");
  EXPECT_EQ(r.device["name"], "A100");
  EXPECT_EQ(log.lines, 7);
  EXPECT_EQ(log.skipped, 2);
  EXPECT_EQ(log.steps, 3);
  EXPECT_EQ(log.validations, 2);
  ASSERT_EQ(r.log.size(), 5u);
  EXPECT_TRUE(std::isnan(r.log[0].loss)) << "the estimate beside a validation is no second loss curve";
  EXPECT_EQ(r.log[0].val_loss, 10.9893);
  EXPECT_EQ(r.log[1].loss, 10.9881);
  EXPECT_EQ(r.result["step"], 25);
  EXPECT_EQ(r.result["step_ms_median"], 251.0) << "without the warm-up of step 0";
  EXPECT_EQ(r.result["samples"], 2);
  EXPECT_EQ(r.result["loss"], 8.623);
  EXPECT_EQ(r.result["val_loss"], 8.6);
  EXPECT_EQ(r.result["mfu"], 0.45);
  EXPECT_NEAR(r.result["tokens_per_second"].get<double>(), 12 * 1024 / 0.251, 1e-6);
}

TEST(TrainingLog, WithoutStepLinesKeepsTheEstimates) {
  auto r = imported("step 0: train loss 4.2, val loss 4.3\nstep 100: train loss 2.2, val loss 2.3\n").record;
  EXPECT_EQ(r.log.at(1).loss, 2.2);
  EXPECT_EQ(r.log.at(1).val_loss, 2.3);
  EXPECT_TRUE(r.recipe.is_null());
  EXPECT_FALSE(r.result.contains("step_ms_median"));
}

TEST(TrainingLog, TimesFromTheTimeSinceTheStart) {
  auto r = imported(
               "step:0/9 val_loss:10.8 train_time:0ms step_avg:nanms\n"
               "step:1/9 train_time:200ms step_avg:200.00ms\n"
               "step:3/9 train_time:400ms step_avg:133.33ms\n"
               "step:3/9 val_loss:8.1 train_time:400ms step_avg:133.33ms\n"
               "peak memory allocated: 100 MiB reserved: 200 MiB\n")
               .record;
  EXPECT_EQ(r.log.at(1).step_ms, 200);
  EXPECT_EQ(r.log.at(2).step_ms, 100);
  EXPECT_TRUE(std::isnan(r.log.at(3).step_ms));
  EXPECT_EQ(r.result["step_ms_median"], 100.0) << "without the warm-up of step 1";
  EXPECT_EQ(r.result["memory"]["device_peak_bytes"], 100 << 20);
}

TEST(TrainingLog, ValidationsBelongToTheStepBefore) {
  auto r =
      imported("val loss 11.0\nstep 1/9 | loss 10.5 | 10.0 ms\nstep 2/9 | loss 10.0 | 11.0 ms\nval loss 9.5\n").record;
  EXPECT_EQ(r.log.at(0).step, 0);
  EXPECT_EQ(r.log.at(3).step, 2);
  EXPECT_EQ(r.log.at(3).val_loss, 9.5);
}

TEST(TrainingLog, TrainersProgressBarNumbersItsSteps) {
  const std::string bar = " 10%|#  | 500/1000 [01:00<01:00, 8.33it/s]\r", end = "{'train_steps_per_second': 8.0}\n";
  ImportedLog log = imported(bar + "{'loss': 2.5, 'epoch': 0.5}\n" + "100%|## | 1000/1000 [02:00<00:00, 8.33it/s]\n" +
                             "{'loss': '2.25'}\n{'eval_loss': 2.0}\n" + end);
  ASSERT_EQ(log.record.log.size(), 3u);
  EXPECT_EQ(log.record.log[0].step, 500);
  EXPECT_EQ(log.record.log[1].step, 1000);
  EXPECT_EQ(log.record.log[2].step, 1000);
  EXPECT_FALSE(log.numbered);
  EXPECT_EQ(log.record.result["step_ms_median"], 125.0);
  EXPECT_EQ(log.record.result["loss"], 2.25);
  log = imported("{'loss': 2.5}\n{'loss': 2.25}\n");
  EXPECT_TRUE(log.numbered) << "without a bar the rows are counted, which is told";
  EXPECT_EQ(log.record.log.at(1).step, 2);
}

TEST(TrainingLog, WithoutStepsIsAnErrorThatShowsWhatWasLookedFor) {
  for (const char* text : {"", "hello\nworld\n", "\x7f\x45LF\x02\x01", "{'train_steps_per_second': 8.0}\n"})
    expect_says(error_of([&] { imported(text); }), {"some.log", "no training steps", "iter 10: loss", "tok/s"});
}

TEST(TrainingLog, IsKnownByWhatItHolds) {
  std::string text = "step 1 loss 2\n";
  EXPECT_EQ(imported(text).record.uid, imported(text).record.uid);
  EXPECT_NE(imported(text).record.uid, imported(text + "step 2 loss 1\n").record.uid);
  EXPECT_NE(imported(text).record.uid, imported(text, {.name = "other"}).record.uid);
}

}  // namespace crest::test
