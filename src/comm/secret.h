// The secret that the ranks of a run share, so that nobody else can join it.
#pragma once
#include <string>

#include "comm/environment.h"

namespace crest {

// What the launcher handed down, else CREST_SECRET, else "". Throws a usage error if it is too
// short, or if there is none and rank 0's address can be reached from other machines.
std::string rank_secret(const RankEnvironment& environment);

// For a launcher: a descriptor, closed on exec unless that is changed, from which its ranks read a
// new secret, and the variable that holds its number.
int make_inherited_secret();
inline constexpr const char* secret_descriptor_variable = "CREST_RANK_SECRET";

// An HMAC that shows knowledge of a secret to the process that chose one of the numbers.
std::string proof(const std::string& secret, const std::string& who, const std::string& client_number,
                  const std::string& server_number);

}  // namespace crest
