#include "plan/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "passes/fp8.h"
#include "passes/recompute.h"
#include "passes/stages.h"
#include "plan/addresses.h"
#include "plan/automatic.h"
#include "plan/choose_kernels.h"
#include "plan/gradient_storage.h"
#include "plan/handover.h"
#include "plan/recipe_settings.h"
#include "plan/stage_model.h"
#include "program/barriers.h"
#include "program/op.h"
#include "program/verify.h"

namespace crest {

namespace {

Category persistent_category(const Value& v) {
  switch (v.role) {
    case Role::weight: return Category::weights;
    case Role::gradient: return Category::gradients;
    case Role::cache: return Category::kv_cache;
    // Other state kept from step to step, such as fp8's amax history.
    default: return v.lifetime == Lifetime::persistent ? Category::optimizer_state : Category::temporary;
  }
}

// The Programs that a pipeline cuts into stages.
constexpr ProgramKind with_layers[] = {ProgramKind::train, ProgramKind::validation, ProgramKind::prefill,
                                       ProgramKind::decode};
bool has_layers(ProgramKind kind) {
  return std::find(std::begin(with_layers), std::end(with_layers), kind) != std::end(with_layers);
}

// Gives blocks their offsets in an arena; returns its size.
int64_t place_in_arena(std::vector<PersistentBlock>& blocks) {
  int64_t end = 0;
  for (auto& b : blocks) {
    b.offset = end;
    end += (b.bytes + 255) / 256 * 256;
  }
  return end;
}

void place_persistent(CompiledSession& s) {
  struct Place {
    MemorySpace space;
    size_t index;
  };
  std::unordered_map<std::string_view, Place> known;
  s.persistent.clear(), s.host.clear();
  for (auto& c : s.programs)
    for (size_t v = 0; v < c.program.values.size(); ++v) {
      const Value& value = c.program.values[v];
      if (value.lifetime == Lifetime::micro_step || value.layout.storage != ValueId(v)) continue;
      if (value.lifetime == Lifetime::slot) continue;
      if (std::any_of(s.gradients.begin(), s.gradients.end(), [&](auto& b) { return b.name == value.name; })) continue;
      auto& blocks = value.space == MemorySpace::host ? s.host : s.persistent;
      auto [it, added] = known.emplace(value.name, Place{value.space, blocks.size()});
      if (added)
        blocks.push_back({value.name, 0, value.storage_bytes(), persistent_category(value)});
      else if (it->second.space != value.space)
        fail_internal(fmt::format("%{} is in host memory in one program and not in another", value.name));
      else if (blocks[it->second.index].bytes != value.storage_bytes())
        fail_internal(fmt::format("%{} has {} bytes in one program and {} in another", value.name,
                                  blocks[it->second.index].bytes, value.storage_bytes()));
    }
  s.persistent_bytes = place_in_arena(s.persistent);
  s.host_activations = 0;
  for (auto& c : s.programs) s.host_activations = std::max(s.host_activations, c.host.bytes);
  s.host_bytes = place_in_arena(s.host) + s.host_activations;
}

// Behind the persistent values. No step runs during a forward pass, so all use the same memory.
void place_slots(CompiledSession& s) {
  s.areas.clear();
  for (auto& c : s.programs)
    for (size_t v = 0; v < c.program.values.size(); ++v) {
      const Value& value = c.program.values[v];
      if (value.lifetime != Lifetime::slot || value.layout.storage != ValueId(v)) continue;
      auto area = std::find_if(s.areas.begin(), s.areas.end(),
                               [&](auto& a) { return a.kind == c.spec.kind && a.chunk == c.spec.chunk; });
      if (area == s.areas.end()) {
        s.areas.push_back({c.spec.kind, c.spec.chunk});
        area = std::prev(s.areas.end());
        if (c.spec.kind == ProgramKind::train)
          area->slots = s.schedule.slots.at(size_t(s.stage)).at(size_t(c.spec.chunk));
      }
      auto known =
          std::find_if(area->blocks.begin(), area->blocks.end(), [&](auto& b) { return b.name == value.name; });
      if (known == area->blocks.end())
        area->blocks.push_back({value.name, 0, value.storage_bytes(), Category::activations});
      else if (known->bytes != value.storage_bytes())
        fail_internal(fmt::format("%{} has {} bytes in one segment and {} in another", value.name, known->bytes,
                                  value.storage_bytes()));
    }
  const int64_t begin = s.persistent_bytes;
  for (ProgramKind kind : with_layers) {
    int64_t end = begin;
    for (SlotArea& area : s.areas) {
      if (area.kind != kind) continue;
      area.bytes = place_in_arena(area.blocks), area.offset = end;
      end += area.bytes * area.slots;
    }
    s.persistent_bytes = std::max(s.persistent_bytes, end);
  }
  s.slot_bytes = s.persistent_bytes - begin;
}

}  // namespace

int CompiledSession::find(const std::string& wanted) const {
  for (size_t i = 0; i < programs.size(); ++i)
    if (programs[i].spec.name == wanted) return int(i);
  return -1;
}

const SlotArea* CompiledSession::area_of(const ProgramSpec& spec) const {
  for (const SlotArea& a : areas)
    if (a.kind == spec.kind && a.chunk == spec.chunk) return &a;
  return nullptr;
}

int64_t CompiledSession::kept_bytes() const {
  int64_t most = 0;
  for (auto& c : programs) {
    std::vector<int64_t> change(c.program.code.size() + 1, 0);  // by instruction
    for (auto& b : c.memory.blocks)
      if (b.category == Category::activations)
        change[size_t(b.first)] += b.bytes, change[size_t(b.last) + 1] -= b.bytes;
    int64_t live = 0;
    for (int64_t bytes : change) most = std::max(most, live += bytes);
  }
  return most;
}

const CompiledProgram& CompiledSession::largest() const {
  return *std::max_element(programs.begin(), programs.end(),
                           [](auto& a, auto& b) { return a.memory.bytes < b.memory.bytes; });
}

CategoryBytes CompiledSession::by_category() const {
  CategoryBytes c{};
  c[size_t(Category::library_context)] = library_bytes;
  int64_t listed = 0;
  for (auto& b : persistent) {
    const int64_t bytes = (b.bytes + 255) / 256 * 256;
    c[size_t(b.category)] += bytes, listed += bytes;
  }
  c[size_t(Category::activations)] += persistent_bytes - listed;  // slots
  if (programs.empty()) return c;
  const MemoryPlan& m = largest().memory;
  for (int i = 0; i < category_count; ++i) c[size_t(i)] += m.at_peak[size_t(i)];
  c[size_t(Category::temporary)] += transient_bytes - total(m.at_peak);
  return c;
}

std::vector<ProgramSpec> session_programs(const Recipe& r, const SessionUse& use) {
  std::vector<ProgramSpec> specs;
  int64_t seq = r.seq_length();
  if (use.train) {
    if (r.grad_accumulation == 1) {
      specs.push_back({"train", ProgramKind::train, r.batch, seq, 0, true, true});
    } else {
      bool reduces = r.layout().ranks() > 1;  // only then the last micro step differs
      specs.push_back({"train.first", ProgramKind::train, r.batch, seq, 0, true, false});
      if (!reduces || r.grad_accumulation > 2)
        specs.push_back({"train.next", ProgramKind::train, r.batch, seq, 0, false, !reduces});
      if (reduces) specs.push_back({"train.last", ProgramKind::train, r.batch, seq, 0, false, true});
    }
  }
  if (use.forward_saved) specs.push_back({"train.forward", ProgramKind::train, r.batch, seq, 0, true, false, true});
  if (use.update) specs.push_back({"update", ProgramKind::update});
  if ((use.train || use.forward_saved) && has_start(r)) specs.push_back({"start", ProgramKind::start});
  if (use.validation)
    specs.push_back(
        {"validation", ProgramKind::validation, use.validation_batch ? use.validation_batch : r.batch, seq});
  if (use.sampling || use.scoring) {
    const int64_t cache = use.cache_length ? use.cache_length : r.model.cached_context();
    specs.push_back({"prefill", ProgramKind::prefill, 1, std::min(use.prefill, cache), cache});
    if (use.sampling) specs.push_back({"decode", ProgramKind::decode, 1, 1, cache});
    if (use.scoring) {
      specs.push_back({"score", ProgramKind::prefill, 1, std::min(use.prefill, cache), cache});
      specs.back().all_logits = true;
    }
  }
  return specs;
}

bool forward_only(const CompiledSession& s) {
  return std::none_of(s.programs.begin(), s.programs.end(),
                      [](auto& c) { return c.spec.kind == ProgramKind::train && !c.spec.forward_only; });
}

static bool has_program(const CompiledSession& s, std::string_view name) {
  return std::any_of(s.programs.begin(), s.programs.end(),
                     [&](auto& c) { return c.spec.name == name || c.spec.of == name; });
}

const char* phase_of(const CompiledSession& s) {
  if (!forward_only(s)) return has_program(s, "update") ? "step" : "backward";
  return has_program(s, "train.forward") ? "forward-saved" : has_program(s, "validation") ? "forward" : "decode";
}

int64_t step_tokens(const CompiledSession& s) {
  if (!forward_only(s)) return s.recipe.tokens_per_step();
  const ProgramSpec& spec = s.programs[size_t(training_step(s)[0].segment)].spec;
  return spec.batch * spec.seq * s.recipe.data_ranks();
}

static bool has_segments(const CompiledSession& s, ProgramKind kind) {
  return std::any_of(s.programs.begin(), s.programs.end(),
                     [&](auto& c) { return c.spec.kind == kind && !c.spec.of.empty(); });
}
static std::vector<SegmentCall> pipeline_step(const CompiledSession& s);

std::vector<SegmentCall> training_step(const CompiledSession& s) {
  if (forward_only(s))
    for (const char* pass : {"train.forward", "validation", "decode"})
      if (has_program(s, pass)) return forward_calls(s, pass);
  if (has_segments(s, ProgramKind::train)) return pipeline_step(s);
  std::vector<SegmentCall> calls;
  int64_t n = s.recipe.grad_accumulation;
  auto segment = [&](const char* wanted, const char* otherwise) {
    int i = s.find(wanted);
    return i >= 0 ? i : s.find(otherwise);
  };
  for (int64_t m = 0; m < n; ++m) {
    int i = n == 1       ? s.find("train")
            : m == 0     ? s.find("train.first")
            : m == n - 1 ? segment("train.last", "train.next")
                         : s.find("train.next");
    calls.push_back({i, m});
  }
  if (int u = s.find("update"); u >= 0) calls.push_back({u, -1});
  return calls;
}

namespace {

int find_segment(const CompiledSession& s, std::string_view of, SegmentKind part, int chunk) {
  for (size_t i = 0; i < s.programs.size(); ++i) {
    const ProgramSpec& spec = s.programs[i].spec;
    if (spec.of == of && spec.part == part && spec.chunk == chunk) return int(i);
  }
  return -1;
}

// Adds the segments of all chunks in order.
void add_segments(const CompiledSession& s, std::string_view of, SegmentKind part, std::vector<SegmentCall>& calls) {
  for (size_t i = 0; i < s.programs.size(); ++i)
    if (const ProgramSpec& spec = s.programs[i].spec; spec.of == of && spec.part == part)
      calls.push_back({int(i), -1, 0, false});
}

SegmentKind part_of(const PipelineCall& c) {
  using Action = PipelineCall::Action;
  const bool forward = c.part == StagePart::forward;
  if (c.action == Action::send) return forward ? SegmentKind::send_forward : SegmentKind::send_backward;
  if (c.action == Action::receive) return forward ? SegmentKind::receive_forward : SegmentKind::receive_backward;
  return forward ? SegmentKind::forward : c.part == StagePart::weights ? SegmentKind::weights : SegmentKind::backward;
}

}  // namespace

static std::vector<SegmentCall> pipeline_step(const CompiledSession& s) {
  const int64_t n = s.recipe.grad_accumulation;
  auto program_of = [&](int64_t m) {
    return n == 1 ? "train" : m == 0 ? "train.first" : m == n - 1 ? "train.last" : "train.next";
  };
  std::vector<SegmentCall> calls;
  add_segments(s, program_of(0), SegmentKind::share, calls);
  const std::vector<PipelineCall>& scheduled = s.schedule.calls.at(size_t(s.stage));
  for (size_t at = 0; at < scheduled.size(); ++at) {
    const PipelineCall& c = scheduled[at];
    const char* of = program_of(c.micro_step);
    const int i = find_segment(s, of, part_of(c), c.chunk);
    if (i < 0) continue;
    const bool begins = part_of(c) == SegmentKind::forward ||
                        (part_of(c) == SegmentKind::backward && find_segment(s, of, SegmentKind::forward, c.chunk) < 0);
    calls.push_back({i, c.micro_step, c.slot, begins, int(at)});
  }
  add_segments(s, program_of(n - 1), SegmentKind::after, calls);
  if (int u = s.find("update"); u >= 0) calls.push_back({u, -1});
  return calls;
}

std::vector<SegmentCall> forward_calls(const CompiledSession& s, std::string_view program) {
  const bool segments =
      std::any_of(s.programs.begin(), s.programs.end(), [&](auto& c) { return c.spec.of == program; });
  if (!segments) return {{s.find(std::string(program)), 0}};
  std::vector<SegmentCall> calls;
  add_segments(s, program, SegmentKind::share, calls);
  for (int chunk = 0; chunk < chunks_of_rank(s.recipe); ++chunk)
    for (SegmentKind part :
         {SegmentKind::receive_forward, SegmentKind::forward, SegmentKind::backward, SegmentKind::send_forward})
      if (const int i = find_segment(s, program, part, chunk); i >= 0)
        calls.push_back({i, 0, 0, part == SegmentKind::forward || part == SegmentKind::backward});
  add_segments(s, program, SegmentKind::after, calls);
  return calls;
}

// The lowest fitting level of sharding; none on CPUs, where ranks share memory.
static std::string first_shard_that_fits(const Recipe& recipe, const Device& device) {
  std::string shard = "none";
  if (device.kind == "cpu") return shard;
  for (const std::string& next : shard_levels(recipe)) {
    Recipe tried = recipe;
    shard = tried.pass_settings["shard"] = next;
    SessionUse use;
    use.train = use.update = true;
    CompiledSession s = compile(tried, device, session_programs(tried, use), {.verify = false});
    if (s.planned_bytes() <= device.memory) break;
  }
  return shard;
}

static void resolve_shard(Recipe& r, const Device& device) {
  if (auto_shard(r, device.kind)) r.pass_settings["shard"] = "optimizer";
  auto it = r.pass_settings.find("shard"), gather = r.pass_settings.find("gather");
  const bool forward = gather != r.pass_settings.end() && gather->second == "forward";
  if (it == r.pass_settings.end()) {
    if (forward && r.copies() > 1)
      fail_usage("every rank updates all weights, so there is nothing to gather", "--gather",
                 "Add --shard optimizer or --shard gradients, or leave out --gather forward.");
    return;
  }
  if (it->second == "auto") it->second = first_shard_that_fits(r, device);
  bool buckets = it->second == "gradients" || it->second == "weights";
  buckets |= it->second == "optimizer" && forward;
  if (r.copies() > 1 && buckets) r.pass_settings.emplace("reduce", "bucket");
}

Recipe resolve(Recipe r, const Device& device) {
  settings_of(r).check();
  if (r.precision == "auto") r.precision = device.native_bf16 ? "bf16" : "fp32";
  if (r.recompute == "auto") r.recompute = auto_recompute(r.fusion);
  if (!recompute_budget(r.recompute).empty())
    fail_usage("a budget is not resolved here", "--recompute " + r.recompute,
               "Give the value that crest plan prints for it: layers=LEVEL:N+...");
  // Equal choices get equal text: layers=full:12 is full. Throws if the value is for another model.
  r.recompute = recompute_value(recompute_by_layer(r.recompute, r.model.layers));
  std::string& chunk = r.pass_settings.emplace("loss-chunk", "auto").first->second;
  if (chunk == "auto") chunk = auto_loss_chunk(r.precision, r.model.vocab, device.kind);
  if (r.precision == "fp8") {
    std::string& weights = r.pass_settings.emplace("fp8-weights", "auto").first->second;
    if (weights == "auto") weights = auto_fp8_weights(r.grad_accumulation);
  }
  if (r.layout().size(Axis::pipeline) > 1)
    r.pass_settings["stages"] = stages_text(stage_layers(r));
  else if (auto it = r.pass_settings.find("stages"); it != r.pass_settings.end() && !it->second.empty())
    fail_usage(fmt::format("stages of {} layers need ranks along the axis pipeline", it->second), "--stages",
               "Add --mesh pipeline=P, or leave it out.");
  resolve_shard(r, device);
  if (auto_tensor_overlap(r, device.kind)) r.pass_settings["tensor-overlap"] = "rows";
  if (device.kind == "cpu" && r.precision == "tf32")
    fail_usage("the CPU does not support tf32", "--precision",
               "tf32 is a mode of NVIDIA tensor cores. Use fp32 or bf16.");
  if (device.kind == "cuda" && device.sm < 80 && (r.precision == "tf32" || r.precision == "bf16"))
    fail_usage(fmt::format("{} does not support {}", device.name, r.precision), "--precision",
               "It needs compute capability 8.0 or newer. Use fp32 or fp16.");
  if (device.kind == "cuda" && device.sm < 89 && r.precision == "fp8")
    fail_usage(fmt::format("{} does not support fp8", device.name), "--precision",
               "It needs compute capability 8.9 or newer (Ada, Hopper). Use bf16.");
  validate(r);
  return r;
}

CompiledSession compile(const Recipe& recipe, const Device& device, const std::vector<ProgramSpec>& programs,
                        const CompileOptions& options) {
  Timer timer;
  CompiledSession s;
  s.recipe = resolve(recipe, device);
  for (auto& pass : pipeline())
    if (pass.required && is_disabled(s.recipe, pass.name))
      fail_usage(fmt::format("a run needs the pass {}: {}", pass.name, pass.required), "--disable-pass",
                 "Leave it on. crest program --disable-pass NAME --after prune prints a Program without it.");
  s.device = device, s.stage = options.stage;
  s.device.deterministic = s.recipe.deterministic;
  // Virtual ranks are threads of this process: each plans and runs with its part of the threads. A
  // rank in its own process has its part already.
  s.device.threads = std::max(1, device.threads / s.recipe.data_parallel);
  s.compile_seconds = timer.seconds();
  extend(s, programs, options);
  return s;
}

int stage_of_rank(const Recipe& recipe, int rank) {
  const Mesh mesh = recipe.layout();
  return rank < mesh.ranks() ? mesh.coordinate(rank, Axis::pipeline) : 0;  // too many ranks: the mesh is rejected later
}

CompiledSession for_stage(const CompiledSession& s, int stage, const CompileOptions& options) {
  CompiledSession other;
  other.recipe = s.recipe, other.device = s.device, other.stage = stage;
  other.schedule = s.schedule;  // shared by all ranks
  std::vector<ProgramSpec> specs;
  for (auto& c : s.programs) {
    ProgramSpec spec = c.spec;
    if (!spec.of.empty()) spec.name = std::exchange(spec.of, {});
    specs.push_back(spec);
  }
  extend(other, specs, options);
  return other;
}

// One Program, or the segments of one of a pipeline stage.
static void add_program(CompiledSession& s, const ProgramSpec& spec, const CompileOptions& options) {
  CompiledProgram c;
  c.spec = spec;
  c.program = stage_model(s.recipe, spec);
  c.program.name = spec.name;
  c.timings = run_passes(c.program, pass_context(s.recipe, spec, s.device), {"", options.verify});
  std::vector<CompiledProgram> parts;
  if (has_layers(spec.kind) && s.recipe.layout().size(Axis::pipeline) > 1) {
    int after = 0;
    const bool splits = pipeline_kind(s.recipe) == PipelineKind::zero_bubble && spec.kind == ProgramKind::train;
    for (Segment& segment : cut_segments(c.program, splits)) {
      CompiledProgram& part = parts.emplace_back();
      part.spec = spec, part.spec.of = spec.name, part.spec.part = segment.kind;
      part.spec.name = fmt::format("{}.{}", spec.name, name(segment.kind));
      if (segment.kind == SegmentKind::after) part.spec.name += fmt::format("{}", ++after);
      if (spec.chunk) part.spec.name += fmt::format(".chunk{}", spec.chunk);
      part.program = std::move(segment.program);
      part.program.name = part.spec.name;
      if (parts.size() == 1) part.timings = std::move(c.timings);
    }
  } else {
    parts.push_back(std::move(c));
  }
  for (CompiledProgram& part : parts) {
    Timer timer;
    choose_kernels(part, s.recipe, s.device);
    part.timings.push_back({"kernels", timer.seconds()});
    s.programs.push_back(std::move(part));
  }
}

void extend(CompiledSession& s, const std::vector<ProgramSpec>& programs, const CompileOptions& options) {
  Timer all;
  const bool stages = s.recipe.layout().size(Axis::pipeline) > 1;
  for (ProgramSpec spec : programs) {
    if (has_program(s, spec.name)) continue;
    if (spec.kind == ProgramKind::start && !has_start(s.recipe)) continue;  // known only after `auto` is resolved
    spec.stage = s.stage;
    for (spec.chunk = 0; spec.chunk < (stages && has_layers(spec.kind) ? chunks_of_rank(s.recipe) : 1); ++spec.chunk)
      add_program(s, spec, options);
  }
  if (stages && s.schedule.calls.empty() && has_segments(s, ProgramKind::train)) {
    s.schedule = make_schedule(pipeline_of(s.recipe), times_by_flops(s.recipe));
    verify_schedule(s.schedule);
  }
  place(s, options);
  s.compile_seconds += all.seconds();
}

void place(CompiledSession& s, const CompileOptions& options) {
  if (options.verify) verify_handover(s);
  if (!has_segments(s, ProgramKind::train)) s.gradients = gradient_storages(s.programs, s.recipe.grad_accumulation);
  std::vector<std::vector<Block>> gradients = gradient_blocks(s.programs, s.gradients);
  s.transient_bytes = 0;
  for (size_t p = 0; p < s.programs.size(); ++p) {
    CompiledProgram& c = s.programs[p];
    Timer timer;
    c.memory = plan_memory(c.program, c.workspace, gradients[p]);
    c.host = plan_host_memory(c.program);
    if (options.verify) verify(c.memory), verify(c.host);
    c.timings.push_back({"memory", timer.seconds()});
    s.transient_bytes = std::max(s.transient_bytes, c.memory.bytes);
  }
  place_persistent(s);
  place_slots(s);
  s.communicators = communicator_memory(s);
  s.library_bytes = total_bytes(s.communicators);
  for (CompiledProgram& c : s.programs) {
    const auto copying = copying_instructions(s, c);
    if (!has_several_streams(c.program) && copying.empty()) continue;
    Timer timer;
    const Accesses accesses = accesses_by_address(s, c);
    c.waits = plan_waits(c.program, accesses);
    if (options.verify) verify_waits(c.program, accesses, c.waits);
    for (auto& [axes, list] : copying) {
      place_barriers(c.program, accesses, c.waits, list);
      if (options.verify) verify_barriers(c.program, accesses, c.waits, list);
    }
    c.timings.push_back({"waits", timer.seconds()});
  }
}

}  // namespace crest
