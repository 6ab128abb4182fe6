#include "train/same_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/exchange.h"
#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "program/text.h"

namespace crest {

std::vector<std::string> program_rows(const CompiledSession& session) {
  std::vector<std::string> rows;
  for (auto& c : session.programs) {
    rows.push_back("program " + c.spec.name);
    for (auto& line : split(print(c.program), '\n')) rows.push_back(line);
  }
  return rows;
}

void check_same_rows(Communicator& comm, const std::vector<std::string>& rows) {
  std::string text = join(rows, "\n");
  Digest digest = sha256(text.data(), text.size());
  std::vector<double> hash(digest.begin(), digest.end());
  auto all = gather(comm, hash);
  auto other = std::find_if(all.begin(), all.end(), [&](auto& h) { return h != all[0]; });
  if (other == all.end()) return;
  int rank = int(other - all.begin());
  std::vector<std::string> first = split(broadcast_text(comm, text, 0), '\n');
  std::string difference;
  if (comm.rank() == rank) {
    size_t i = 0;
    while (i < std::min(first.size(), rows.size()) && first[i] == rows[i]) ++i;
    auto at = [&](const std::vector<std::string>& list) {
      constexpr size_t longest = 300;
      return i < list.size() ? fmt::format("'{}'", printable(list[i], longest)) : std::string("nothing");
    };
    difference = fmt::format("rank 0 has {}, rank {} has {}", at(first), rank, at(rows));
  }
  difference = broadcast_text(comm, difference, rank);
  if (comm.rank() != 0) throw PeerLost(0, "rank 0 ended the run", "start");
  fail("the ranks would not compute the same: " + difference, "start",
       "Start all ranks with the same flags, data and version of Crest, on machines of the same kind.");
}

}  // namespace crest
