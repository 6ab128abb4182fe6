#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/text.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct Field {
  int importance;  // 0 is dropped last
  std::string text;
};

// Five characters, so that the columns behind it stay in their places: 0.726, 12.30, 4e+06.
std::string five_wide(double x) {
  const double size = std::abs(x);
  const bool plain = x == 0 || (size >= 1e-3 && size < 99999.5) || !std::isfinite(x);
  const int digits = size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0;
  return plain ? fmt::format("{:>5.{}f}", x, digits) : fmt::format("{:.0e}", x);
}

std::vector<Field> fields(const StepReport& r) {
  std::vector<Field> f;
  if (r.total_steps > 0) {
    auto total = fmt::format("{}", r.total_steps);
    f.push_back({0, fmt::format("step {:>{}}/{}", r.step, total.size(), total)});
  } else {
    f.push_back({0, fmt::format("step {}", r.step)});
  }
  f.push_back({1, fmt::format("loss {:>7.{}f}", r.loss, r.loss < 99.99995 ? 4 : r.loss < 999.9995 ? 3 : 2)});
  if (!(r.grad_norm < 0)) f.push_back({5, "norm " + five_wide(r.grad_norm)});
  if (r.lr >= 0) f.push_back({6, fmt::format("lr {:.2e}", r.lr)});
  if (r.step_ms >= 0) f.push_back({4, fmt::format("{:>5.{}f} ms", r.step_ms, r.step_ms < 99.95 ? 1 : 0)});
  if (r.tokens_per_second >= 0)
    f.push_back({3, fmt::format("{:>6} tok/s", format_count(std::round(r.tokens_per_second)))});
  if (r.flops_per_second >= 0) f.push_back({8, fmt::format("{:>13}", format_si(r.flops_per_second, "FLOP/s"))});
  if (r.memory_bytes >= 0) f.push_back({9, format_bytes(double(r.memory_bytes))});
  if (r.eta_seconds >= 0)
    f.push_back(
        {7, "ETA " + (r.eta_seconds < 60 ? fmt::format("{:.0f} s", r.eta_seconds) : format_duration(r.eta_seconds))});
  if (r.skipped) f.push_back({2, "skipped"});
  return f;
}

// A closed terminal or a full disk must not end the run. fmt::print would throw.
void put(std::FILE* out, const std::string& text) { std::fputs(text.c_str(), out); }

}  // namespace

std::string progress_line(const StepReport& report, int width) {
  auto all = fields(report);
  while (true) {
    std::vector<std::string> texts;
    for (auto& f : all) texts.push_back(f.text);
    std::string line = join(texts, "  ");
    if (display_width(line) <= size_t(std::max(width, 0))) return line;
    auto least = std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.importance < b.importance; });
    if (least->importance <= 1) return fit_width(line, size_t(std::max(width, 0)));
    all.erase(least);
  }
}

Progress::Progress(ProgressOptions options) : options_(options) {
  int fd = fileno(options_.out);
  const char* term = std::getenv("TERM");
  // NO_COLOR is irrelevant: a live line needs only a carriage return and "erase line".
  bool can_move = isatty(fd) && term && *term && std::string_view(term) != "dumb";
  live_ = options_.live >= 0 ? options_.live != 0 : can_move;
  color_ = options_.color >= 0 ? options_.color != 0 : use_color(fd);
}

Progress::~Progress() { finish(); }

void Progress::step(const StepReport& report) {
  if (options_.quiet) return;
  last_ = report;
  pending_ = true;
  double since = since_last_.seconds();
  bool last = report.total_steps > 0 && report.step >= report.total_steps;
  if (live_) {
    if (drawn_ && !last && since < options_.live_seconds) return;
    draw();
  } else {
    bool due = report.step - last_printed_step_ >= options_.every_steps && since >= options_.every_seconds;
    if (any_ && !last && !due) return;
    put(options_.out, fmt::format("{}\n", progress_line(report, 1000)));
    std::fflush(options_.out);
    any_ = true, pending_ = false;
  }
  last_printed_step_ = report.step;
  since_last_ = {};
}

// Some terminals wrap a line of full width, so one column stays free.
void Progress::draw() {
  int width = options_.width > 0 ? options_.width : terminal_width(fileno(options_.out));
  put(options_.out, fmt::format("\r{}\x1b[K", progress_line(last_, width - 1)));
  std::fflush(options_.out);
  drawn_ = true, pending_ = false;
}

void Progress::erase() {
  if (drawn_) put(options_.out, "\r\x1b[K");
}

void Progress::print(std::string_view text, const char* color) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  erase();
  if (color_ && *color)
    put(options_.out, fmt::format("{}{}\x1b[0m\n", color, text));
  else
    put(options_.out, fmt::format("{}\n", text));
  if (drawn_) draw();
  std::fflush(options_.out);
}

void Progress::message(std::string_view text) { print(text, ""); }
void Progress::warning(std::string_view text) { print(fmt::format("warning: {}", text), "\x1b[33m"); }

void Progress::finish() {
  if (live_) {
    if (pending_) draw();
    if (drawn_) put(options_.out, "\n");
  } else if (pending_) {
    put(options_.out, fmt::format("{}\n", progress_line(last_, 1000)));
  }
  std::fflush(options_.out);
  drawn_ = pending_ = false;
}

}  // namespace crest
