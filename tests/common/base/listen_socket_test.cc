#include "common/base/listen_socket.h"

#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/no_descriptors.h"

namespace dapd {
namespace {

using testing::HasSubstr;

std::string Refusal(const std::string& host, int port) {
  const auto socket = OpenListenSocket(host, port);
  EXPECT_FALSE(socket.ok());
  return std::string(socket.status().message());
}

TEST(ListenSocketTest, APortThatIsAskedForOrAnyIsTaken) {
  const auto any = OpenListenSocket("127.0.0.1", 0);
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_GT(any->port, 0);
  EXPECT_THAT(Refusal("127.0.0.1", any->port),
              HasSubstr("Address already in use; the port is in use"));
  ::close(any->descriptor);
  const auto same = OpenListenSocket("127.0.0.1", any->port);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->port, any->port);
  ::close(same->descriptor);
}

TEST(ListenSocketTest, TheSystemsReasonIsNamed) {
  EXPECT_THAT(Refusal("192.0.2.1", 0),
              HasSubstr("cannot listen on 192.0.2.1:0: Cannot assign requested "
                        "address; the address is not this machine's"));
  const NoDescriptors none;
  EXPECT_THAT(Refusal("127.0.0.1", 0),
              HasSubstr("Too many open files; this process may have no more "
                        "files open: raise ulimit -n"));
}

}  // namespace
}  // namespace dapd
