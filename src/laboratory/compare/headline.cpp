
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/sentences.h"
#include "compare/waterfall.h"
#include "core/text.h"

namespace crest {

namespace {

std::string times(double ratio) { return fmt::format("{:.2f}x", ratio); }

std::string speed(const RunComparison& c) {
  double a = c.a.step_ms, b = c.b.step_ms, ratio = c.noise.ratio;
  std::string steps = "step " + format_ms_pair(a, b);
  if (c.per_token && c.a.tokens != c.b.tokens)
    steps = fmt::format("{} -> {} tokens/s; steps of {} tokens in {} -> {} in {}", format_count(c.a.tokens_per_second),
                        format_count(c.b.tokens_per_second), c.a.tokens, format_ms(a), c.b.tokens, format_ms(b));
  const char* what = c.per_token ? " per token" : "";
  if (c.too_few_rounds) return fmt::format("Too few rounds to tell a difference in speed{} ({})", what, steps);
  if (!c.apart.empty())
    return fmt::format("Cannot tell a difference in speed{} ({}; measured apart, and {})", what, steps, c.apart);
  if (c.same_runs)
    return fmt::format("No difference in speed{} beyond noise ({}; nothing recorded that affects time differs)", what,
                       steps);
  if (c.scattered)
    return fmt::format("No difference in speed{} beyond noise ({}; equal groups differ by up to {:.0f}%)", what, steps,
                       100 * c.row_noise);
  const char* is = c.a.predicted && c.b.predicted ? "is predicted" : "is";
  switch (c.noise.verdict) {
    case Verdict::b_faster: return fmt::format("{} {} {} faster{} ({})", c.b.title, is, times(1 / ratio), what, steps);
    case Verdict::a_faster: return fmt::format("{} {} {} slower{} ({})", c.b.title, is, times(ratio), what, steps);
    case Verdict::cannot_tell: break;
  }
  return fmt::format("No difference in speed{} beyond noise ({}; noise floor {:.1f}%)", what, steps,
                     100 * c.noise.floor);
}

std::string memory(const RunComparison& c) {
  double a = double(c.a.planned_bytes), b = double(c.b.planned_bytes);
  if (a <= 0 || b <= 0) return "";
  if (std::abs(a - b) < 0.001 * std::max(a, b)) return fmt::format("both need {} of memory", format_bytes(a));
  return fmt::format("{} {} {} memory ({} -> {})", c.a.step_ms > 0 && conclusive(c) ? "needs" : c.b.title + " needs",
                     format_bytes(std::abs(a - b)), b < a ? "less" : "more", format_bytes(a), format_bytes(b));
}

// Groups with the same label, over all phases.
struct Theme {
  std::string label;
  double share = 0;
  int64_t instructions_a = 0, instructions_b = 0;
  bool quadratic_a = false, quadratic_b = false;
  const Cause* largest = nullptr;
};

Theme largest_theme(const RunComparison& c) {
  std::map<std::string, Theme> themes;
  for (auto& cause : c.causes) {
    Theme& t = themes[cause.label];
    t.label = cause.label, t.share += cause.share;
    t.instructions_a += cause.a.instructions, t.instructions_b += cause.b.instructions;
    t.quadratic_a |= cause.a.quadratic, t.quadratic_b |= cause.b.quadratic;
    if (cause.significant && !t.largest) t.largest = &cause;  // sorted by size
  }
  Theme best;
  for (auto& [label, t] : themes) {
    t.share = without_last_bits(t.share);
    if (t.largest && t.share > best.share) best = t;
  }
  return best;
}

std::string counted(int64_t n) { return fmt::format("{} instruction{}", n, n == 1 ? "" : "s"); }

// " (attention naive -> flash)": the setting behind a group.
std::string setting_text(const RunComparison& all, const Cause& c) {
  for (auto& l : all.settings)
    if (!c.settings.empty() && l.setting == c.settings[0]) return fmt::format(" ({} {} -> {})", l.setting, l.a, l.b);
  return "";
}

std::string reason(const RunComparison& all, const Theme& t) {
  const Cause& c = *t.largest;
  auto written = [](bool here, bool there) { return here && !there ? " that write T x T buffers" : ""; };
  bool other_device = std::any_of(all.differences.begin(), all.differences.end(), [](auto& d) {
    return d.section == "device" && (d.key == "kind" || d.key == "name");
  });
  // Another device has other kernels, and their number says little about their time.
  bool by_work = c.main_factor == Factor::flops || c.main_factor == Factor::bytes;
  bool counts = (!other_device || by_work) && c.a.instructions && c.b.instructions && all.a.has_instructions &&
                all.b.has_instructions;
  if (counts && !same_instructions(c) && t.instructions_a == t.instructions_b)
    return fmt::format("{} runs as other instructions ({} -> {}){}", t.label, ops_text(c.a), ops_text(c.b),
                       setting_text(all, c));
  if (counts && !same_instructions(c))
    return fmt::format("{} runs as {}{} instead of {}{}{}", t.label, counted(t.instructions_b),
                       written(t.quadratic_b, t.quadratic_a), t.instructions_a, written(t.quadratic_a, t.quadratic_b),
                       setting_text(all, c));
  return fmt::format("of {}: {}{}", t.label, factor_text(all, c),
                     c.ambiguous ? ", and which change is its cause is unknown" : setting_text(all, c));
}

std::string reason(const WaterfallBar& bar, bool less) {
  auto say = [&](const char* when_less, const char* when_more) {
    return fmt::format("{} ({})", less ? when_less : when_more, bar.detail);
  };
  switch (bar.factor) {
    case Factor::flops: return say("it does less arithmetic", "it does more arithmetic");
    case Factor::rate: return say("its arithmetic is faster", "its arithmetic is slower");
    case Factor::bytes: return say("it moves less memory", "it moves more memory");
    case Factor::bandwidth: return say("its memory is faster", "its memory is slower");
    case Factor::efficiency:
      return say("its kernels are closer to the limit", "its kernels are farther from the limit");
    case Factor::clocks: return say("its clock is higher", "its clock is lower");
    case Factor::communication: return say("it communicates for less time", "it communicates for more time");
    case Factor::unsplit: return say("its kernels take less time", "its kernels take more time");
    case Factor::idle: return say("it idles less between kernels", "it idles more between kernels");
    case Factor::overlap: return say("more of it runs at the same time", "less of it runs at the same time");
    case Factor::residual: break;
  }
  return say("of time that the profile does not explain", "of time that the profile does not explain");
}

std::string portion(double share, bool offset) {
  if (offset) return "mainly";
  return fmt::format("{} of the time difference ({:.0f}%) is", share >= 0.5 ? "most" : "the largest part", 100 * share);
}

// offset: other effects have the opposite sign, so a share of the difference would mislead.
std::string because(double share, const std::string& reason, bool offset) {
  return fmt::format("{} because {}{}", portion(share, offset), reason,
                     offset ? ", which other effects partly offset" : "");
}

std::string because(const RunComparison& c) {
  double difference = c.explained_difference();
  if (!conclusive(c) || difference == 0 || c.causes.empty() || !c.a.profiled || !c.b.profiled) return "";
  Theme theme = largest_theme(c);
  const WaterfallBar* bar = nullptr;
  auto of = [&](const WaterfallBar& w) {
    return without_last_bits((c.per_token ? w.ms_per_token : w.ms) / difference);
  };
  for (auto& w : c.waterfall)
    if (!bar || of(w) > of(*bar)) bar = &w;
  double of_bar = bar ? of(*bar) : 0, against = 0;
  for (auto& w : c.waterfall) against -= std::min(0.0, of(w));
  // A group is more specific than a factor, so it wins unless its share is below half and smaller
  // than the factor's. Unsplit kernel time explains nothing.
  bool explains = bar && bar->factor != Factor::unsplit;
  if (theme.largest && (!explains || theme.share >= 0.5 || theme.share >= of_bar))
    return because(theme.share, reason(c, theme), theme.share > 1.005);
  bool beyond_noise = std::abs(of_bar * difference) > c.explained_noise;
  return bar && of_bar > 0.1 && beyond_noise ? because(of_bar, reason(*bar, difference < 0), against > 0.1) : "";
}

}  // namespace

std::string scaling_sentence(const Scaling& s) {
  std::string steps = fmt::format("a step takes {} instead of {}", format_ms(s.step_ms), format_ms(s.ideal_ms));
  std::string text =
      s.beyond_noise
          ? fmt::format("{} ranks reach {:.1f}% of ideal speed: {}", s.more_ranks, 100 * s.efficiency(), steps)
          : fmt::format("No difference between {} ranks and ideal speed beyond noise ({}; noise floor {:.1f}%)",
                        s.more_ranks, steps, 100 * s.noise_floor);
  if (!s.same_work) text += " (a rank has another number of tokens, so this is not the loss by communication alone)";
  const ScalingRow* most = nullptr;
  for (auto& r : s.rows)
    if (!most || r.ms > most->ms) most = &r;
  if (s.beyond_noise && s.lost_ms() > 0 && most && most->ms > 0)
    text += fmt::format("; the largest part of the loss is {} ({})", most->label, format_ms_signed(most->ms));
  return text + ".";
}

std::string headline(const RunComparison& c) {
  if (c.a.out_of_memory || c.b.out_of_memory) {
    auto side = [](const ComparedRun& r) {
      std::string needs = r.planned_bytes > 0 ? format_bytes(double(r.planned_bytes)) : "an unknown amount";
      if (r.out_of_memory) return fmt::format("{} does not fit in memory (needs {})", r.title, needs);
      return fmt::format("{} runs ({} per step, {})", r.title, format_ms(r.step_ms), needs);
    };
    return fmt::format("{}, {}.", side(c.a), side(c.b));
  }
  std::string text = c.a.step_ms > 0 && c.b.step_ms > 0 ? speed(c) : "";
  if (std::string m = memory(c); !m.empty()) text += (text.empty() ? "" : conclusive(c) ? " and " : "; ") + m;
  if (std::string why = because(c); !why.empty()) text += "; " + why;
  if (text.empty()) return "";
  text[0] = char(std::toupper(text[0]));
  return text + ".";
}

}  // namespace crest
