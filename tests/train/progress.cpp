#include "train/progress.h"

#include <gtest/gtest.h>

#include "core/text.h"
#include "terminal/table.h"

using namespace crest;

namespace {

StepReport report(int64_t step) {
  return {.step = step,
          .total_steps = 2000,
          .loss = 3.14159,
          .grad_norm = 0.75,
          .lr = 6e-4,
          .step_ms = 38.25,
          .tokens_per_second = 107000,
          .flops_per_second = 1.25e12,
          .memory_bytes = 420 << 20,
          .eta_seconds = 200,
          .skipped = false};
}

// A terminal's view: carriage return, newline and
// "erase to the end of the line" carried out.
std::vector<std::string> screen(const std::string& bytes) {
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r') {
      column = 0;
    } else if (bytes[i] == '\n') {
      lines.emplace_back(), column = 0;
    } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(std::min(column, lines.back().size())), i += 2;
    } else {
      if (column == lines.back().size()) lines.back() += ' ';
      lines.back()[column++] = bytes[i];
    }
  }
  return lines;
}

struct Capture {
  char* data = nullptr;
  size_t size = 0;
  std::FILE* file = open_memstream(&data, &size);
  ~Capture() { std::fclose(file), std::free(data); }
  std::string text() { return std::fflush(file), std::string(data, size); }
};

}  // namespace

TEST(Progress, LineHasEverything) {
  EXPECT_EQ(progress_line(report(7), 1000),
            "step    7/2000  loss  3.1416  norm 0.750  lr 6.00e-04   38.2 ms  107.0k tok/s   1.25 TFLOP/s  420.00 MiB  "
            "ETA 3m 20s");
  StepReport soon = report(7);
  soon.eta_seconds = 0.20697;
  EXPECT_NE(progress_line(soon, 1000).find("  ETA 0 s"), std::string::npos);
  StepReport r;
  r.step = 3;
  r.skipped = true;
  EXPECT_EQ(progress_line(r, 100), "step 3  loss     nan  skipped");
}

TEST(Progress, ColumnsStayInTheirPlaces) {
  const StepReport usual = report(7);
  const std::string line = progress_line(usual, 1000);
  auto columns = [](const std::string& text) {
    std::vector<size_t> places;
    for (const char* word : {"loss ", "norm ", "lr ", " ms", " tok/s", "FLOP/s", " MiB", "ETA "})
      places.push_back(text.find(word));
    return places;
  };
  for (double norm : {0.0, 0.0005, 0.001, 0.0712, 0.7, 0.726, 0.9996, 9.9996, 12.3, 99.996, 123.4, 999.96, 98765.0,
                      4.1e6, 1e9, double(NAN), double(INFINITY)})
    for (double loss : {0.0312, 3.1416, 11.0095, 123.5, double(NAN)})
      for (double ms : {0.21, 9.96, 38.25, 99.97, 150.0, 2345.0, 99999.0})
        for (double rate : {0.5, 12.0, 512.0, 999.6, 13630.0, 107e3, 1.25e6, 999.9e6}) {
          StepReport r = usual;
          r.grad_norm = norm, r.loss = loss, r.step_ms = ms, r.tokens_per_second = rate,
          r.flops_per_second = rate * 1e6;
          ASSERT_EQ(columns(progress_line(r, 1000)), columns(line)) << progress_line(r, 1000) << "\n" << line;
        }
  StepReport skipped = usual;
  skipped.skipped = true;
  EXPECT_EQ(progress_line(skipped, 1000), line + "  skipped");
}

TEST(Progress, LineFitsEveryWidth) {
  size_t last = 0;
  for (int width = 0; width < 140; ++width) {
    std::string line = progress_line(report(7), width);
    EXPECT_LE(display_width(line), size_t(width));
    EXPECT_GE(display_width(line), last * (width > 30)) << "more room never shows less";
    last = display_width(line);
    if (width >= 28) {
      EXPECT_NE(line.find("loss  3.1416"), std::string::npos) << line;
    }
  }
}

TEST(Progress, LiveLineIsRewritten) {
  Capture c;
  Progress p({.out = c.file, .live_seconds = 0, .live = 1, .width = 60, .color = 0});
  for (int64_t i = 1; i <= 5; ++i) p.step(report(i));
  auto lines = screen(c.text());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], progress_line(report(5), 59));
  p.message("saved a checkpoint\nof two lines\n");
  lines = screen(c.text());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "saved a checkpoint");
  EXPECT_EQ(lines[1], "of two lines");
  EXPECT_EQ(lines[2], progress_line(report(5), 59)) << "the live line stays below";
  p.finish();
  EXPECT_EQ(screen(c.text()).back(), "");
  p.message("after");
  lines = screen(c.text());
  EXPECT_EQ(lines[lines.size() - 2], "after");
  EXPECT_EQ(c.text().find("\x1b[3"), std::string::npos) << "no color when told so";
}

TEST(Progress, LiveLineIsThrottledButEndsWithTheLastStep) {
  Capture c;
  {
    Progress p({.out = c.file, .live_seconds = 1000, .live = 1, .width = 200, .color = 0});
    for (int64_t i = 1; i <= 50; ++i) p.step(report(i));
    EXPECT_EQ(screen(c.text())[0], progress_line(report(1), 199));
  }
  EXPECT_EQ(screen(c.text())[0], progress_line(report(50), 199));
}

TEST(Progress, PlainLines) {
  Capture c;
  {
    Progress p({.out = c.file, .every_steps = 10, .every_seconds = 0, .live = 0, .color = 0});
    for (int64_t i = 1; i <= 25; ++i) p.step(report(i));
    p.warning("something");
  }
  EXPECT_EQ(c.text().find('\r'), std::string::npos);
  EXPECT_EQ(c.text().find('\x1b'), std::string::npos);
  auto lines = split(c.text(), '\n');
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], progress_line(report(1), 1000));
  EXPECT_EQ(lines[1], progress_line(report(11), 1000));
  EXPECT_EQ(lines[2], progress_line(report(21), 1000));
  EXPECT_EQ(lines[3], "warning: something");
  EXPECT_EQ(lines[4], progress_line(report(25), 1000)) << "the last one is always shown";
}

TEST(Progress, QuietShowsMessagesOnly) {
  Capture c;
  {
    Progress p({.out = c.file, .quiet = true, .live = 1, .color = 1});
    p.step(report(1));
    p.warning("hot");
  }
  EXPECT_EQ(c.text(), "\x1b[33mwarning: hot\x1b[0m\n");
}
