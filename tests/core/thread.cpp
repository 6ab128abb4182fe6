// Threads with throwing work.
#include "core/thread.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace crest::test {

TEST(Thread, AnExceptionGoesToItsHandler) {
  std::string said;
  {
    Thread thread([] { throw std::runtime_error("of the work"); },
                  [&](const std::exception_ptr& error) {
                    try {
                      std::rethrow_exception(error);
                    } catch (const std::exception& e) {
                      said = e.what();
                    }
                    throw std::runtime_error("of the handler");
                  });
  }
  EXPECT_EQ(said, "of the work");
}

TEST(Thread, AListThatFailsMidwayWaitsForThoseThatWereStarted) {
  int done = 0;
  auto start = [&] {
    std::vector<Thread> threads;
    threads.emplace_back([&] { done = 1; }, [](auto&) {});
    throw std::runtime_error("no more threads");
  };
  EXPECT_THROW(start(), std::runtime_error);
  EXPECT_EQ(done, 1);
}

}  // namespace crest::test
