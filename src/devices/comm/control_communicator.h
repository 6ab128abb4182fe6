// Small values between processes over the control channel, for agreement between ranks on GPUs. It
// needs only host memory and no library.
#pragma once
#include <memory>

#include "comm/comm.h"
#include "comm/control.h"

namespace crest {

// All ranks of the control channel, or groups of them by split(). Calls wait without limit, and
// throw PeerLost when a rank ends.
std::unique_ptr<Communicator> make_control_communicator(Control& control);

}  // namespace crest
