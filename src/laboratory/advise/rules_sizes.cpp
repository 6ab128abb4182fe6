// Rules about sizes for tensor cores, tiles and kernels.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "advise/rules.h"
#include "core/text.h"
#include "device/kernels.h"
#include "model/parameters.h"
#include "predict/known_effects.h"
#include "program/op.h"

namespace crest::rule {

Checked vocabulary(const AdviceCase& c, Planner&) {
  if (std::string why = no_tensor_cores(c); !why.empty()) return does_not_apply(why);
  constexpr int64_t multiple = 64;
  int64_t vocab = c.recipe.model.vocab, padded = round_up(vocab, c.recipe.pad_vocab);
  std::string padding = padded == vocab ? "not padded" : fmt::format("padded to {}", padded);
  if (padded % multiple == 0) return holds(fmt::format("vocabulary {}, {}", vocab, padding));
  return advise({{.condition = fmt::format("vocabulary {}, {}, is not a multiple of {}", vocab, padding, multiple),
                  .change = fmt::format("--pad-vocab 128, a vocabulary of {} ({})", round_up(vocab, 128),
                                        unpadded_vocabulary.text),
                  .recipe = with(c.given, "pad-vocab", "128")}},
                "");
}

Checked tokens(const AdviceCase& c, Planner& planner) {
  if (std::string why = no_tensor_cores(c); !why.empty()) return does_not_apply(why);
  int64_t seq = c.recipe.seq_length(), tokens = c.recipe.batch * seq, multiple = aligned_elements(c);
  if (tokens % multiple == 0) return holds(fmt::format("b*s = {} is a multiple of {}", tokens, multiple));
  std::string condition =
      fmt::format("b*s = {} x {} = {} is not a multiple of {}", c.recipe.batch, seq, tokens, alignment_text(c));
  int64_t step = multiple / std::gcd(multiple, seq), batch = round_up(c.recipe.batch, step);
  Recipe larger = with(c.given, "batch", std::to_string(batch));
  if (batch <= 2 * c.recipe.batch && planner.fits(larger))
    return advise({{condition, fmt::format("--batch {}", batch), larger, true}}, "");
  int64_t shorter = seq / multiple * multiple;
  if (shorter == 0) return advise({{condition, fmt::format("a --seq that is a multiple of {}", multiple), {}}}, "");
  return advise({{condition, fmt::format("--seq {}", shorter), with(c.given, "seq", std::to_string(shorter)), true}},
                "");
}

// The kernels for compute capability 9.0 take heads of 64 and 128 elements
// (backend/cuda/attention_sm90_entry.h). Other sizes run in slower ones.
static Checked flash_head_size(const AdviceCase& c) {
  const ModelConfig& m = c.recipe.model;
  const std::string size = fmt::format("h/a = {}", m.head_dim);
  if (c.device.sm < 90 || c.device.sm >= 100)
    return holds(size +
                 "; flash attention reads heads in its own tiles; by head size it is measured on compute "
                 "capability 9.0 only");
  if (m.head_dim == 64 || m.head_dim == 128) return holds(fmt::format("{}: {}", size, hopper_head_sizes.text));
  if (m.head_dim < 64) return holds(size + " is below 64: the rule head-ratio covers it");
  if (m.head_dim > 128) return holds(size + " is above 128; not measured");
  const std::string condition =
      fmt::format("flash attention with {}, neither 64 nor 128: {}", size, hopper_head_sizes.text);
  for (int64_t target : {128, 64}) {
    const int64_t width = m.heads * m.head_dim, group = m.heads / m.kv_heads;
    if (width % (target * group)) continue;
    Recipe other = c.given;
    other.model.heads = width / target, other.model.head_dim = target;
    other.model.kv_heads = other.model.heads / group;
    return advise({{.condition = condition,
                    .change = fmt::format("heads = {}, head_dim = {} in the model's file, if its accuracy allows",
                                          other.model.heads, target),
                    .recipe = other,
                    .other_model = true}},
                  "");
  }
  return advise({{.condition = condition,
                  .change = "a width that heads of 64 or 128 divide, in the model's file",
                  .other_model = true}},
                "");
}

Checked head_size(const AdviceCase& c, Planner&) {
  if (std::string why = no_tensor_cores(c); !why.empty()) return does_not_apply(why);
  const ModelConfig& m = c.recipe.model;
  if (c.recipe.attention == "flash") return flash_head_size(c);
  AdviceCase attention = c;
  if (c.recipe.precision == "fp8") attention.recipe.precision = "bf16";  // fp8 applies only to linear layers
  int64_t multiple = aligned_elements(attention);
  if (m.head_dim % multiple == 0) return holds(fmt::format("h/a = {} is a multiple of {}", m.head_dim, multiple));
  return advise(
      {{fmt::format("naive attention with h/a = {}, no multiple of {}", m.head_dim, alignment_text(attention)),
        "--attention flash", with(c.given, "attention", "flash")}},
      "");
}

Checked head_ratio(const AdviceCase& c, Planner&) {
  constexpr int64_t small = 64;
  const ModelConfig& m = c.recipe.model;
  if (m.head_dim >= small) return holds(fmt::format("h/a = {}", m.head_dim));
  std::string condition = fmt::format("{} heads of {}: h/a is below {}", m.heads, m.head_dim, small);
  if (m.heads % 2 || m.kv_heads % 2)
    return advise({{condition, fmt::format("fewer heads, of {} or more", small), {}, true}}, "");
  Recipe fewer = c.given;
  fewer.model.heads /= 2, fewer.model.kv_heads /= 2, fewer.model.head_dim *= 2;
  return advise({{condition,
                  fmt::format("heads = {}, head_dim = {} in the model's file, if its accuracy allows",
                              fewer.model.heads, fewer.model.head_dim),
                  fewer, true}},
                "");
}

Checked mlp_width(const AdviceCase& c, Planner&) {
  const ModelConfig& m = c.recipe.model;
  if (!gated(m.activation)) return does_not_apply("the model has no gated MLP");
  if (std::string why = no_tensor_cores(c); !why.empty()) return does_not_apply(why);
  int64_t t = c.mesh.size(Axis::tensor), multiple = aligned_elements(c) * t;
  std::string share = t > 1 ? fmt::format(" on each of {} ranks", t) : "";
  if (m.ff % multiple == 0) return holds(fmt::format("MLP width {} is a multiple of {}", m.ff, multiple));
  Recipe wider = c.given;
  wider.model.ff = round_up(m.ff, multiple);
  return advise({{fmt::format("MLP width {} is not a multiple of {}{}", m.ff, alignment_text(c), share),
                  fmt::format("ff = {} in the model's file ({:+.1f}% of its FLOPs)", wider.model.ff,
                              100 * (flops_per_token(wider.model, c.recipe.seq_length()) /
                                         flops_per_token(m, c.recipe.seq_length()) -
                                     1)),
                  wider, true}},
                "");
}

namespace {

// The name of a size if another rule covers it.
std::string size_name(const AdviceCase& c, int64_t size) {
  const ModelConfig& m = c.recipe.model;
  if (size == m.width) return "the model's width";
  if (size == m.ff || size == 2 * m.ff) return gated(m.activation) ? "" : "the MLP width";
  if (size == m.qkv_width()) return "the width of queries, keys and values";
  if (size == m.heads * m.head_dim) return "heads x head size";
  return "";
}

}  // namespace

// Tokens, vocabulary, head size and SwiGLU have their own rules.
Checked product_alignment(const AdviceCase& c, Planner& planner) {
  if (std::string why = no_tensor_cores(c); !why.empty()) return does_not_apply(why);
  int64_t multiple = aligned_elements(c), needed = needed_elements(c);
  std::map<int64_t, std::set<std::string>> odd;  // size -> places
  for (auto& p : planner.products())
    for (int64_t size : {p.m, p.n, p.k})
      if (size % multiple && !size_name(c, size).empty()) odd[size].insert(p.place);
  std::vector<Finding> findings;
  for (auto& [size, places] : odd) {
    std::vector<std::string> list(places.begin(), places.end());
    findings.push_back(
        {fmt::format("{} = {} ({}) is not a multiple of {}{}", size_name(c, size), size, join(list, ", "),
                     alignment_text(c),
                     size % needed ? fmt::format("; tensor cores load multiples of {}", needed) : ""),
         fmt::format("{} = {} or {}", size_name(c, size), size / multiple * multiple, round_up(size, multiple)),
         {},
         true});
  }
  return advise(findings, fmt::format("the model's widths are multiples of {}", multiple));
}

namespace {

// The products that lose most time, by place: "h.*.mlp.fc 4096x3072x768, tile 128x256 (assumed:
// ..): 1.33x".
std::string worst_products(const std::vector<StepProduct>& products,
                           const std::function<double(const StepProduct&)>& padding) {
  const StepProduct* worst = nullptr;
  double lost = 0;
  for (auto& p : products)
    if (double x = p.flops() * (padding(p) - 1); x > lost) lost = x, worst = &p;
  if (!worst) return "";
  return fmt::format("most in {} {} {}x{}x{}: {:.2f}x, tile {}x{} ({})", worst->op, worst->place, worst->m, worst->n,
                     worst->k, padding(*worst), worst->tile.m, worst->tile.n, worst->tile.source);
}

double overall(const std::vector<StepProduct>& products, const std::function<double(const StepProduct&)>& padding) {
  double all = 0, padded = 0;
  for (auto& p : products) all += p.flops(), padded += p.flops() * padding(p);
  return all > 0 ? padded / all : 1;
}

std::string no_tiles(const AdviceCase& c) {
  if (c.device.kind != "cuda") return "the rule is about the multiprocessors of a GPU";
  if (c.recipe.precision == "fp32") return "tiles of fp32 products without tensor cores are unknown";
  if (!c.sheet) return "this GPU has no device file (crest devices --sheets lists them)";
  return "";
}

// Nearby fitting batches, by size.
std::vector<int64_t> near_batches(const AdviceCase& c, Planner& planner) {
  int64_t given = c.recipe.batch, most = planner.largest_batch(c.given);
  int64_t low = std::max<int64_t>(1, given - given / 4), high = std::min(most, given + std::max<int64_t>(1, given / 4));
  std::vector<int64_t> list;
  for (int64_t b = low; b <= high; b += std::max<int64_t>(1, (high - low) / 12)) list.push_back(b);
  return list;
}

// The nearby batch with the least time per token by the data sheet.
Checked better_batch(const AdviceCase& c, Planner& planner, const std::string& condition,
                     const std::string& otherwise) {
  int64_t best = c.recipe.batch;
  double least = *planner.tiled_ms_per_token(c.given);
  for (int64_t b : near_batches(c, planner))
    if (double ms = *planner.tiled_ms_per_token(with(c.given, "batch", std::to_string(b))); ms < least)
      least = ms, best = b;
  if (best == c.recipe.batch) return holds(condition + "; no batch within a quarter of the given one is better");
  return advise({{condition, fmt::format("--batch {}", best), with(c.given, "batch", std::to_string(best)), true}},
                otherwise);
}

}  // namespace

Checked tile_quantization(const AdviceCase& c, Planner& planner) {
  if (std::string why = no_tiles(c); !why.empty()) return does_not_apply(why);
  auto padding = [](const StepProduct& p) { return p.tile_padding(); };
  double loss = overall(planner.products(), padding) - 1;
  std::string text = fmt::format("whole tiles add {:.1f}% to the FLOPs of matrix products", 100 * loss);
  if (loss < 0.02) return holds(text);
  return better_batch(c, planner, text + ", " + worst_products(planner.products(), padding), text);
}

Checked wave_quantization(const AdviceCase& c, Planner& planner) {
  if (std::string why = no_tiles(c); !why.empty()) return does_not_apply(why);
  int64_t units = c.sheet->multiprocessors;
  auto padding = [units](const StepProduct& p) { return p.wave_padding(units); };
  double loss = overall(planner.products(), padding) - 1;
  std::string text =
      fmt::format("whole waves of {} multiprocessors add {:.1f}% to the time of matrix products", units, 100 * loss);
  if (loss < 0.02) return holds(text);
  return better_batch(c, planner, text + ", " + worst_products(planner.products(), padding), text);
}

// The last kernel of each operation is its fallback: it accepts everything, and its name says so.
Checked fallback_kernels(const AdviceCase& c, Planner& planner) {
  const CompiledSession& s = planner.session();
  std::map<std::string, std::pair<std::set<std::string>, std::string>>
      found;  // kernel -> places, why no better kernel ran
  for (auto& program : s.programs)
    for (size_t i = 0; i < program.program.code.size(); ++i) {
      std::string_view kernel = program.kernels[i]->name;
      bool slow = false;
      for (const char* word : {".reference", ".tiled", ".generic", ".interpreter"})
        slow |= kernel.find(word) != std::string_view::npos;
      if (!slow) continue;
      const Instr& instr = program.program.code[i];
      auto& [places, why] = found[std::string(kernel)];
      places.insert(place_of(instr));
      if (!why.empty()) continue;
      for (auto& k : kernels_of(c.device.kind)) {
        if (std::string_view(k.op) != instr.op->name) continue;
        if (k.name == kernel) break;
        std::string reason = k.reject ? k.reject({program.program, instr, c.device}) : "";
        why +=
            fmt::format("{}{}: {}", why.empty() ? "" : "; ", k.name, reason.empty() ? "--kernel excludes it" : reason);
      }
    }
  std::vector<Finding> findings;
  for (auto& [kernel, what] : found) {
    std::vector<std::string> places(what.first.begin(), what.first.end());
    if (places.size() > 4) places.resize(4), places.emplace_back("...");
    findings.push_back({fmt::format("{} runs {}", kernel, join(places, ", ")),
                        what.second.empty() ? "no other kernel exists for it"
                                            : "a size or type that a faster kernel accepts (" + what.second + ")",
                        {}});
  }
  return advise(findings, "every instruction runs in a fast kernel");
}

}  // namespace crest::rule
