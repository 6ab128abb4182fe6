// Communication hidden by computation, and exposed communication.
#pragma once
#include <vector>

#include "profile/profile.h"

namespace crest {

// From start to end, in any unit.
struct TimeSpan {
  double start = 0, end = 0;
};
// Merged and in order.
std::vector<TimeSpan> merged(std::vector<TimeSpan> spans);
double length_of(const std::vector<TimeSpan>& merged);
// Time covered by both. Both must be merged.
double overlap_of(const std::vector<TimeSpan>& a, const std::vector<TimeSpan>& b);

// A collective, or anything else on the stream of collectives.
bool communicates(const ProfileInstr& row);

// The time of a communicating instruction: hidden while other instructions ran on the device,
// exposed otherwise. Both add up to the row's time, the mean over the profiled steps; their shares
// come from the kept step. Copies of inputs hide nothing.
struct CommunicationTime {
  int instr = -1;  // row of Profile::instrs
  double hidden_ms = 0, exposed_ms = 0;
};
std::vector<CommunicationTime> communication_times(const Profile& profile);
// The same for gradients on a stream of their own: hidden while the compute stream ran.
std::vector<CommunicationTime> gradient_times(const Profile& profile);

}  // namespace crest
