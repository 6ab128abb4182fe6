#include "train/same_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/exchange.h"
#include "core/content_hash.h"
#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "plan/recipe_settings.h"
#include "program/text.h"
#include "train/training_settings.h"

namespace crest {

std::vector<std::string> program_rows(const CompiledSession& session) {
  std::vector<std::string> rows;
  for (auto& c : session.programs) {
    rows.push_back("program " + c.spec.name);
    for (auto& line : split(print(c.program), '\n')) rows.push_back(line);
  }
  return rows;
}

std::vector<std::string> recipe_rows(const Recipe& recipe, const RankOptions& ranks) {
  RankOptions own = ranks, usual;
  auto all = [](Recipe& r, RankOptions& o) {
    return settings_of(r).add(rank_settings(), &o).add(restart_settings(), &o);
  };
  Recipe mine = recipe, plain;
  return all(mine, own).shared(all(plain, usual));
}

std::vector<std::string> training_rows(const TrainOptions& options) {
  std::vector<std::string> rows = settings_of(options).shared(settings_of(TrainOptions()));
  // Arguments of a command other than settings.
  rows.insert(
      rows.begin(),
      {fmt::format("--resume: {}", options.resume), fmt::format("--init: {}", !options.init.empty()),
       fmt::format("--stop-after: {}", options.stop_after), fmt::format("a run folder: {}", !options.out.empty())});
  return rows;
}

namespace {

std::string split_row(const TokenStream& split) {
  constexpr uint64_t piece = 1 << 16, most_pieces = 256;
  const uint64_t total = split.total_tokens(), length = std::min(piece, total);
  const uint64_t pieces = std::min(most_pieces, (total + piece - 1) / piece);
  ContentHash hash;
  std::vector<int32_t> tokens(length);
  std::vector<uint8_t> marks(length);
  for (uint64_t i = 0; i < pieces; ++i) {  // spread over all tokens
    const uint64_t at = pieces == 1 ? 0 : uint64_t(double(total - length) * double(i) / double(pieces - 1));
    split.read(at, length, tokens.data());
    hash.update(tokens.data(), length * sizeof tokens[0]);
    if (!split.masked()) continue;
    split.read_mask(at, length, marks.data()), hash.update(marks.data(), length);
    split.read_inside(at, length, marks.data()), hash.update(marks.data(), length);
  }
  return fmt::format("split {}: {} tokens, {}hash {}", split.name(), total, split.masked() ? "loss masks, " : "",
                     hash.hex());
}

}  // namespace

std::vector<std::string> data_rows(const Dataset& data) {
  auto tokenizer = data.tokenizer();
  const std::string end = tokenizer && tokenizer->end_of_text() ? std::to_string(*tokenizer->end_of_text()) : "none";
  return {fmt::format("vocabulary of the data = {}, tokenizer = {}, end of text = {}", data.vocab_size(),
                      tokenizer ? tokenizer->kind_name() : "none", end),
          split_row(data.train()), split_row(data.val())};
}

std::vector<std::string> data_rows(const TrainingData& data) {
  if (!data.mixed()) return data_rows(data.sources[0]);
  std::vector<std::string> rows;
  for (size_t i = 0; i < data.sources.size(); ++i)
    for (auto& row : data_rows(data.sources[i]))
      rows.push_back(
          fmt::format("source {}, {} of {} samples: {}", i + 1, data.order.part(i), data.order.period(), row));
  return rows;
}

std::vector<std::string> run_rows(const TrainOptions& options, const Recipe& recipe, const RankOptions& ranks,
                                  const TrainingData& data) {
  std::vector<std::string> rows = {"Crest " CREST_VERSION};
  for (auto& more : {training_rows(options), recipe_rows(recipe, ranks), data_rows(data)})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

void check_same_session(Communicator& comm, const std::vector<std::string>& rows, const CompiledSession& session) {
  std::vector<std::string> all = rows;
  for (Axes axes : axes_in_use(session)) all.push_back("communication along " + axes.text());
  check_same_rows(comm, all);
  check_same_rows(comm, program_rows(session), session.recipe.layout());
}

void check_same_rows(Communicator& comm, const std::vector<std::string>& rows, const Mesh& mesh) {
  std::string text = join(rows, "\n");
  Digest digest = sha256(text.data(), text.size());
  std::vector<double> hash(digest.begin(), digest.end());
  auto all = gather(comm, hash);
  auto first_alike = [&](int rank) {
    return mesh.ranks() == comm.size() ? mesh.group(rank, Axes::all().without(Axis::pipeline))[0] : 0;
  };
  int rank = 0;
  while (rank < comm.size() && all[size_t(rank)] == all[size_t(first_alike(rank))]) ++rank;
  if (rank == comm.size()) return;
  const int alike = first_alike(rank);
  std::vector<std::string> first = split(broadcast_text(comm, text, alike), '\n');
  std::string difference;
  if (comm.rank() == rank) {
    size_t i = 0;
    while (i < std::min(first.size(), rows.size()) && first[i] == rows[i]) ++i;
    auto at = [&](const std::vector<std::string>& list) {
      constexpr size_t longest = 300;
      return i < list.size() ? fmt::format("'{}'", printable(list[i], longest)) : std::string("nothing");
    };
    difference = fmt::format("rank {} has {}, rank {} has {}", alike, at(first), rank, at(rows));
  }
  difference = broadcast_text(comm, difference, rank);
  broadcast_text(comm, "", 0);  // no rank ends before rank 0 has the difference
  if (comm.rank() != 0) throw PeerLost(0, "rank 0 ended the run", "start");
  fail("the ranks would not compute the same: " + difference, "start",
       "Start all ranks with the same flags, data and version of Crest, on machines of the same kind.");
}

}  // namespace crest
