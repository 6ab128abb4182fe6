#include "compare/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compare/waterfall.h"
#include "core/text.h"

namespace crest {

namespace {

std::string share_text(const RunComparison& c, double share) {
  share = without_last_bits(share);
  // No minus sign on a printed zero.
  return conclusive(c) ? fmt::format(" ({:.0f}% of the difference)", std::abs(share) < 0.005 ? 0 : 100 * share) : "";
}

std::string signed_bytes(double bytes) { return (bytes < 0 ? "-" : "+") + format_bytes(std::abs(bytes)); }

// "-38.1 ms", or "-0.062 ms per 1000 tokens".
std::string time_text(const RunComparison& c, double ms, double ms_per_token) {
  return c.per_token ? format_ms_signed(1e3 * ms_per_token) + " per 1000 tokens" : format_ms_signed(ms);
}

// A time in the unit of the explained difference.
std::string measured_text(const RunComparison& c, double ms) { return time_text(c, ms, ms); }

std::string first(const std::vector<std::string>& list) { return list.empty() ? "?" : list[0]; }

std::string sentence(const RunComparison& c, const Cause& cause) {
  if (c.a.profiled && c.b.profiled && !(c.a.has_instructions && c.b.has_instructions))
    return fmt::format("{}{}{}: {}: {}{}", cause.label, cause.phase.empty() ? "" : ", ", cause.phase,
                       cause.a.instructions && cause.b.instructions ? format_ms_pair(cause.a.ms, cause.b.ms)
                       : cause.a.instructions                       ? "only in A"
                                                                    : "only in B",
                       time_text(c, cause.ms, cause.ms_per_token), share_text(c, cause.share));
  if (!c.a.profiled || !c.b.profiled)
    return fmt::format("{}{}{}: {}: {} -> {}, memory traffic {} -> {}", cause.label, cause.phase.empty() ? "" : ", ",
                       cause.phase, change_text(c, cause), format_si(cause.a.flops, "FLOP"),
                       format_si(cause.b.flops, "FLOP"), format_si(cause.a.bytes, "B"), format_si(cause.b.bytes, "B"));
  return fmt::format("{}{}{}: {}: {}{}, mostly {}", cause.label, cause.phase.empty() ? "" : ", ", cause.phase,
                     change_text(c, cause), time_text(c, cause.ms, cause.ms_per_token), share_text(c, cause.share),
                     factor_text(c, cause));
}

// The subject of an attribution row.
std::string effect_label(const RunComparison& c, const SettingEffect& e) {
  if (!e.setting.empty()) return fmt::format("{} {} -> {}", e.setting, e.a, e.b);
  return c.attribution.method == AttributionMethod::work ? "cause unknown" : "interaction of the changes";
}

std::string sentence(const RunComparison& c, const SettingEffect& e) {
  std::string text = fmt::format("{}: {}{}", effect_label(c, e), time_text(c, e.ms, e.ms_per_token),
                                 beyond_noise(c, e) ? share_text(c, e.share) : ", within noise");
  if (!e.measured) return text;
  return fmt::format("{}; {} as the only change, {} after all others", text, measured_text(c, e.measured->alone_ms),
                     measured_text(c, e.measured->last_ms));
}

std::string sentence(const MemoryCause& m) {
  auto held = [](int64_t bytes, int blocks) {
    if (!blocks) return std::string("none");
    return fmt::format("{} in {} block{}", format_bytes(double(bytes)), blocks, blocks == 1 ? "" : "s");
  };
  std::string what = m.quadratic ? "T x T buffers of " + m.label : m.label;
  auto type = [](const std::string& t) { return t.substr(0, t.find('[')); };
  bool retyped = !m.type_a.empty() && !m.type_b.empty() && type(m.type_a) != type(m.type_b);
  std::string category = what == m.category ? "" : " (" + m.category + ")";
  return fmt::format("{}{}: {}, {} -> {}{}", what, category, signed_bytes(double(m.b - m.a)), held(m.a, m.blocks_a),
                     held(m.b, m.blocks_b), retyped ? fmt::format(", {} -> {}", type(m.type_a), type(m.type_b)) : "");
}

constexpr size_t most_named_changes = 4;

std::string changed_sentence(const RunComparison& c) {
  if (!c.a.recipe_known || !c.b.recipe_known) return "";  // a note says so
  std::vector<std::string> changes;
  size_t settings = 0;
  for (auto& d : c.differences) settings += d.section == "recipe";
  if (settings > most_named_changes) changes.push_back(fmt::format("{} settings", settings));
  for (const char* section : {"recipe", "device", "versions"})
    for (auto& d : c.differences) {
      if (d.section != section) continue;
      if (d.section == "recipe" && settings > most_named_changes) continue;
      if (d.section == "recipe")
        changes.push_back(fmt::format("{} ({} -> {})", d.key, d.a, d.b));
      else if (changes.empty() || changes.back() != section)
        changes.push_back(section);
    }
  if (!changes.empty())
    return fmt::format("{}: {}.", changes.size() == 1 && settings < 2 ? "One change" : "Changes", join(changes, ", "));
  return c.join == "scopes" ? "Recipe, device and versions are the same, as far as known." : "";
}

std::string interaction_sentence(const RunComparison& c) {
  const Attribution& a = c.attribution;
  if (a.method == AttributionMethod::work || !attributable(c)) return "";
  if (std::abs(a.interaction_ms) <= a.error_ms) return "The changes do not interact beyond noise.";
  std::string which =
      a.strongest.first.empty() ? "" : fmt::format(", mostly {} with {}", a.strongest.first, a.strongest.second);
  return fmt::format("The changes interact{}: together {} from the sum of each alone.", which,
                     measured_text(c, a.interaction_ms));
}

std::string settings_sentence(const RunComparison& c) {
  auto named = std::count_if(c.settings.begin(), c.settings.end(), [](auto& e) { return !e.setting.empty(); });
  if (!conclusive(c) || named < 2) return "";
  std::vector<std::string> parts;
  const bool measured = c.attribution.method != AttributionMethod::work;
  int rest = 100;  // as printed, so the parts sum to the difference
  for (auto& e : c.settings) {
    int percent = int(std::lround(100 * without_last_bits(e.share)));
    const bool interaction = measured && e.setting.empty();
    if (percent == 0 || !(interaction || !e.setting.empty()) || !beyond_noise(c, e)) continue;
    parts.push_back(fmt::format("{} {}%", interaction ? "their interaction" : e.setting, percent));
    rest -= percent;
  }
  if (parts.empty()) return "";
  if (rest != 0)
    parts.push_back(
        fmt::format("{} {}%", measured ? "the rest, within noise," : "the rest, within noise or unknown,", rest));
  return fmt::format("Time difference by change ({}): {}.", attribution_text(c), join(parts, ", "));
}

// Compares the work if times are missing.
std::string work_sentence(const RunComparison& c) {
  if (c.causes.empty() || (c.a.profiled && c.b.profiled)) return "";
  GroupSide a, b;
  for (auto& cause : c.causes)
    for (auto [sum, side] : {std::pair{&a, &cause.a}, std::pair{&b, &cause.b}})
      sum->instructions += side->instructions, sum->flops += side->flops, sum->bytes += side->bytes;
  return fmt::format("Work of the Programs: {} -> {} instructions, {} -> {}, memory traffic {} -> {}.", a.instructions,
                     b.instructions, format_si(a.flops, "FLOP"), format_si(b.flops, "FLOP"), format_si(a.bytes, "B"),
                     format_si(b.bytes, "B"));
}

std::string memory_sentence(const RunComparison& c) {
  double difference = double(c.planned_difference());
  if (c.memory_causes.empty() || std::abs(difference) < 0.001 * double(c.a.planned_bytes)) return "";
  const MemoryCause& m = c.memory_causes[0];
  if (double(m.b - m.a) * difference <= 0) return "";
  return fmt::format("Largest memory difference: {}.", m.sentence);
}

std::string training_sentence(const RunComparison& c) {
  auto& rows = c.training.val_loss.empty() ? c.training.loss : c.training.val_loss;
  if (rows.empty()) return "";
  const LossRow& last = rows.back();
  return fmt::format("At step {}, the last one that both logged, {} is {:.4f} (A) and {:.4f} (B).", last.step,
                     c.training.val_loss.empty() ? "the loss" : "the validation loss", last.a, last.b);
}

// The operation without its count: "matmul" of "12 x matmul".
std::string operation(const std::string& counted) {
  size_t space = counted.rfind(' ');
  return space == std::string::npos ? counted : counted.substr(space + 1);
}

// The operations on both sides of a group, the slowest first.
std::vector<std::string> operations(const Cause& c) {
  std::map<std::string, size_t> place;  // the better one of both sides
  for (auto* side : {&c.a, &c.b})
    for (size_t i = 0; i < side->ops.size(); ++i) {
      auto [it, added] = place.emplace(operation(side->ops[i]), i);
      it->second = std::min(it->second, i);
    }
  std::vector<std::string> list;
  for (auto& [op, at] : place) list.push_back(op);
  std::stable_sort(list.begin(), list.end(), [&](auto& x, auto& y) { return place[x] < place[y]; });
  return list;
}

std::set<std::string> of_operation(const GroupSide& s, const std::string& op, std::string Use::*field) {
  std::set<std::string> names;
  for (auto& use : s.uses)
    if (use.op == op && !(use.*field).empty()) names.insert(use.*field);
  return names;
}

// "x -> y" for the names found on one side only; "" if both sides have the same. `reduced`: the
// significant part of a name.
template <class Reduced>
std::string changed_names(const std::set<std::string>& a, const std::set<std::string>& b, Reduced reduced) {
  constexpr size_t shown = 2;
  auto without = [&](const std::set<std::string>& from, const std::set<std::string>& other) {
    std::vector<std::string> list;
    for (auto& name : from)
      if (std::none_of(other.begin(), other.end(), [&](auto& o) { return reduced(o) == reduced(name); }))
        list.push_back(name);
    return list;
  };
  auto x = without(a, b), y = without(b, a);
  if (a.empty() || b.empty() || (x.empty() && y.empty())) return "";
  // One side has all names of the other and more, so all names are listed.
  if (x.empty() || y.empty()) x.assign(a.begin(), a.end()), y.assign(b.begin(), b.end());
  auto text = [&](std::vector<std::string> list) {
    size_t rest = list.size() - std::min(list.size(), shown);
    list.resize(list.size() - rest);
    return join(list, " and ") + (rest ? fmt::format(" and {} more", rest) : "");
  };
  return fmt::format("{} -> {}", text(x), text(y));
}

}  // namespace

bool names_changed_settings(const RunComparison& c) {
  const auto settings =
      std::count_if(c.differences.begin(), c.differences.end(), [](auto& d) { return d.section == "recipe"; });
  return c.a.recipe_known && c.b.recipe_known && size_t(settings) <= most_named_changes;
}

bool beyond_noise(const RunComparison& c, const SettingEffect& e) {
  const double noise = e.measured                                        ? e.measured->error_ms
                       : c.attribution.method != AttributionMethod::work ? c.attribution.error_ms
                                                                         : c.explained_noise;
  return std::abs(c.per_token ? e.ms_per_token : e.ms) > noise;
}

bool attributable(const RunComparison& c) {
  return conclusive(c) ||
         std::any_of(c.settings.begin(), c.settings.end(), [&](auto& e) { return e.measured && beyond_noise(c, e); });
}

std::string attribution_text(const RunComparison& c) {
  switch (c.attribution.method) {
    case AttributionMethod::shapley: return "an attribution: Shapley values of measured steps";
    case AttributionMethod::first_and_last: return "an attribution: mean of each change measured first and last";
    case AttributionMethod::work: break;
  }
  return "an attribution by the instructions that each setting can act on, not measured";
}

bool conclusive(const RunComparison& c) { return c.noise.verdict != Verdict::cannot_tell; }

std::string factor_text(const RunComparison& all, const Cause& c) {
  const char* what = label(c.main_factor);
  auto work = [&](double a, double b, const char* unit) {
    if (!all.per_token) return fmt::format("{} {} -> {}", what, format_si(a, unit), format_si(b, unit));
    return fmt::format("{} {} -> {} per 1000 tokens", what, format_si(1e3 * a / double(all.a.tokens), unit),
                       format_si(1e3 * b / double(all.b.tokens), unit));
  };
  switch (c.main_factor) {
    case Factor::flops: return work(c.a.flops, c.b.flops, "FLOP");
    case Factor::rate: {
      bool alike = first(c.a.arithmetic) == first(c.b.arithmetic);  // then other instructions of the group differ
      auto names = [&](const GroupSide& s) { return alike ? join(s.arithmetic, " and ") : first(s.arithmetic); };
      return fmt::format("{} ({} -> {})", what, names(c.a), names(c.b));
    }
    case Factor::bytes: return work(c.a.bytes, c.b.bytes, "B");
    case Factor::efficiency: return fmt::format("{} {}", what, efficiency_text(c.slowdowns));
    default: return what;
  }
}

bool same_instructions(const Cause& c) {
  int64_t a = std::max(1, c.a.layers), b = std::max(1, c.b.layers);
  auto per_layer = [](const GroupSide& s, int64_t layers) {
    std::map<std::string, double> list;
    for (auto& op : s.ops) list[operation(op)] = std::atof(op.c_str()) / double(layers);
    return list;
  };
  // A single extra instruction (the norm after the last layer) may be in a group of layers.
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

std::string change_text(const RunComparison& runs, const Cause& c) {
  if (!c.a.instructions) return fmt::format("only in {} ({})", runs.b.title, ops_text(c.b));
  if (!c.b.instructions) return fmt::format("only in {} ({})", runs.a.title, ops_text(c.a));
  if (!same_instructions(c)) return fmt::format("{} -> {}", ops_text(c.a), ops_text(c.b));
  std::vector<std::string> changes;
  if (c.a.layers != c.b.layers) changes.push_back(fmt::format("{} -> {} layers", c.a.layers, c.b.layers));
  // Only for operations on both sides: their order by time may differ.
  auto add = [&](std::string Use::*field, auto reduced, bool named) {
    for (auto& op : operations(c)) {
      std::string change = changed_names(of_operation(c.a, op, field), of_operation(c.b, op, field), reduced);
      if (change.empty()) continue;
      changes.push_back((named ? op + " " : "") + change);
      return true;
    }
    return false;
  };
  auto shape = [](const std::string& type) { return type.substr(std::min(type.find('['), type.size())); };
  auto itself = [](const std::string& name) { return name; };
  bool several = c.a.ops.size() > 1;
  add(&Use::type, shape, true) || add(&Use::arithmetic, itself, several) || add(&Use::kernel, itself, false);
  return changes.empty() ? "the same instructions" : join(changes, "; ");
}

void write_sentences(RunComparison& c) {
  for (auto& cause : c.causes) cause.sentence = sentence(c, cause);
  for (auto& setting : c.settings) setting.sentence = sentence(c, setting);
  for (auto& m : c.memory_causes) m.sentence = sentence(m);
  for (auto& text : {headline(c), changed_sentence(c), settings_sentence(c), interaction_sentence(c), work_sentence(c),
                     memory_sentence(c), training_sentence(c)})
    if (!text.empty()) c.sentences.push_back(text);
}

}  // namespace crest
