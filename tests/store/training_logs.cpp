// Training logs of other programs: their printed lines, and the resulting run.
#include <cmath>

#include "core/random.h"
#include "store/files.h"
#include "store/import_log.h"
#include "store/log_line.h"
#include "store/result_rows.h"

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

namespace {

// Lines of "Diagnosing memory usage with tf32", a conversation with Cursor, and their repetition.
const char* const results_of_a_document =
    "(Best of 50 steps; `dt` = average wall-time per step)\n\n"
    "A) Baseline FP32 (no TF32)\n```\n"
    "B16:  dt 340 ms   48 k tok/s   39 GB   \n"
    "B32:  dt 670 ms   49 k tok/s   77 GB   (OOM on H100)\n```\n\n"
    "B) FP32 + TF32 enabled\n```\n"
    "B16:  dt 133 ms   123 k tok/s  42 GB   (+2.6\xC3\x97 throughput)\n```\n\n"
    "D) Flash-Attention v2 (bf16)\n```\n"
    "B16:  dt 87.7 ms  187 k tok/s  20 GB\n```\n"
    "Ampere (A100, nightly): same change yields ~3 % speed-up.\n"
    "4.  Analysis\n\n"
    "```plaintext\n"
    "B16:  dt 133 ms   123 k tok/s  42 GB   (+2.6\xC3\x97 throughput)\n```\n";

ImportedText imported_text(const std::string& text, const LogDescription& description = {}) {
  Folder folder;
  LineReader lines(folder.write("terminal.txt", text), log_line_limit);
  return import_text(lines, description);
}

}  // namespace

TEST(ResultLine, AsPeopleWriteIt) {
  auto r = scan_result_line("B16:  dt 340 ms   48 k tok/s   39 GB   ").row;
  ASSERT_TRUE(r);
  EXPECT_EQ(r->batch, 16);
  EXPECT_EQ(r->step_ms, 340);
  EXPECT_EQ(r->tokens_per_second, 48e3);
  EXPECT_EQ(r->memory_bytes, 39e9);
  EXPECT_FALSE(r->out_of_memory);
  r = scan_result_line("\xE2\x80\xA2 batch size = 64, 0.322 s, tok/s: 204,000, 71GiB (OOM on H100) (second run)").row;
  ASSERT_TRUE(r);
  EXPECT_EQ(r->batch, 64);
  EXPECT_EQ(r->step_ms, 322);
  EXPECT_EQ(r->tokens_per_second, 204e3);
  EXPECT_EQ(r->memory_bytes, 71 * 0x1p30);
  EXPECT_TRUE(r->out_of_memory);
  EXPECT_EQ(r->note, "OOM on H100; second run");
  r = scan_result_line("| B64 | 3.1e5 tok/s |").row;
  ASSERT_TRUE(r);
  EXPECT_EQ(r->tokens_per_second, 3.1e5);
  EXPECT_TRUE(scan_result_line("B128: out of memory").row->out_of_memory);
  EXPECT_FALSE(scan_result_line("B8: 12 ms, no OOM").row->out_of_memory);
  EXPECT_TRUE(scan_result_line("B64: killed").labeled);
  EXPECT_FALSE(scan_result_line("B64: killed").row);
  for (const char* line : {"B2 is the baseline", "batch 100: loss 2.5, 40 ms", "B) FP32",
                           "Batch sizes (B): 16 / 32 / 64", "b*s = 2048", "B16x: 12 ms", "12 ms", ""})
    EXPECT_FALSE(scan_result_line(line).labeled) << line;
  EXPECT_TRUE(std::isnan(scan_result_line("B4: 12 ms, 7 b parameters, +15 % time").row->memory_bytes));
}

TEST(ResultLine, AnyBytes) {
  const std::string seed = "\xE2\x80\xA2 B16: dt 3.1e5 ms  48 k tok/s: 1,234 39 GB (OOM (on) H100\n";
  for (uint64_t i = 0; i < 5'000; ++i) {
    std::string text = seed;
    for (uint64_t k = 0; k < 6; ++k) {
      uint64_t bits = random_bits(5, i, k);
      if (bits & 1)
        text[bits / 512 % text.size()] = char(bits >> 1);
      else
        text.erase(bits / 512 % text.size(), bits / 2 % 4);
      if (text.empty()) text = "1";
    }
    if (auto row = scan_result_line(text).row) {
      EXPECT_GT(row->batch, 0);
      EXPECT_FALSE(std::isinf(row->step_ms) || row->step_ms <= 0) << text;
    }
  }
  scan_result_line("B16: " + std::string(1'000'000, '9') + " ms");
}

TEST(Results, OfADocumentAreARunForEachLine) {
  ImportedText text = imported_text(results_of_a_document, {.model = "gpt2-124M", .seq = 1024});
  ASSERT_TRUE(text.results);
  EXPECT_FALSE(text.log);
  const ImportedResults& r = *text.results;
  ASSERT_EQ(r.records.size(), 4u);
  EXPECT_EQ(r.out_of_memory, 1);
  EXPECT_EQ(r.repeated, 1);
  EXPECT_EQ(r.unreadable, 0);
  const RunRecord &fp32 = r.records[0], &oom = r.records[1], &flash = r.records[3];
  EXPECT_EQ(fp32.kind, "log");
  EXPECT_EQ(fp32.status, "done");
  const auto expected = nlohmann::ordered_json{
      {"model", "gpt2-124M"}, {"seq", 1024}, {"variant", "A) Baseline FP32 (no TF32)"}, {"batch", 16}};
  EXPECT_EQ(fp32.recipe.dump(), expected.dump());
  EXPECT_EQ(fp32.result["step_ms_median"], 340);
  EXPECT_EQ(fp32.result["tokens_per_second"], 48e3) << "as written, not 16 x 1024 / 340 ms";
  EXPECT_EQ(fp32.result["memory"]["device_peak_bytes"], 39'000'000'000);
  EXPECT_EQ(oom.status, "out_of_memory");
  EXPECT_EQ(oom.recipe["variant"], fp32.recipe["variant"]);
  EXPECT_EQ(oom.result["step_ms_median"], 670) << "the text has both";
  EXPECT_EQ(oom.result["note"], "OOM on H100");
  EXPECT_EQ(flash.recipe["variant"], "D) Flash-Attention v2 (bf16)");
  EXPECT_EQ(fp32.grid, flash.grid);
  EXPECT_NE(fp32.uid, flash.uid);
  EXPECT_EQ(fp32.uid,
            imported_text(results_of_a_document, {.model = "gpt2-124M", .seq = 1024}).results->records[0].uid);
  expect_says(error_of([&] { imported_text(results_of_a_document, {.batch = 16}); }), {"--batch", "Leave it out"});
}

TEST(Results, WhatIsNotReadIsCounted) {
  const ImportedResults r =
      *imported_text("prose\nB16: 10 ms\nB32: killed\nB64: segfault\nB16: 12 ms\nB8: OOM\n").results;
  EXPECT_EQ(r.unreadable, 2);
  EXPECT_EQ(r.first_unreadable, "line 3: B32: killed");
  EXPECT_EQ(r.lines, 6);
  EXPECT_EQ(r.others, 1);
  ASSERT_EQ(r.records.size(), 3u);
  EXPECT_EQ(r.records[0].recipe["variant"], "prose");
  EXPECT_EQ(r.records[1].recipe["variant"], "prose (2)") << "another figure of the same batch is another recipe";
  EXPECT_FALSE(r.records[2].result.contains("step_ms_median"));
  EXPECT_EQ(r.records[0].result["first_unreadable"], r.first_unreadable);
  // With steps a text is a log, and the rows are told of.
  ImportedText log = imported_text("step 1 loss 2\nB16: 10 ms\n");
  ASSERT_TRUE(log.log);
  EXPECT_EQ(log.results_left_out, 1);
  // Rate from batch, sequence and time, where the text has none.
  const RunRecord by_time = imported_text("B16: 8 ms\n", {.seq = 1000}).results->records[0];
  EXPECT_EQ(by_time.result["tokens_per_second"], 2e6);
}

}  // namespace crest::test
