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

// "-38.1 ms", or "-0.062 ms per 1000 tokens".
std::string time_text(const RunComparison& c, double ms, double ms_per_token) {
  return c.per_token ? format_ms_signed(1e3 * ms_per_token) + " per 1000 tokens" : format_ms_signed(ms);
}

double efficiency(const GroupSide& s) { return s.ms > 0 ? 100 * s.floor_ms / s.ms : 0; }
std::string first(const std::vector<std::string>& list) { return list.empty() ? "?" : list[0]; }

// The figures behind the factor that moved a group most; work is of the step, or of 1000 tokens.
std::string factor_text(const RunComparison& all, const Cause& c) {
  const char* what = label(c.main_factor);
  auto work = [&](double a, double b, const char* unit) {
    if (!all.per_token) return fmt::format("{} {} -> {}", what, format_si(a, unit), format_si(b, unit));
    return fmt::format("{} {} -> {} per 1000 tokens", what, format_si(1e3 * a / double(all.a.tokens), unit),
                       format_si(1e3 * b / double(all.b.tokens), unit));
  };
  switch (c.main_factor) {
    case Factor::flops: return work(c.a.flops, c.b.flops, "FLOP");
    case Factor::rate: return fmt::format("{} ({} -> {})", what, first(c.a.arithmetic), first(c.b.arithmetic));
    case Factor::bytes: return work(c.a.bytes, c.b.bytes, "B");
    case Factor::efficiency:
      return fmt::format("{} {:.0f}% -> {:.0f}% of the limit", what, efficiency(c.a), efficiency(c.b));
    default: return what;
  }
}

std::string sentence(const RunComparison& c, const Cause& cause) {
  if (!c.a.profiled || !c.b.profiled)
    return fmt::format("{}{}{}: {}: {} -> {}, memory traffic {} -> {}", cause.label, cause.phase.empty() ? "" : ", ",
                       cause.phase, change_text(cause), format_si(cause.a.flops, "FLOP"),
                       format_si(cause.b.flops, "FLOP"), format_si(cause.a.bytes, "B"), format_si(cause.b.bytes, "B"));
  return fmt::format("{}{}{}: {}: {}{}, mostly {}", cause.label, cause.phase.empty() ? "" : ", ", cause.phase,
                     change_text(cause), time_text(c, cause.ms, cause.ms_per_token), share_text(c, cause.share),
                     factor_text(c, cause));
}

std::string sentence(const RunComparison& c, const LeverEffect& e) {
  std::string what =
      e.lever.empty() ? "not explained by what was changed" : fmt::format("{} {} -> {}", e.lever, e.a, e.b);
  return fmt::format("{}: {}{}", what, time_text(c, e.ms, e.ms_per_token), share_text(c, e.share));
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
  double a = c.a.step_ms, b = c.b.step_ms, ratio = c.noise.ratio;
  std::string steps = "step " + format_ms_pair(a, b);
  if (c.per_token && c.a.tokens != c.b.tokens)
    steps = fmt::format("{} -> {} tokens/s; a step is {} tokens in {} -> {} in {}", format_count(c.a.tokens_per_second),
                        format_count(c.b.tokens_per_second), c.a.tokens, format_ms(a), c.b.tokens, format_ms(b));
  const char* what = c.per_token ? " by token" : "";
  switch (c.noise.verdict) {
    case Verdict::b_faster: return fmt::format("B is {} faster{} ({})", times(1 / ratio), what, steps);
    case Verdict::a_faster: return fmt::format("B is {} slower{} ({})", times(ratio), what, steps);
    case Verdict::cannot_tell: break;
  }
  return fmt::format("Which one is faster{} cannot be told ({}; noise floor {:.1f}%)", what, steps,
                     100 * c.noise.floor);
}

std::string memory(const RunComparison& c) {
  double a = double(c.a.planned_bytes), b = double(c.b.planned_bytes);
  if (a <= 0 || b <= 0) return "";
  if (std::abs(a - b) < 0.001 * std::max(a, b)) return fmt::format("both need {} of memory", format_bytes(a));
  return fmt::format("{} {} {} memory ({} -> {})", c.a.step_ms > 0 && told(c) ? "needs" : "B needs",
                     format_bytes(std::abs(a - b)), b < a ? "less" : "more", format_bytes(a), format_bytes(b));
}

// Groups of the same name over all phases.
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
    if (cause.significant && !t.largest) t.largest = &cause;  // they are sorted
  }
  Theme best;
  for (auto& [label, t] : themes)
    if (t.largest && t.share > best.share) best = t;
  return best;
}

std::string counted(int64_t n) { return fmt::format("{} instruction{}", n, n == 1 ? "" : "s"); }

// " (attention naive -> flash)": the change of the recipe behind a group.
std::string lever_text(const RunComparison& all, const Cause& c) {
  for (auto& l : all.levers)
    if (!c.levers.empty() && l.lever == c.levers[0]) return fmt::format(" ({} {} -> {})", l.lever, l.a, l.b);
  return "";
}

std::string reason(const RunComparison& all, const Theme& t) {
  const Cause& c = *t.largest;
  std::string written = t.quadratic_a && !t.quadratic_b ? " that write T x T buffers" : "";
  if (c.a.instructions && c.b.instructions && !same_instructions(c))
    return fmt::format("{} runs as {} instead of {}{}{}", t.label, counted(t.instructions_b), t.instructions_a, written,
                       lever_text(all, c));
  return fmt::format("of {}: {}{}", t.label, factor_text(all, c), lever_text(all, c));
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
  return say("of something that the profile does not see", "of something that the profile does not see");
}

std::string portion(double share) {
  if (share > 1.005) return "more than all of it";
  return fmt::format("{} ({:.0f}%)", share >= 0.5 ? "most of it" : "the largest part", 100 * share);
}

std::string because(const RunComparison& c) {
  double difference = c.explained_difference();
  if (!told(c) || difference == 0 || c.causes.empty() || !c.a.profiled || !c.b.profiled) return "";
  Theme theme = largest_theme(c);
  const WaterfallBar* bar = nullptr;
  auto of = [&](const WaterfallBar& w) { return (c.per_token ? w.ms_per_token : w.ms) / difference; };
  for (auto& w : c.waterfall)
    if (!bar || of(w) > of(*bar)) bar = &w;
  double of_bar = bar ? of(*bar) : 0;
  // A group says more than a factor; a factor that explains most of it says more than a group that does not.
  if (theme.largest && (theme.share >= 0.5 || theme.share >= of_bar))
    return fmt::format("{} because {}", portion(theme.share), reason(c, theme));
  return bar && of_bar > 0.1 ? fmt::format("{} because {}", portion(of_bar), reason(*bar, difference < 0)) : "";
}

std::string headline(const RunComparison& c) {
  if (c.a.out_of_memory || c.b.out_of_memory) {
    auto side = [](const ComparedRun& r, const char* name) {
      std::string needs = r.planned_bytes > 0 ? format_bytes(double(r.planned_bytes)) : "an unknown amount";
      if (r.out_of_memory) return fmt::format("{} does not fit in memory (it needs {})", name, needs);
      return fmt::format("{} runs ({} a step, {})", name, format_ms(r.step_ms), needs);
    };
    return fmt::format("{}, {}.", side(c.a, "A"), side(c.b, "B"));
  }
  std::string text = c.a.step_ms > 0 && c.b.step_ms > 0 ? speed(c) : "";
  if (std::string m = memory(c); !m.empty()) text += (text.empty() ? "" : told(c) ? " and " : "; ") + m;
  if (std::string why = because(c); !why.empty()) text += "; " + why;
  if (text.empty()) return "";
  text[0] = char(std::toupper(text[0]));
  return text + ".";
}

// ---- what follows -------------------------------------------------------------------------------------------------

std::string changed_sentence(const RunComparison& c) {
  std::vector<std::string> changes;
  for (const char* section : {"recipe", "device", "versions"})
    for (auto& d : c.differences) {
      if (d.section != section) continue;
      if (d.section == "recipe")
        changes.push_back(fmt::format("{} ({} -> {})", d.key, d.a, d.b));
      else if (changes.empty() || changes.back() != section)
        changes.push_back(section);
    }
  if (!changes.empty())
    return fmt::format("{}: {}.", changes.size() == 1 ? "One change" : "Changes", join(changes, ", "));
  return c.join == "scopes" ? "Recipe, device and versions are the same, as far as they are known." : "";
}

std::string levers_sentence(const RunComparison& c) {
  if (!told(c) || c.levers.size() < 2) return "";
  std::vector<std::string> parts;
  for (auto& l : c.levers)
    if (!l.lever.empty() && std::abs(l.share) >= 0.01)
      parts.push_back(fmt::format("{} {:.0f}%", l.lever, 100 * l.share));
  return parts.size() < 2 ? "" : fmt::format("Of the difference in time: {}.", join(parts, ", "));
}

// What can be said of the work where times are missing.
std::string work_sentence(const RunComparison& c) {
  if (c.causes.empty() || (c.a.profiled && c.b.profiled)) return "";
  GroupSide a, b;
  for (auto& cause : c.causes)
    for (auto [sum, side] : {std::pair{&a, &cause.a}, std::pair{&b, &cause.b}})
      sum->instructions += side->instructions, sum->flops += side->flops, sum->bytes += side->bytes;
  return fmt::format("By their Programs: {} -> {} instructions, {} -> {}, memory traffic {} -> {}.", a.instructions,
                     b.instructions, format_si(a.flops, "FLOP"), format_si(b.flops, "FLOP"), format_si(a.bytes, "B"),
                     format_si(b.bytes, "B"));
}

std::string memory_sentence(const RunComparison& c) {
  double difference = double(c.planned_difference());
  if (c.memory_causes.empty() || std::abs(difference) < 0.001 * double(c.a.planned_bytes)) return "";
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

// What was done, without how often: "12 x matmul" is "matmul".
std::string operation(const std::string& counted) {
  size_t space = counted.rfind(' ');
  return space == std::string::npos ? counted : counted.substr(space + 1);
}

}  // namespace

bool same_instructions(const Cause& c) {
  int64_t a = std::max(1, c.a.layers), b = std::max(1, c.b.layers);
  auto per_layer = [](const GroupSide& s, int64_t layers) {
    std::map<std::string, double> list;
    for (auto& op : s.ops) list[operation(op)] = std::atof(op.c_str()) / double(layers);
    return list;
  };
  // One of a kind in all (the norm behind the last layer) may stand in a group of layers.
  auto x = per_layer(c.a, a), y = per_layer(c.b, b);
  if (x.size() != y.size()) return false;
  for (auto& [op, n] : x)
    if (auto it = y.find(op); it == y.end() || std::abs(it->second - n) >= 0.5) return false;
  return true;
}

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
  if (!same_instructions(c)) return fmt::format("{} -> {}", ops_text(c.a), ops_text(c.b));
  std::vector<std::string> changes;
  if (c.a.layers != c.b.layers) changes.push_back(fmt::format("{} -> {} layers", c.a.layers, c.b.layers));
  auto shape = [](const std::string& type) { return type.substr(std::min(type.find('['), type.size())); };
  if (shape(c.a.type) != shape(c.b.type) && !c.a.type.empty() && !c.b.type.empty())
    changes.push_back(fmt::format("{} {} -> {}", operation(first(c.a.ops)), c.a.type, c.b.type));
  else if (first(c.a.arithmetic) != first(c.b.arithmetic))
    changes.push_back(fmt::format("{} -> {}", first(c.a.arithmetic), first(c.b.arithmetic)));
  else if (first(c.a.kernels) != first(c.b.kernels))
    changes.push_back(fmt::format("{} -> {}", first(c.a.kernels), first(c.b.kernels)));
  return changes.empty() ? "the same instructions" : join(changes, "; ");
}

void write_sentences(RunComparison& c) {
  for (auto& cause : c.causes) cause.sentence = sentence(c, cause);
  for (auto& lever : c.levers) lever.sentence = sentence(c, lever);
  for (auto& m : c.memory_causes) m.sentence = sentence(m);
  for (auto& text : {headline(c), changed_sentence(c), levers_sentence(c), work_sentence(c), memory_sentence(c),
                     training_sentence(c)})
    if (!text.empty()) c.sentences.push_back(text);
}

}  // namespace crest
