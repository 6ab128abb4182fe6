#include "compare/compare_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/sentences.h"
#include "compare/waterfall.h"
#include "core/text.h"
#include "terminal/fit_table.h"
#include "terminal/table.h"

namespace crest {

namespace {

std::string bytes_signed(double b) { return b == 0 ? "" : (b < 0 ? "-" : "+") + format_bytes(std::abs(b)); }

// Lines of at most `width` columns. Text from files is made printable.
std::string lines_of(const std::string& text, int width) {
  return wrapped(printable(text, 1 << 20), {.width = size_t(width)}) + "\n";
}
std::string bullet(const std::string& text, int width) {
  return wrapped("- " + printable(text, 1 << 20), {.width = size_t(width), .indent = "  "}) + "\n";
}

class Text {
 public:
  Text(const RunComparison& comparison, const CompareTextOptions& options) : c_(comparison), o_(options) {}

  std::string run() {
    // The first sentence answers the question, the others explain it.
    for (size_t i = 0; i < c_.sentences.size(); ++i) out_ += (i == 1 ? "\n" : "") + lines_of(c_.sentences[i], o_.width);
    runs();
    differences();
    scaling();
    waterfall();
    causes();
    work();
    settings();
    memory();
    training();
    notes();
    return std::move(out_);
  }

 private:
  // Whether one of the sentences at the top has this.
  bool says(const std::string& text) const {
    return std::any_of(c_.sentences.begin(), c_.sentences.end(),
                       [&](auto& s) { return s.find(text) != std::string::npos; });
  }
  void title(const std::string& text) { out_ += fmt::format("\n{}\n", text); }
  void table(const Table& t) { out_ += t.text(o_.color); }
  std::string cell(const std::string& text, size_t width = 40) { return fit_width(printable(text), width); }

  void runs() {
    std::vector<FitColumn> columns = {{{"", Align::left}}, {{"step"}}, {{"tokens/s"}}, {{"planned memory"}}};
    columns.push_back({{"device", Align::left}, 2});
    columns.push_back({{"run", Align::left}, 1});
    std::vector<std::vector<std::string>> rows;
    for (const ComparedRun* r : {&c_.a, &c_.b}) {
      auto known = [](double x, const std::string& text) { return x > 0 ? text : "-"; };
      rows.push_back({cell(r->title), r->out_of_memory ? "out of memory" : known(r->step_ms, format_ms(r->step_ms)),
                      known(r->tokens_per_second, format_count(r->tokens_per_second)),
                      known(double(r->planned_bytes), format_bytes(double(r->planned_bytes))), cell(r->device),
                      cell(r->name.empty() ? r->uid : r->name)});
    }
    out_ += "\n" + fit_table(columns, rows, size_t(o_.width), o_.color);
    if (!c_.noise.tested) return;
    const std::string floor = fmt::format("noise floor {:.1f}%", 100 * c_.noise.floor);
    const bool assumed = c_.noise.floor_source == "assumed";  // a note says so
    out_ += fmt::format("step time B / A: {:.3f} (95% interval {:.3f} to {:.3f}{}{})\n", c_.noise.ratio,
                        c_.noise.ratio_interval.low, c_.noise.ratio_interval.high,
                        says(floor) ? assumed ? "" : "; noise floor: " : "; " + floor + (assumed ? "" : ", "),
                        assumed ? "" : c_.noise.floor_source);
  }

  void differences() {
    const bool named = names_changed_settings(c_);  // in a sentence
    if (std::all_of(c_.differences.begin(), c_.differences.end(),
                    [&](auto& d) { return named && d.section == "recipe"; }))
      return;
    title("What differs");
    Table t({{"", Align::left}, {"what", Align::left}, {"A", Align::left}, {"B", Align::left}});
    std::string section;
    int rows = 0, left_out = 0;
    for (auto& d : c_.differences) {
      if (named && d.section == "recipe") continue;
      if (d.section != section) rows = 0;
      if (++rows > o_.top) {
        ++left_out;
        continue;
      }
      t.row({d.section == section ? "" : d.section, cell(d.key, 44), cell(d.a, 36), cell(d.b, 36)});
      section = d.section;
    }
    table(t);
    if (left_out) out_ += fmt::format("  and {} more (--top, --json)\n", left_out);
  }

  void scaling() {
    if (!c_.scaling) return;
    const Scaling& s = *c_.scaling;
    title(fmt::format("Scaling from {} to {} ranks", s.few_ranks, s.more_ranks));
    out_ += lines_of(scaling_sentence(s), o_.width);
    Table t({{"", Align::left}, {"time"}, {"", Align::left}});
    t.row({"ideal", format_ms(s.ideal_ms),
           fmt::format("a step of {}{}", printable(s.few), s.same_work ? "" : ", scaled by the tokens of a rank")});
    double rest = 0;
    for (auto& r : s.rows)
      if (std::abs(r.ms) < 5e-4 * s.step_ms)
        rest += r.ms;
      else
        t.row({"  " + r.label, format_ms_signed(r.ms), cell(r.detail, 48)});
    if (rest != 0) t.row({"  smaller parts", format_ms_signed(rest), ""});
    t.row({cell(s.more), format_ms(s.step_ms), ""});
    table(t);
  }

  // A bar from the time before this factor to the time after it.
  std::string bar(double from, double to, double low, double high, int width) const {
    auto place = [&](double x) { return high > low ? (x - low) / (high - low) * width : 0.0; };
    double left = place(std::min(from, to)), right = place(std::max(from, to));
    int start = int(std::floor(left)), end = std::max(int(std::ceil(right)), start + 1);
    std::string text(size_t(start), ' ');
    for (int i = start; i < end; ++i) text += to < from ? "▒" : "█";
    return text;
  }

  void waterfall() {
    if (c_.waterfall.empty()) return;
    title(c_.per_token ? "Where the time went (times per 1000 tokens)" : "Where the time went");
    auto of_run = [&](const ComparedRun& r) { return c_.per_token ? 1e3 * r.step_ms / double(r.tokens) : r.step_ms; };
    auto of_bar = [&](const WaterfallBar& w) { return c_.per_token ? 1e3 * w.ms_per_token : w.ms; };
    double from = of_run(c_.a), to = of_run(c_.b), at = from, low = std::min(from, to), high = std::max(from, to);
    for (auto& w : c_.waterfall) at += of_bar(w), low = std::min(low, at), high = std::max(high, at);
    low = std::max(std::min(0.0, low), low - 0.15 * (high - low));  // partial sums may be negative
    int width = std::clamp(o_.width - 66, 12, 40);
    Table t({{"", Align::left}, {"time"}, {"", Align::left}, {"", Align::left}});
    auto row = [&](const std::string& name, const std::string& time, const std::string& picture,
                   const std::string& detail) {
      t.row({name, time, picture, cell(detail, 48)});
    };
    row(cell(c_.a.title), format_ms(from), bar(low, from, low, high, width), "");
    at = from;
    double rest = 0;
    for (auto& w : c_.waterfall) {
      double ms = of_bar(w);
      if (std::abs(ms) < 5e-4 * std::max(from, to))
        rest += ms;
      else
        row(std::string("  ") + label(w.factor), format_ms_signed(ms), bar(at, at + ms, low, high, width), w.detail);
      at += ms;
    }
    if (rest != 0) row("  smaller parts", format_ms_signed(rest), "", "");
    row(cell(c_.b.title), format_ms(to), bar(low, to, low, high, width), "");
    table(t);
  }

  void causes() {
    std::vector<const Cause*> shown;
    for (auto& c : c_.causes)
      if (c.significant && int(shown.size()) < o_.top) shown.push_back(&c);
    if (shown.empty()) return;
    title(c_.per_token ? "Causes (times per 1000 tokens)" : "Causes");
    Table t({{"", Align::left}, {"A"}, {"B"}, {"difference"}, {"share"}, {"change", Align::left}});
    const bool claimed = conclusive(c_);
    double scale_a = c_.per_token ? 1e3 / double(c_.a.tokens) : 1,
           scale_b = c_.per_token ? 1e3 / double(c_.b.tokens) : 1;
    size_t width = size_t(std::clamp(o_.width - 60, 20, 48));
    for (auto* c : shown)
      t.row({cell(c->label + (c->phase.empty() ? "" : ", " + c->phase), width), format_ms(scale_a * c->a.ms),
             format_ms(scale_b * c->b.ms), format_ms_signed(c_.per_token ? 1e3 * c->ms_per_token : c->ms),
             claimed ? fmt::format("{:.0f}%", 100 * c->share) : "-", cell(join(c->settings, ", "))});
    table(t);
    out_ += "\n";
    for (auto* c : shown) out_ += bullet(c->sentence, o_.width);
  }

  // For Programs without times.
  void work() {
    if (c_.causes.empty() || (c_.a.profiled && c_.b.profiled)) return;
    Table t({{"", Align::left}, {"FLOPs A"}, {"FLOPs B"}, {"traffic A"}, {"traffic B"}});
    int rows = 0;
    for (auto& c : c_.causes)
      if ((c.a.bytes != c.b.bytes || c.a.flops != c.b.flops) && ++rows <= o_.top)
        t.row({cell(c.label + (c.phase.empty() ? "" : ", " + c.phase), 48), format_si(c.a.flops, "FLOP"),
               format_si(c.b.flops, "FLOP"), format_si(c.a.bytes, "B"), format_si(c.b.bytes, "B")});
    if (!rows) return;
    title("Work of the Programs (times of instructions were not measured)");
    table(t);
  }

  void settings() {
    auto named = std::count_if(c_.settings.begin(), c_.settings.end(), [](auto& l) { return !l.setting.empty(); });
    if (named < 2 || !attributable(c_)) return;
    title(fmt::format("Effect of each change ({})", attribution_text(c_)));
    for (auto& l : c_.settings)
      if (l.measured || (std::abs(l.share) >= 0.005 && beyond_noise(c_, l))) out_ += bullet(l.sentence, o_.width);
  }

  void memory() {
    if (c_.memory.empty()) return;
    title("Memory");
    Table t({{"", Align::left}, {"A"}, {"B"}, {"difference"}});
    MemoryRow sum{"planned", 0, 0};
    for (auto& row : c_.memory) {
      t.row({cell(row.label), format_bytes(double(row.a)), format_bytes(double(row.b)),
             bytes_signed(double(row.b - row.a))});
      sum.a += row.a, sum.b += row.b;
    }
    t.rule();
    t.row({sum.label, format_bytes(double(sum.a)), format_bytes(double(sum.b)), bytes_signed(double(sum.b - sum.a))});
    auto measured = [&](const char* label, int64_t a, int64_t b) {
      if (a > 0 && b > 0) t.row({label, format_bytes(double(a)), format_bytes(double(b)), bytes_signed(double(b - a))});
    };
    measured("held (arenas)", c_.a.measured_peak_bytes, c_.b.measured_peak_bytes);
    measured("process or device peak", c_.a.device_peak_bytes, c_.b.device_peak_bytes);
    table(t);
    if (!c_.memory_causes.empty()) out_ += "\n";
    for (size_t i = 0; i < c_.memory_causes.size() && int(i) < o_.top; ++i)
      if (!says(c_.memory_causes[i].sentence)) out_ += bullet(c_.memory_causes[i].sentence, o_.width);
    auto place = [](const PeakHolder& p) {
      return fmt::format("{} at {} ({} of {})", p.op, p.scope, p.phase, p.program);
    };
    const PeakHolder &a = c_.peak_a, &b = c_.peak_b;
    if (!a.op.empty() && !b.op.empty() && place(a) == place(b)) {
      out_ += lines_of(fmt::format("Peak of both: {}, {} of transient memory in use.", place(a),
                                   a.live_bytes == b.live_bytes
                                       ? format_bytes(double(a.live_bytes))
                                       : fmt::format("{} ({}) and {} ({})", format_bytes(double(a.live_bytes)),
                                                     c_.a.title, format_bytes(double(b.live_bytes)), c_.b.title)),
                       o_.width);
      return;
    }
    for (auto& [title, p] : {std::pair{&c_.a.title, &c_.peak_a}, std::pair{&c_.b.title, &c_.peak_b}})
      if (!p->op.empty())
        out_ += lines_of(fmt::format("Peak of {}: {}, {} of transient memory in use.", *title, place(*p),
                                     format_bytes(double(p->live_bytes))),
                         o_.width);
  }

  void training() {
    if (c_.training.loss.empty() && c_.training.val_loss.empty()) return;
    title("Loss at the same step");
    Table t({{"step"}, {"what", Align::left}, {"A"}, {"B"}, {"difference"}});
    auto add = [&](const std::vector<LossRow>& rows, const char* what) {
      size_t shown = std::min(rows.size(), size_t(std::max(1, o_.top)));
      for (size_t i = 0; i < shown; ++i) {
        const LossRow& r = rows[shown == 1 ? rows.size() - 1 : i * (rows.size() - 1) / (shown - 1)];
        t.row({fmt::format("{}", r.step), what, fmt::format("{:.4f}", r.a), fmt::format("{:.4f}", r.b),
               fmt::format("{:+.4f}", r.b - r.a)});
      }
    };
    add(c_.training.loss, "loss");
    add(c_.training.val_loss, "validation");
    table(t);
  }

  void notes() {
    if (!c_.notes.empty()) title("Notes");
    for (auto& n : c_.notes) out_ += bullet(n, o_.width);
  }

  const RunComparison& c_;
  const CompareTextOptions& o_;
  std::string out_;
};

}  // namespace

std::string compare_text(const RunComparison& comparison, const CompareTextOptions& options) {
  return Text(comparison, options).run();
}

}  // namespace crest
