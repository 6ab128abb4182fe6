// TCP sockets with deadlines, as needed for ranks to find each other.
#pragma once
#include <chrono>
#include <string>

namespace crest {

using Clock = std::chrono::steady_clock;
inline Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Owns a file descriptor.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();
  void close();

 private:
  int fd_;
};

// port 0: any free one. The error for a port in use names it.
Socket listen_on(const std::string& address, int port);
int port_of(const Socket& socket);
// The local address of a connected socket, as text: the interface towards the other side.
std::string own_address(const Socket& socket);
// Retries until the deadline. On failure the socket is closed and `problem` has the reason.
struct Connected {
  Socket socket;
  std::string problem;
};
Connected connect_to(const std::string& address, int port, Clock::time_point deadline);
// Whether all addresses of a host belong to this machine alone.
bool is_loopback(const std::string& address);
// False if the other side is gone.
bool send_all(const Socket& socket, const std::string& data);

// A message of the control channel. On the wire: uint32 length of the rest, type, uint32 length of
// the key, key, value; little-endian.
struct Frame {
  char type = 0;
  std::string key, value;
};
std::string encode(const Frame& frame);

// Splits the incoming bytes into frames.
class FrameReader {
 public:
  // Reads the available bytes. False if the other side is gone or sends something else.
  bool receive(const Socket& socket);
  // The next complete frame; false: none yet.
  bool next(Frame& frame);
  // Number of bytes of an incomplete frame.
  size_t waiting() const { return buffer_.size(); }

 private:
  std::string buffer_;
};

}  // namespace crest
