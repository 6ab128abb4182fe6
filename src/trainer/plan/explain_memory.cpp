// --explain memory: bytes of training and inference.
#include <fmt/format.h>

#include "core/text.h"
#include "model/parameters.h"
#include "plan/explain.h"
#include "plan/session_properties.h"

namespace crest {

namespace {

const char* const document = "Software Tune Up, Anatomy of Model's Memory Usage";
const char* const korthikanti = "Korthikanti et al. 2022 (arXiv 2205.05198)";

struct PerParameter {
  double weights, optimizer, gradients;
  const char *weights_why, *optimizer_why;
};

bool half(const Recipe& r) { return activation_bytes(r) == 2; }

// What the document counts for a recipe.
PerParameter per_parameter(const Recipe& r) {
  bool pure_bf16 = r.optimizer.starts_with("adamw-bf16");
  PerParameter p{};
  p.weights = !half(r) ? 4 : pure_bf16 ? 2 : 6;
  p.weights_why = !half(r) ? "fp32" : pure_bf16 ? "16-bit weights only" : "fp32 and a 16-bit copy";
  p.gradients = r.grad_dtype == "bf16" ? 2 : 4;
  bool one_state =
      r.optimizer == "sgd" || r.optimizer == "lion" || r.optimizer.starts_with("adafactor") || r.optimizer == "muon";
  bool eight_bit = r.optimizer == "adamw-8bit" || r.optimizer == "adamw-fp8";
  p.optimizer = eight_bit ? 2 : pure_bf16 || one_state ? 4 : 8;
  p.optimizer_why = eight_bit   ? "two moments of a byte"
                    : pure_bf16 ? "two moments in bf16"
                    : one_state ? "one state in fp32"
                                : "two moments in fp32";
  return p;
}

Term per_parameter_term(const char* name, double bytes, const std::string& why, double n, const char* source) {
  return {name,
          fmt::format("{:g} N ({})", bytes, why),
          fmt::format("{:g} x {:.0f}", bytes, n),
          bytes * n,
          "bytes",
          source,
          {},
          ""};
}

ExplainSection training(const CompiledSession& s) {
  const Recipe& r = s.recipe;
  auto n = double(parameter_count(r.model));
  PerParameter p = per_parameter(r);
  CategoryBytes planned = s.by_category();
  auto state = double(planned[size_t(Category::optimizer_state)] + s.host_bytes);
  Term weights = per_parameter_term("weights", p.weights, p.weights_why, n, document);
  weights.program = double(weight_bytes(s));
  weights.difference = half(r) && r.policy == "pure" && !r.optimizer.starts_with("adamw-bf16")
                           ? "the Program's weights are the 16-bit ones; what fp32 masters add is optimizer state"
                           : "";
  if (s.find("start") >= 0)
    weights.difference += std::string(weights.difference.empty() ? "" : "; ") +
                          "those of linear layers are there in 8 bits, too, also transposed (--fp8-weights update)";
  Term optimizer = per_parameter_term("optimizer state", p.optimizer, p.optimizer_why, n, document);
  optimizer.program = state;
  if (half(r) && r.policy == "pure")
    optimizer.difference = "with the fp32 masters of 16-bit weights; --master-weights split stores 2 bytes of them";
  if (r.optimizer.starts_with("adafactor") || r.optimizer == "muon")
    optimizer.difference +=
        std::string(optimizer.difference.empty() ? "" : "; ") + "matrices and vectors have different states";
  if (s.host_bytes)
    optimizer.difference += fmt::format("{}{} of it in host memory", optimizer.difference.empty() ? "" : "; ",
                                        format_bytes(double(s.host_bytes)));
  Term gradients = per_parameter_term("gradients", p.gradients, r.grad_dtype, n, document);
  gradients.program = double(gradient_bytes(s));
  gradients.difference = "without accumulation they share memory with activations, until they are written";
  Term sum{"sum",
           "weights + optimizer state + gradients",
           fmt::format("{:g} x {:.0f}", p.weights + p.optimizer + p.gradients, n),
           (p.weights + p.optimizer + p.gradients) * n,
           "bytes",
           document,
           *weights.program + *optimizer.program + *gradients.program,
           r.pad_vocab > 1 ? "the Program's tensors have the padded vocabulary" : ""};
  Term mixed = per_parameter_term("mixed precision AdamW", 18, "6 weights, 8 state, 4 gradients", n, document);
  Term pure = per_parameter_term("pure bf16 AdamW", 8, "2 weights, 4 state, 2 gradients", n, document);
  return {"training: bytes a parameter", {weights, optimizer, gradients, sum, mixed, pure}};
}

ExplainSection activations(const CompiledSession& s, const ExplainOptions& o) {
  const Recipe& r = s.recipe;
  const ModelConfig& m = r.model;
  auto b = double(r.batch), seq = double(r.seq_length()), h = double(m.width), a = double(m.heads),
       layers = double(m.layers);
  auto t = double(o.mesh.tensor);
  double base = seq * b * h * layers, scores = 5 * a * seq / h;
  std::string numbers = fmt::format("s={:g} b={:g} h={:g} a={:g} L={:g}", seq, b, h, a, layers);
  auto term = [&](const char* name, const char* formula, double value) {
    return Term{name, formula, numbers, value, "bytes", korthikanti, {}, ""};
  };
  Term none = term("no recompute", "s b h L (34 + 5 a s / h)", base * (34 + scores));
  Term selective = term("selective recompute", "34 s b h L", base * 34);
  Term full = term("full recompute", "2 s b h L", base * 2);
  Term* ours = r.recompute == "full"                                  ? &full
               : r.recompute == "selective" || r.attention == "flash" ? &selective
                                                                      : &none;
  ours->program = double(s.kept_bytes());
  std::string why = "the formula is for 16-bit activations, dropout masks, GELU and an MLP of 4 h";
  if (m.dropout == 0) why += "; no dropout here";
  if (activation_bytes(r) != 2) why += fmt::format("; {} activations here", r.precision);
  if (r.attention == "flash" && r.recompute != "full") why += "; flash attention keeps no scores";
  if (r.recompute == "pointwise" || r.recompute == "activation") why += fmt::format("; --recompute {}", r.recompute);
  ours->difference = why + "; the Program's are the most that are alive at once, those outside of the layers included";
  std::vector<Term> terms = {none, selective, full};
  if (o.mesh.tensor > 1) {
    terms.push_back(
        term("tensor parallel, per rank", "s b h L (10 + 24/t + 5 a s / (h t))", base * (10 + 24 / t + scores / t)));
    terms.push_back(term("with sequence parallel too", "s b h L / t (34 + 5 a s / h)", base / t * (34 + scores)));
  }
  auto vocab = double(m.vocab);
  Term logits{"logits",
              fmt::format("{} s b V", activation_bytes(r)),
              fmt::format("V={:g}", vocab),
              double(activation_bytes(r)) * seq * b * vocab,
              "bytes",
              "Crest",
              {},
              ""};
  if (int64_t chunk = loss_chunk(s); chunk > 0)
    logits.difference = fmt::format("chunked loss: the Program has the logits of {} tokens at a time", chunk);
  terms.push_back(logits);
  return {"training: activations", terms};
}

// What crest sample compiles with int8 weights.
CompiledSession int8_sampling(const CompiledSession& s) {
  Recipe r;
  r.model = s.recipe.model, r.precision = s.recipe.precision, r.policy = s.recipe.policy;
  r.pad_vocab = s.recipe.pad_vocab;
  r.pass_settings["weights"] = "int8";
  SessionUse use;
  use.sampling = true;
  return compile(r, s.device, session_programs(r, use), {.verify = false});
}

ExplainSection inference(const CompiledSession& s, const ExplainOptions& o) {
  const Recipe& r = s.recipe;
  const ModelConfig& m = r.model;
  auto n = double(parameter_count(m));
  auto element = double(activation_bytes(r)), context = double(m.cached_context());
  auto layers = double(m.layers), kv = double(m.kv_heads * m.head_dim), beams = double(o.beams);
  std::vector<Term> terms;
  for (auto [bytes, what] :
       {std::pair{6.0, "mixed: fp32 and a 16-bit copy"}, {4.0, "fp32"}, {2.0, "16-bit"}, {1.0, "int8"}}) {
    Term t = per_parameter_term("weights", bytes, what, n, document);
    bool ours = bytes == (half(r) && r.policy == "pure" ? 2.0 : half(r) ? 6.0 : 4.0);
    if (ours) t.program = double(weight_bytes(s));
    if (bytes == 1) {
      t.program = double(weight_bytes(int8_sampling(s)));
      t.difference = fmt::format(
          "--weights int8: the matrices of linear layers have a scale of 4 bytes for each output; {} stay in {}",
          r.model.tied ? "norms, biases and positions" : "norms, biases and embeddings", r.precision);
    }
    terms.push_back(t);
  }
  Term cache{"key/value cache of a sequence",
             "2 L g d s B",
             fmt::format("2 x {:g} layers x {:g} (kv heads x head size) x {:g} tokens x {:g} bytes", layers, kv,
                         context, element),
             2 * layers * kv * context * element,
             "bytes",
             "Kwon et al. 2023 (arXiv 2309.06180)",
             {},
             ""};
  int decode = s.find("decode");
  if (decode >= 0) cache.program = double(s.by_category()[size_t(Category::kv_cache)]);
  terms.push_back(cache);
  terms.push_back({fmt::format("cache of a beam search with {} beams", o.beams),
                   "k 2 L g d s B",
                   fmt::format("{} x {:.0f}", o.beams, cache.value),
                   beams * cache.value,
                   "bytes",
                   document,
                   {},
                   "an upper bound: beams may share what they have in common; Crest samples one sequence"});
  terms.push_back({"tokens and scores of the beams",
                   "k (4 s + 4 V + 4)",
                   fmt::format("{} x (4 x {:g} + 4 x {} + 4)", o.beams, context, m.vocab),
                   beams * (4 * context + 4 * double(m.vocab) + 4),
                   "bytes",
                   document,
                   {},
                   "ids, logits and a score each"});
  double weights = (half(r) ? 2 : 4) * n;
  terms.push_back({"total by rule of thumb",
                   "1.2 x weights",
                   fmt::format("1.2 x {:.0f}", weights),
                   1.2 * weights,
                   "bytes",
                   "EleutherAI, Transformer Math 101",
                   {},
                   "for short sequences: it leaves out the cache of long ones"});
  return {"inference", terms};
}

}  // namespace

Explanation explain_memory(const CompiledSession& s, const ExplainOptions& o) {
  ExplainSection all{"everything", {}};
  PerParameter p = per_parameter(s.recipe);
  double states = (p.weights + p.optimizer + p.gradients) * double(parameter_count(s.recipe.model));
  ExplainSection kept = activations(s, o);
  double formula = 0;
  std::string which;
  for (auto& t : kept.terms)
    if (t.program) formula = t.value, which = t.name;
  all.terms.push_back(
      {"training", "parameters' bytes + activations", fmt::format("{:.0f} + {:.0f} ({})", states, formula, which),
       states + formula, "bytes", std::string(document) + "; " + korthikanti, double(s.planned_bytes()),
       "the Program adds temporary tensors and workspace (crest plan prints them by category); a device "
       "needs more for context, code and libraries"});
  return {"memory", {training(s), kept, all, inference(s, o)}};
}

}  // namespace crest
