// The ranks' shared secret, so nobody else can join a run.
#pragma once
#include <string>

#include "comm/environment.h"
#include "comm/socket.h"

namespace crest {

// The launcher's secret, else CREST_SECRET, else the content of CREST_SECRET_FILE, else "".
class RankSecret {
 public:
  // Rank 0 writes a new secret into CREST_SECRET_FILE (mode 0600), shared by all ranks. The others
  // wait for it until the deadline. Throws a usage error if a secret is too short, if others can
  // read or have written the file, or if there is no secret and other machines can reach rank 0's
  // address.
  RankSecret(const RankEnvironment& environment, Clock::time_point deadline);
  ~RankSecret() { remove_file(); }
  RankSecret(const RankSecret&) = delete;
  RankSecret& operator=(const RankSecret&) = delete;

  const std::string& text() const { return text_; }
  // For a rank with a secret unknown to rank 0, possibly from a killed run: waits until the file
  // has another one, then text() is the new one. False: there is no other one, or no file.
  bool wait_for_another(Clock::time_point deadline);
  // Removes rank 0's file if this object wrote it. Any thread may call it.
  void remove_file();

 private:
  std::string text_, file_;
  Socket written_;  // on rank 0
};

// For a launcher: a descriptor to read a new secret from, and the variable with its number for the
// ranks. The descriptor is closed on exec by default.
int make_inherited_secret();
inline constexpr const char* secret_descriptor_variable = "CREST_RANK_SECRET";

// An HMAC that shows knowledge of a secret to the process that chose one of the numbers.
std::string proof(const std::string& secret, const std::string& who, const std::string& client_number,
                  const std::string& server_number);

}  // namespace crest
