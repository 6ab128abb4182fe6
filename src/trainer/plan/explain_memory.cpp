// --explain memory: bytes of training and inference.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "model/parameters.h"
#include "passes/optimizers.h"
#include "plan/explain.h"
#include "plan/session_properties.h"

namespace crest {

namespace {

// The dtype's name in --precision.
std::string flag_name(DType dtype) {
  return dtype == DType::f32 ? "fp32" : dtype == DType::f16 ? "fp16" : std::string(name(dtype));
}

const char* const document = "Software Tune Up, Anatomy of Model's Memory Usage";
const char* const korthikanti = "Korthikanti et al. 2022 (arXiv 2205.05198)";

bool half(const Recipe& r) { return activation_bytes(r) == 2; }

// The number of trained parameters: all N, or A with adapters.
const char* trained_letter(const Recipe& r) { return r.model.lora.rank ? "A" : "N"; }

Term per_parameter_term(const char* name, double bytes, const std::string& why, double n, const char* source,
                        const char* letter = "N") {
  return {name,
          fmt::format("{:g} {} ({})", bytes, letter, why),
          fmt::format("{:g} x {:.0f}", bytes, n),
          bytes * n,
          "bytes",
          source,
          {},
          ""};
}

Term weights_term(const Recipe& r, double n) {
  DType dtype = weight_dtype(r);
  if (half(r) && !is_half(dtype)) return per_parameter_term("weights", 6, "fp32 and a 16-bit copy", n, document);
  return per_parameter_term("weights", double(size_of(dtype)), flag_name(dtype), n, document);
}

Term gradients_term(const Recipe& r, double n) {
  return per_parameter_term("gradients", r.grad_dtype == "bf16" ? 2 : 4, r.grad_dtype, n, document, trained_letter(r));
}

// The optimizer's declared bytes per parameter, grouped by state. "6 N (u16 master, m) + 4 n(v)":
// all parameters have 2-byte masters and fp32 m, and v has n(v) fp32 numbers.
Term optimizer_term(const Recipe& r, double n) {
  struct Sum {
    std::string state;
    double bytes, numbers;
  };
  std::vector<Sum> sums;
  const PassContext context{r, ProgramKind::update};
  for (const Param& p : parameters_of(r.model)) {
    if (p.frozen) continue;
    for (const OptimizerState& s : optimizer_states(context, p, p.shape, weight_dtype(r))) {
      std::string state = s.dtype == DType::f32 ? s.name : fmt::format("{} {}", name(s.dtype), s.name);
      auto known = std::find_if(sums.begin(), sums.end(), [&](auto& sum) { return sum.state == state; });
      if (known == sums.end()) known = sums.insert(known, {state, double(size_of(s.dtype)), 0});
      known->numbers += double(s.shape.numel());
    }
  }
  double whole = 0, total = 0;
  std::vector<std::string> formula, numbers, of_all;
  for (auto& s : sums) {
    total += s.bytes * s.numbers;
    if (s.numbers == n) {
      whole += s.bytes, of_all.push_back(s.state);
      continue;
    }
    formula.push_back(fmt::format("{:g} n({})", s.bytes, s.state));
    numbers.push_back(fmt::format("{:g} x {:.0f}", s.bytes, s.numbers));
  }
  if (whole > 0) {
    formula.insert(formula.begin(), fmt::format("{:g} {} ({})", whole, trained_letter(r), join(of_all, ", ")));
    numbers.insert(numbers.begin(), fmt::format("{:g} x {:.0f}", whole, n));
  }
  return {
      "optimizer state", join(formula, " + "), join(numbers, " + "), total, "bytes", "states of --optimizer", {}, ""};
}

ExplainSection training(const CompiledSession& s) {
  const Recipe& r = s.recipe;
  auto n = double(parameter_count(r.model)), trained = double(trained_parameter_count(r.model));
  CategoryBytes planned = s.by_category();
  Term weights = weights_term(r, n);
  weights.program = double(weight_bytes(s));
  if (s.find("start") >= 0)
    weights.difference = "linear layers also have their weights in 8 bits, with transposes (--fp8-weights update)";
  if (auto base = r.pass_settings.find("base-weights"); base != r.pass_settings.end() && base->second != "auto")
    weights.difference = "frozen matrices have the form of --base-weights " + base->second;
  Term optimizer = optimizer_term(r, trained);
  const auto host = double(s.host_bytes - s.host_activations);
  optimizer.program = double(planned[size_t(Category::optimizer_state)]) + host;
  if (host > 0) optimizer.difference = format_bytes(host) + " of it in host memory";
  Term gradients = gradients_term(r, trained);
  gradients.program = double(gradient_bytes(s));
  gradients.difference = "without accumulation they share memory with activations, until they are written";
  Term sum{"sum",
           "weights + optimizer state + gradients",
           fmt::format("{:.0f} + {:.0f} + {:.0f}", weights.value, optimizer.value, gradients.value),
           weights.value + optimizer.value + gradients.value,
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
  auto t = double(o.mesh.size(Axis::tensor));
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
  ours->difference = why + "; the Program's figure is the most at one moment, including activations outside the layers";
  std::vector<Term> terms = {none, selective, full};
  if (o.mesh.size(Axis::tensor) > 1) {
    terms.push_back(
        term("tensor parallel, per rank", "s b h L (10 + 24/t + 5 a s / (h t))", base * (10 + 24 / t + scores / t)));
    terms.push_back(term("with sequence parallel too", "s b h L / t (34 + 5 a s / h)", base / t * (34 + scores)));
  }
  if (const int ranks = o.mesh.size(Axis::context); ranks > 1) {
    const auto c = double(ranks), keys = 2 * double(m.kv_heads * m.head_dim);
    terms.push_back(term("context parallel, per rank", "s b h L / c (34 + 5 a s / h)", base / c * (34 + scores)));
    terms.push_back(Term{"keys and values of all tokens, kept by every rank",
                         "s b L K B",
                         fmt::format("K={:g} B={}", keys, activation_bytes(r)),
                         seq * b * layers * keys * double(activation_bytes(r)),
                         "bytes",
                         "Crest",
                         {},
                         ""});
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

// The Programs of crest sample with int8 weights and a full-context cache.
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
  double trained = weights_term(r, 1).value;
  const CompiledSession int8 = int8_sampling(s);
  std::vector<Term> terms;
  for (auto [bytes, what] :
       {std::pair{6.0, "mixed: fp32 and a 16-bit copy"}, {4.0, "fp32"}, {2.0, "16-bit"}, {1.0, "int8"}}) {
    Term t = per_parameter_term("weights", bytes, what, n, document);
    bool ours = bytes == trained;
    if (ours) t.program = double(weight_bytes(s));
    if (bytes == 1) {
      t.program = double(weight_bytes(int8));
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
  cache.program = double(int8.by_category()[size_t(Category::kv_cache)]);
  terms.push_back(cache);
  terms.push_back({"cache of a beam search with " + format_number_of(o.beams, "beam"),
                   "k 2 L g d s B",
                   fmt::format("{} x {:.0f}", o.beams, cache.value),
                   beams * cache.value,
                   "bytes",
                   document,
                   {},
                   "an upper bound, since beams may share their common part; Crest samples one sequence"});
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
  ExplainSection states = training(s);
  double sum = 0;
  for (auto& t : states.terms)
    if (t.name == "sum") sum = t.value;
  ExplainSection kept = activations(s, o);
  double formula = 0;
  std::string which;
  for (auto& t : kept.terms)
    if (t.program) formula = t.value, which = t.name;
  all.terms.push_back(
      {"training", "parameters' bytes + activations", fmt::format("{:.0f} + {:.0f} ({})", sum, formula, which),
       sum + formula, "bytes", std::string(document) + "; " + korthikanti, double(s.planned_bytes()),
       "the Program adds temporary tensors and workspace (crest plan prints them by category); a device "
       "needs more for context, code and libraries"});
  return {"memory", {states, kept, all, inference(s, o)}};
}

}  // namespace crest
