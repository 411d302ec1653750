#include "common/base/safe_name.h"

#include <string>

#include "gtest/gtest.h"

#include "tests/fakes/hostile_names.h"

namespace dapd {
namespace {

TEST(SafeNameTest, OrdinaryNamesAreSafe) {
  for (const std::string& name :
       {std::string("a"),
        std::string("model.safetensors"),
        std::string("model-00001-of-00004.safetensors"),
        std::string("_private"),
        std::string("step-000050"),
        std::string("a..b"),
        std::string(128, 'a')}) {
    EXPECT_TRUE(IsSafeName(name)) << name;
  }
}

TEST(SafeNameTest, HostileNamesAreNot) {
  EXPECT_GE(HostileNames().size(), 50u);
  for (const std::string& name : HostileNames()) {
    EXPECT_FALSE(IsSafeName(name)) << name;
  }
}

TEST(SafeNameTest, NoOtherByteIsLetThrough) {
  int safe = 0;
  for (int c = 0; c < 256; ++c) {
    safe += IsSafeName(std::string("a") + static_cast<char>(c));
  }
  EXPECT_EQ(safe, 26 + 26 + 10 + 3);
}

}  // namespace
}  // namespace dapd
