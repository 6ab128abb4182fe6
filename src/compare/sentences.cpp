#include "compare/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/waterfall.h"
#include "core/text.h"

namespace crest {

namespace {

bool told(const RunComparison& c) { return c.noise.verdict != Verdict::cannot_tell; }

std::string share_text(const RunComparison& c, double share) {
  return told(c) ? fmt::format(" ({:.0f}% of the difference)", 100 * share) : "";
}

std::string bytes_signed(double bytes) { return (bytes < 0 ? "-" : "+") + format_bytes(std::abs(bytes)); }

std::string phase_of(const Cause& c) { return c.phase.empty() ? c.label : c.label + ", " + c.phase; }

double efficiency(const GroupSide& s) { return s.ms > 0 ? 100 * s.floor_ms / s.ms : 0; }

// The figures behind the factor that moved a group most.
std::string factor_text(const Cause& c) {
  auto first = [](const GroupSide& s) { return s.arithmetic.empty() ? std::string("?") : s.arithmetic[0]; };
  switch (c.main_factor) {
    case Factor::flops: return fmt::format("{} -> {}", format_si(c.a.flops, "FLOP"), format_si(c.b.flops, "FLOP"));
    case Factor::rate: return fmt::format("arithmetic in {} -> {}", first(c.a), first(c.b));
    case Factor::bytes:
      return fmt::format("memory traffic {} -> {}", format_si(c.a.bytes, "B"), format_si(c.b.bytes, "B"));
    case Factor::efficiency: return fmt::format("{:.0f}% -> {:.0f}% of the limit", efficiency(c.a), efficiency(c.b));
    default: return label(c.main_factor);
  }
}

std::string sentence(const RunComparison& c, const Cause& cause) {
  return fmt::format("{}: {}: {}{}, mostly {}", phase_of(cause), change_text(cause), format_ms_signed(cause.ms),
                     share_text(c, cause.share), factor_text(cause));
}

std::string sentence(const RunComparison& c, const LeverEffect& e) {
  std::string groups = fmt::format("{} group{}", e.groups, e.groups == 1 ? "" : "s");
  std::string what = e.lever.empty() ? "not explained by the recipe" : fmt::format("{} {} -> {}", e.lever, e.a, e.b);
  return fmt::format("{}: {} in {}{}", what, format_ms_signed(e.ms), groups, share_text(c, e.share));
}

std::string sentence(const MemoryCause& m) {
  auto held = [](int64_t bytes, int blocks) {
    if (!blocks) return std::string("none");
    return fmt::format("{} in {} block{}", format_bytes(double(bytes)), blocks, blocks == 1 ? "" : "s");
  };
  std::string what = m.quadratic ? "T x T buffers of " + m.label : m.label;
  auto type = [](const std::string& t) { return t.substr(0, t.find('[')); };
  bool retyped = !m.type_a.empty() && !m.type_b.empty() && type(m.type_a) != type(m.type_b);
  return fmt::format("{} ({}): {}, {} -> {}{}", what, m.category, bytes_signed(double(m.b - m.a)),
                     held(m.a, m.blocks_a), held(m.b, m.blocks_b),
                     retyped ? fmt::format(", {} -> {}", type(m.type_a), type(m.type_b)) : "");
}

// ---- the first sentence -------------------------------------------------------------------------------------------

std::string times(double ratio) { return fmt::format("{:.2f}x", ratio); }

std::string speed(const RunComparison& c) {
  double a = c.a.step_ms, b = c.b.step_ms;
  bool tokens = c.a.tokens > 0 && c.b.tokens > 0 && c.a.tokens != c.b.tokens;
  if (tokens) {
    double ratio = (double(c.b.tokens) / b) / (double(c.a.tokens) / a);
    return fmt::format("B does {} the tokens a second ({} -> {}; a step is {} tokens in {} -> {} tokens in {})",
                       times(ratio), format_count(c.a.tokens_per_second), format_count(c.b.tokens_per_second),
                       c.a.tokens, format_ms(a), c.b.tokens, format_ms(b));
  }
  std::string steps = fmt::format("step {} -> {}", format_ms(a), format_ms(b));
  switch (c.noise.verdict) {
    case Verdict::b_faster: return fmt::format("B is {} faster ({})", times(a / b), steps);
    case Verdict::a_faster: return fmt::format("B is {} slower ({})", times(b / a), steps);
    case Verdict::cannot_tell: break;
  }
  return fmt::format("which one is faster cannot be told ({}, noise floor {:.1f}%)", steps, 100 * c.noise.floor);
}

std::string memory(const RunComparison& c) {
  double a = double(c.a.planned_bytes), b = double(c.b.planned_bytes);
  if (a <= 0 || b <= 0) return "";
  std::string sizes = fmt::format("({} -> {})", format_bytes(a), format_bytes(b));
  if (std::abs(a - b) < 0.001 * std::max(a, b)) return fmt::format("both need {} of memory", format_bytes(a));
  return fmt::format("B needs {} {} memory {}", format_bytes(std::abs(a - b)), b < a ? "less" : "more", sizes);
}

// Groups of the same name over all phases.
struct Theme {
  std::string label;
  double ms = 0, share = 0;
  const Cause* largest = nullptr;
};

Theme largest_theme(const RunComparison& c) {
  std::map<std::string, Theme> themes;
  for (auto& cause : c.causes) {
    if (!cause.significant) continue;
    Theme& t = themes[cause.label];
    t.label = cause.label, t.ms += cause.ms, t.share += cause.share;
    if (!t.largest || std::abs(cause.ms) > std::abs(t.largest->ms)) t.largest = &cause;
  }
  Theme best;
  for (auto& [label, t] : themes)
    if (t.share > best.share) best = t;
  return best;
}

std::string reason(const Theme& t) {
  const Cause& c = *t.largest;
  std::string written = c.a.quadratic && !c.b.quadratic ? " that write T x T buffers" : "";
  if (c.a.instructions && c.b.instructions && c.a.ops != c.b.ops)
    return fmt::format("{} runs as {} instead of {}{}", t.label, ops_text(c.b), ops_text(c.a), written);
  return fmt::format("of {} ({})", t.label, factor_text(c));
}

std::string reason(const WaterfallBar& bar) { return fmt::format("of {} ({})", label(bar.factor), bar.detail); }

std::string portion(double share) {
  if (share > 1.005) return "more than all of it";
  return fmt::format("{} ({:.0f}%)", share >= 0.5 ? "most of it" : "the largest part", 100 * share);
}

std::string because(const RunComparison& c) {
  double difference = c.step_difference();
  if (!told(c) || difference == 0) return "";
  Theme theme = largest_theme(c);
  const WaterfallBar* bar = nullptr;
  for (auto& w : c.waterfall)
    if (w.factor != Factor::residual && (!bar || w.ms / difference > bar->ms / difference)) bar = &w;
  double of_bar = bar ? bar->ms / difference : 0;
  // A group says more than a factor; a factor that explains most of it says more than a group that does not.
  if (theme.largest && (theme.share >= 0.5 || theme.share >= of_bar))
    return fmt::format("{} because {}", portion(theme.share), reason(theme));
  return bar && of_bar > 0.1 ? fmt::format("{} because {}", portion(of_bar), reason(*bar)) : "";
}

std::string headline(const RunComparison& c) {
  if (c.a.out_of_memory || c.b.out_of_memory) {
    auto side = [](const ComparedRun& r, const char* name) {
      if (r.out_of_memory)
        return fmt::format("{} does not fit in memory (it needs {})", name, format_bytes(double(r.planned_bytes)));
      return fmt::format("{} runs ({} a step, {})", name, format_ms(r.step_ms), format_bytes(double(r.planned_bytes)));
    };
    return fmt::format("{}, {}.", side(c.a, "A"), side(c.b, "B"));
  }
  std::string text = c.a.step_ms > 0 && c.b.step_ms > 0 ? speed(c) : "";
  if (std::string m = memory(c); !m.empty()) text += (text.empty() ? "" : ", and ") + m;
  if (std::string why = because(c); !why.empty()) text += "; " + why;
  if (text.empty()) return "";
  text[0] = char(std::toupper(text[0]));
  return text + ".";
}

// ---- what follows -------------------------------------------------------------------------------------------------

std::string recipe_sentence(const RunComparison& c) {
  std::vector<std::string> changes, others;
  for (auto& d : c.differences) {
    if (d.section == "recipe") changes.push_back(fmt::format("{} ({} -> {})", d.key, d.a, d.b));
    if ((d.section == "device" || d.section == "versions") &&
        std::find(others.begin(), others.end(), d.section) == others.end())
      others.push_back(d.section);
  }
  if (changes.empty() && others.empty())
    return c.join.empty() ? "" : "Recipe, device and versions are the same as far as they are known.";
  std::string what = changes.empty() ? "" : join(changes, ", ");
  for (auto& o : others) what += (what.empty() ? "" : ", ") + o;
  bool one = changes.size() + others.size() == 1;
  return fmt::format("{} {}{}.", one ? "Only one thing was changed:" : "Changed:", what,
                     one && told(c) ? ": so all of the difference is its doing" : "");
}

std::string memory_sentence(const RunComparison& c) {
  double difference = double(c.planned_difference());
  if (c.memory_causes.empty() || difference == 0) return "";
  const MemoryCause& m = c.memory_causes[0];
  if (double(m.b - m.a) * difference <= 0) return "";
  return fmt::format("Largest difference in memory: {}.", m.sentence);
}

std::string training_sentence(const RunComparison& c) {
  auto& rows = c.training.val_loss.empty() ? c.training.loss : c.training.val_loss;
  if (rows.empty()) return "";
  const LossRow& last = rows.back();
  return fmt::format("At step {}, the last that both have, {} is {:.4f} (A) and {:.4f} (B).", last.step,
                     c.training.val_loss.empty() ? "the loss" : "the validation loss", last.a, last.b);
}

}  // namespace

std::string ops_text(const GroupSide& side) {
  constexpr size_t shown = 3;
  std::vector<std::string> list(side.ops.begin(), side.ops.begin() + ptrdiff_t(std::min(shown, side.ops.size())));
  std::string text = join(list, ", ");
  size_t rest = side.ops.size() - list.size();
  return rest ? fmt::format("{} and {} other kind{}", text, rest, rest == 1 ? "" : "s") : text;
}

std::string change_text(const Cause& c) {
  if (!c.a.instructions) return fmt::format("only in B ({})", ops_text(c.b));
  if (!c.b.instructions) return fmt::format("only in A ({})", ops_text(c.a));
  if (c.a.ops != c.b.ops) return fmt::format("{} -> {}", ops_text(c.a), ops_text(c.b));
  if (c.a.kernels != c.b.kernels && !c.a.kernels.empty() && !c.b.kernels.empty())
    return fmt::format("{} -> {}", c.a.kernels[0], c.b.kernels[0]);
  if (c.a.arithmetic != c.b.arithmetic && !c.a.arithmetic.empty() && !c.b.arithmetic.empty())
    return fmt::format("{} -> {}", c.a.arithmetic[0], c.b.arithmetic[0]);
  return "the same instructions";
}

void write_sentences(RunComparison& c) {
  for (auto& cause : c.causes) cause.sentence = sentence(c, cause);
  for (auto& lever : c.levers) lever.sentence = sentence(c, lever);
  for (auto& m : c.memory_causes) m.sentence = sentence(m);
  for (auto& text : {headline(c), recipe_sentence(c), memory_sentence(c), training_sentence(c)})
    if (!text.empty()) c.sentences.push_back(text);
}

}  // namespace crest
