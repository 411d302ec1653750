#include "common/rpc/server/stream_writer.h"

#include <atomic>
#include <stdexcept>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(StreamWriterTest, JoinWaitsForTheBodyAndStopsNothing) {
  std::atomic<bool> done = false;
  std::atomic<int> stops = 0;
  {
    StreamWriter writer([&] { done = true; }, [&] { ++stops; });
    writer.Join();
    EXPECT_TRUE(done);
  }
  EXPECT_EQ(stops, 0);
}

TEST(StreamWriterTest, WhatTheBodyThrowsIsThrownByJoinAndTheHandlerIsStopped) {
  std::atomic<bool> stopped = false;
  StreamWriter writer([] { throw std::runtime_error("broken"); },
                      [&] {
                        stopped = true;
                        stopped.notify_all();
                      });
  stopped.wait(false);  // like a handler that blocks in a read
  EXPECT_THROW(writer.Join(), std::runtime_error);
}

TEST(StreamWriterTest, AHandlerThatThrowsStopsTheBody) {
  std::atomic<bool> stopped = false;
  const auto handler = [&] {
    StreamWriter writer([&] { stopped.wait(false); },
                        [&] {
                          stopped = true;
                          stopped.notify_all();
                        });
    throw std::runtime_error("broken");
  };
  EXPECT_THROW(handler(), std::runtime_error);
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace dapd
