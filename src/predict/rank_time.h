// The time of collectives between GPUs of one host, for steps of several ranks.
#pragma once
#include "device/data_sheet.h"
#include "plan/compile.h"
#include "profile/profile.h"

namespace crest {

// One host: what the measured curves are of.
inline constexpr int most_predicted_ranks = 8;
// A predicted collective may be off by this factor: other links, other versions of NCCL.
inline constexpr double collective_factor = 1.5;

// Whether the collectives of the session's step can be predicted: processes with a GPU each, whose
// sheet has a link, on one host.
bool predicts_ranks(const CompiledSession& session, const DataSheet* sheet);

// Milliseconds of all calls of a row that communicates: a start and the bytes that a rank sends, at
// the part of the link's bandwidth that NCCL reached between two H200 (docs/results/h200/comm.txt).
double collective_ms(const CompiledSession& session, const ProfileInstr& row, const DataSheet& sheet);

}  // namespace crest
