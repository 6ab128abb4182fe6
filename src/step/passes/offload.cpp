// Setting --offload: optimizer state is in host memory; for activations see
// passes/offload_activations.cpp. The update works on pieces of the state.
// Each piece is copied to a device buffer, updated there and copied back. Meanwhile the other
// buffers return earlier pieces and receive the next ones. Element-wise updates of whole groups are
// cut into equal pieces. Other updates go tensor by tensor.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "ops/index.h"
#include "ops/update.h"
#include "passes/offload_activations.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

namespace {

constexpr size_t buffer_count = state_buffers;
// Smaller states, relative to a piece, stay on the device: starting a copy would take longer than
// the copy.
constexpr int64_t small_part = 64;
constexpr int64_t most_pieces = 1 << 14;  // each is a few instructions
constexpr int64_t vector_elements = 64;   // pieces start at a multiple, for vector loads in every dtype

// State storages: PARAMETER.SUFFIX, or SUFFIX.GROUP (passes/groups.cpp).
std::set<ValueId> states_to_move(const Program& p, int64_t least) {
  std::set<std::string> parameters, groups;
  for (auto& q : p.params) {
    parameters.insert(q.name);
    const std::string& storage = p.at(p.at(q.value).layout.storage).name;
    if (storage.starts_with("weights.")) groups.insert(storage.substr(storage.find('.') + 1));
  }
  std::set<ValueId> found;
  for (auto& instr : p.code)
    for (ValueId v : instr.in) {
      if (v == no_value || p.at(v).role != Role::state) continue;
      const Value& root = p.at(p.at(v).layout.storage);
      bool of_parameter = parameters.count(root.name.substr(0, root.name.rfind('.'))) > 0;
      bool of_group = groups.count(root.name.substr(root.name.find('.') + 1)) > 0;
      if (root.lifetime == Lifetime::persistent && root.storage_bytes() >= least && (of_parameter || of_group))
        found.insert(p.at(v).layout.storage);
    }
  return found;
}

class Offload {
 public:
  Offload(Program& program, std::set<ValueId> moved, int64_t piece_bytes)
      : w_(program), p_(program), moved_(std::move(moved)), piece_bytes_(piece_bytes) {
    for (Value& v : p_.values)
      if (is_moved(v.layout.storage)) v.space = MemorySpace::host;
    read_.resize(p_.values.size());
    for (const Instr& instr : w_.old)
      for (ValueId v : instr.in)
        if (v != no_value) read_[size_t(v)] = true;
    for (ValueId v : p_.outputs) read_[size_t(v)] = true;
  }

  void run() {
    find_sections();
    for (size_t s = 0; s < sections_.size(); ++s) cut(s);
    declare_buffers();
    for (size_t k = 0; k < buffer_count && k < pieces_.size(); ++k) copy_in(k);
    size_t section = 0;
    for (size_t i = 0; i < w_.old.size(); ++i) {
      while (section < sections_.size() && sections_[section].last < i) ++section;
      bool inside = section < sections_.size() && sections_[section].first <= i;
      if (!inside || !uses_state(w_.old[i]))
        follow(w_.old[i]);
      else if (sections_[section].pieces > 1)
        update_in_pieces(w_.old[i], sections_[section]);
      else
        update_whole(w_.old[i], sections_[section], i);
    }
    w_.finish();
  }

 private:
  // All instructions on the same states, from first to last use.
  struct Section {
    size_t first, last;
    std::vector<ValueId> states;         // versions read by the first use
    size_t first_piece = 0, pieces = 1;  // in pieces_
    int64_t rows = 0;                    // rows of the parameter in a piece, if there are several
  };
  struct Piece {
    size_t section;
    std::vector<ValueId> states;  // in host memory
  };

  bool is_moved(ValueId storage) const { return moved_.count(storage) > 0; }
  bool is_state(ValueId v) const { return v != no_value && is_moved(p_.at(v).layout.storage); }
  bool uses_state(const Instr& instr) const {
    return std::any_of(instr.in.begin(), instr.in.end(), [&](ValueId v) { return is_state(v); });
  }

  void find_sections() {
    std::map<ValueId, size_t> section_of;  // by version of a state
    for (size_t i = 0; i < w_.old.size(); ++i) {
      const Instr& instr = w_.old[i];
      if (!uses_state(instr)) continue;
      size_t first = i;
      for (ValueId v : instr.in)
        if (auto it = section_of.find(v); it != section_of.end()) first = std::min(first, sections_[it->second].first);
      // Merges sections that end after `first`.
      Section joined{first, i, {}};
      while (!sections_.empty() && sections_.back().last >= first) {
        joined.first = std::min(joined.first, sections_.back().first);
        joined.states.insert(joined.states.begin(), sections_.back().states.begin(), sections_.back().states.end());
        sections_.pop_back();
      }
      for (ValueId v : instr.in)
        if (is_state(v) && !section_of.count(v)) joined.states.push_back(v);
      sections_.push_back(joined);
      for (auto& [v, s] : section_of) s = std::min(s, sections_.size() - 1);
      for (auto* list : {&instr.in, &instr.out})
        for (ValueId v : *list)
          if (is_state(v)) section_of[v] = sections_.size() - 1;
    }
  }

  // Parameter elements for each element of the operand: 1, or a block.
  int64_t elements_each(const Instr& instr, ValueId operand) const {
    bool alike = p_.at(operand).shape == p_.at(instr.in[parameter_input]).shape;
    return alike ? 1 : instr.attrs.integer("block");
  }

  // Cuts an element-wise update along the parameter's leading dimension.
  void cut(size_t s) {
    Section& section = sections_[s];
    section.first_piece = pieces_.size();
    const Instr& instr = w_.old[section.first];
    if (section.first == section.last && instr.op->flat) {
      const Value& parameter = p_.at(instr.in[parameter_input]);
      int64_t rows = parameter.shape[0], row = parameter.numel() / rows, unit = vector_elements;
      double row_bytes = 0;
      for (size_t j = parameter_input; j < instr.in.size(); ++j)
        if (instr.in[j] != no_value) unit = std::lcm(unit, elements_each(instr, instr.in[j]));
      for (ValueId v : section.states) row_bytes += double(p_.at(v).bytes()) / double(rows);
      unit /= std::gcd(unit, row);  // in rows
      section.rows = std::max<int64_t>(1, int64_t(double(piece_bytes_) / row_bytes) / unit) * unit;
      section.pieces = size_t((rows + section.rows - 1) / section.rows);
    }
    if (section.pieces == 1) {
      pieces_.push_back({s, section.states});
      return;
    }
    for (size_t k = 0; k < section.pieces; ++k) pieces_.push_back({s, {}});
    for (ValueId v : section.states) {
      std::vector<ValueId> parts = split(instr, v, section, Stream::copy);
      for (size_t k = 0; k < section.pieces; ++k) pieces_[section.first_piece + k].states.push_back(parts[k]);
    }
  }

  // Views of an operand's rows, one for each piece.
  std::vector<ValueId> split(const Instr& instr, ValueId operand, const Section& section, Stream stream) {
    const Value& parameter = p_.at(instr.in[parameter_input]);
    int64_t each = elements_each(instr, operand), rows = section.rows;
    if (each > 1) rows = rows * (parameter.numel() / parameter.shape[0]) / each;
    Builder& b = w_.build(instr);
    b.stream = stream;
    return b.emit("split_rows", {operand}, Attrs().set("of", p_.at(operand).shape[0]).set("rows", rows));
  }

  // Buffers by index in the pieces' lists of states. Each has the size of the largest state at its
  // index.
  void declare_buffers() {
    Builder b(p_);
    for (size_t slot = 0; slot < buffer_count; ++slot) {
      std::vector<int64_t> bytes;
      for (size_t k = slot; k < pieces_.size(); k += buffer_count) {
        bytes.resize(std::max(bytes.size(), pieces_[k].states.size()));
        for (size_t j = 0; j < pieces_[k].states.size(); ++j)
          bytes[j] = std::max(bytes[j], p_.at(pieces_[k].states[j]).bytes());
      }
      for (size_t j = 0; j < bytes.size(); ++j)
        buffers_[slot].push_back(
            b.declare(fmt::format("offload.{}.{}", slot, j), DType::u8, {bytes[j]}, Role::state, Lifetime::micro_step));
    }
  }

  std::vector<ValueId>& buffers_of(size_t piece) { return buffers_[piece % buffer_count]; }

  void copy_in(size_t k) {
    if (k >= pieces_.size()) return;
    Builder& b = w_.build(w_.old[sections_[pieces_[k].section].first]);
    b.stream = Stream::copy;
    for (size_t j = 0; j < pieces_[k].states.size(); ++j) {
      ValueId& buffer = buffers_of(k)[j];
      buffer = b.emit1("copy_in", {pieces_[k].states[j], buffer});
    }
  }

  void copy_out(size_t k) {
    Builder& b = w_.build(w_.old[sections_[pieces_[k].section].last]);
    b.stream = Stream::copy_back;
    for (size_t j = 0; j < pieces_[k].states.size(); ++j) b.emit1("copy_out", {buffers_of(k)[j], pieces_[k].states[j]});
  }

  // Keeps an instruction with replaced inputs. A result in its own memory stays the same value. A
  // result in a replaced input's memory becomes a new value.
  void follow(const Instr& instr) {
    Instr own = instr;
    own.in = w_.now(instr.in);
    if (own.in == instr.in) return w_.keep(instr);
    std::vector<ValueId> out = w_.build(instr).append(own);
    for (size_t o = 0; o < out.size(); ++o)
      if (p_.at(out[o]).layout.storage == out[o])
        p_.code.back().out[o] = instr.out[o];  // own memory: the same value
      else
        take_place(instr.out[o], out[o]);
  }

  // Appends an instruction on a piece's buffers.
  std::vector<ValueId> append(Instr instr, size_t k) {
    std::vector<ValueId> out = w_.build(instr).append(instr);
    for (ValueId v : out)
      for (ValueId& buffer : buffers_of(k))
        if (p_.at(v).layout.storage == p_.at(buffer).layout.storage) buffer = v;
    return out;
  }

  void update_whole(const Instr& instr, const Section& section, size_t i) {
    size_t k = section.first_piece;
    if (i == section.first)
      for (size_t j = 0; j < section.states.size(); ++j) w_.replace(section.states[j], buffers_of(k)[j]);
    Instr own = instr;
    own.in = w_.now(instr.in);
    std::vector<ValueId> out = append(own, k);
    for (size_t o = 0; o < out.size(); ++o) take_place(instr.out[o], out[o]);
    if (i == section.last) copy_out(k), copy_in(k + buffer_count);
  }

  void update_in_pieces(const Instr& instr, const Section& section) {
    std::vector<std::vector<ValueId>> parts(instr.in.size()), updated(instr.out.size());
    for (size_t j = 0; j < instr.in.size(); ++j)
      if (instr.in[j] != no_value && j != scalars_input && !is_state(instr.in[j]))
        parts[j] = split(instr, w_.now(instr.in[j]), section, instr.stream);
    for (size_t n = 0; n < section.pieces; ++n) {
      size_t k = section.first_piece + n, state = 0;
      Instr own = instr;
      for (size_t j = 0; j < own.in.size(); ++j)
        own.in[j] = !parts[j].empty()       ? parts[j][n]
                    : is_state(instr.in[j]) ? buffers_of(k)[state++]
                                            : w_.now(instr.in[j]);
      const std::vector<ValueId> out = append(own, k);
      for (size_t o = 0; o < out.size(); ++o) updated[o].push_back(out[o]);
      copy_out(k), copy_in(k + buffer_count);
    }
    for (size_t o = 0; o < instr.out.size(); ++o) {
      if (read_[size_t(instr.out[o])]) join(instr, instr.out[o], updated[o]);
      retire(instr.out[o]);
    }
  }

  // Readers of a whole updated value depend on all its pieces; these are in place already.
  void join(const Instr& instr, ValueId whole, const std::vector<ValueId>& pieces) {
    const ValueId joined = w_.build(instr).emit1("join_rows", pieces);
    Value &to = p_.at(joined), &was = p_.at(whole);
    to.layout = was.layout, to.role = was.role, to.lifetime = was.lifetime;
    w_.replace(whole, joined);
  }

  void take_place(ValueId was, ValueId by) {
    retire(was);
    w_.replace(was, by);
  }
  void retire(ValueId was) { p_.at(was).lifetime = Lifetime::micro_step; }  // no value any more

  Rewriter w_;
  Program& p_;
  const std::set<ValueId> moved_;  // storages
  std::vector<bool> read_;         // by value
  const int64_t piece_bytes_;
  std::vector<Section> sections_;                           // disjoint, in order
  std::vector<Piece> pieces_;                               // in order
  std::array<std::vector<ValueId>, buffer_count> buffers_;  // current contents, by index
};

}  // namespace

void offload(Program& program, const PassContext& context) {
  const OffloadChoice choice = offload_choice(context.setting("offload"));
  if (const int64_t layers = context.recipe.model.layers;
      choice.layers > layers && choice.layers != OffloadChoice::all_layers)
    fail_usage(
        fmt::format("there are no {} layers to move the activations of: the model has {}", choice.layers, layers),
        "--offload " + context.setting("offload"), "Use activations=all for every layer.");
  if (context.kind == ProgramKind::train && choice.activations != OffloadChoice::Activations::none)
    offload_activations(program, context, choice);
  if (context.kind != ProgramKind::update || !choice.optimizer) return;
  int64_t piece = parse_bytes(context.setting("offload-piece"), "--offload-piece");
  std::set<ValueId> moved = states_to_move(program, piece / small_part);
  int64_t bytes = 0;
  for (ValueId v : moved) bytes += program.at(v).storage_bytes();
  if (int64_t least = (bytes + most_pieces - 1) / most_pieces; piece < least)
    fail_usage(fmt::format("{} of optimizer state would be cut into more than {} pieces", format_bytes(double(bytes)),
                           most_pieces),
               "--offload-piece " + context.setting("offload-piece"),
               fmt::format("Use at least {} bytes; 64MiB is the default.", least));
  if (!moved.empty()) Offload(program, std::move(moved), piece).run();
}

static Setting checked_offload(Setting row) {
  static const auto set = row.set;
  row.set = [](const Setting& s, void* object, const SettingValue& value) {
    offload_choice(std::get<std::string>(value));
    set(s, object, value);
  };
  return row;
}

const std::vector<Setting>& offload_settings() {
  static const std::vector<Effect> effects = {{Effect::all, Effect::anywhere, {}, "update"}};
  static const std::vector<Effect> all_effects = {{Effect::all, Effect::anywhere, {}, "update"},
                                                  {Effect::all, Effect::anywhere, {}, nullptr, true}};
  static const std::vector<Setting> rows = {
      checked_offload(pass_setting(
          {.name = "offload",
           .group = "Optimizer",
           .help = "what is in host memory while it is not used: nothing (none), the optimizer's state and fp32 master "
                   "weights, moved to the device in pieces for their update (optimizer), activations kept for the "
                   "backward pass, as many as predicted transfers hide behind computation (activations), of the first "
                   "N layers (activations=N) or of every layer (activations=all), or both (optimizer+activations)",
           .default_value = "none",
           .choices = {"none", "optimizer", "activations", "activations=LAYERS", "optimizer+activations",
                       "optimizer+activations=LAYERS"},
           .resume = OnResume::accepts,
           .effects = all_effects,
           .smaller = {"optimizer"}})),
      pass_setting({.name = "offload-piece",
                    .group = "Optimizer",
                    .help = "with --offload optimizer: size of a piece of state; a number with B, kB, MB, GB, KiB, "
                            "MiB or GiB. The device has three pieces at a time, and all states smaller than a 64th of "
                            "a piece",
                    .default_value = "64MiB",
                    .example = "64MiB",
                    .resume = OnResume::accepts,
                    .effects = effects})};
  return rows;
}

}  // namespace crest
