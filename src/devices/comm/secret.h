// The secret that the ranks of a run share, so that nobody else can join it.
#pragma once
#include <string>

#include "comm/environment.h"
#include "comm/socket.h"

namespace crest {

// What the launcher handed down, else CREST_SECRET, else the content of CREST_SECRET_FILE, else
// "".
class RankSecret {
 public:
  // Rank 0 writes a new secret into CREST_SECRET_FILE (mode 0600), which all ranks share; the
  // others wait for it until the deadline. Throws a usage error if a secret is too short, if others
  // can read or have written the file, or if there is none and rank 0's address can be reached from
  // other machines.
  RankSecret(const RankEnvironment& environment, Clock::time_point deadline);
  ~RankSecret() { remove_file(); }
  RankSecret(const RankSecret&) = delete;
  RankSecret& operator=(const RankSecret&) = delete;

  const std::string& text() const { return text_; }
  // For a rank whose secret rank 0 does not know: waits until the file has another one, which is
  // then text(). The first may be from a run that was killed. False: it has not, or there is none.
  bool wait_for_another(Clock::time_point deadline);
  // Rank 0's file, if this object wrote it. Any thread may call it.
  void remove_file();

 private:
  std::string text_, file_;
  Socket written_;  // rank 0's
};

// For a launcher: a descriptor, closed on exec unless that is changed, from which its ranks read a
// new secret, and the variable that holds its number.
int make_inherited_secret();
inline constexpr const char* secret_descriptor_variable = "CREST_RANK_SECRET";

// An HMAC that shows knowledge of a secret to the process that chose one of the numbers.
std::string proof(const std::string& secret, const std::string& who, const std::string& client_number,
                  const std::string& server_number);

}  // namespace crest
