#include "common/config/service_flags.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/loaded_config.h"

namespace dapd {
namespace {

TEST(ServiceFlagsTest, AnAddressToListenOnIsTakenAsItIsGiven) {
  std::vector<std::string> words = {"service",
                                    "config.yaml",
                                    "--set",
                                    "trainer.steps=7",
                                    "--listen",
                                    "[::1]:7993"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  CommandLine line("Tests.");
  ServiceFlags flags;
  flags.AddTo(line, "trainer.listen");
  ASSERT_FALSE(
      line.Parse(static_cast<int>(argv.size()), argv.data()).has_value());
  EXPECT_EQ(flags.config, "config.yaml");
  const auto loaded = Load(kGood, flags.Overrides());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.trainer.listen, "[::1]:7993");
  EXPECT_EQ(loaded->config.trainer.steps, 7);
}

}  // namespace
}  // namespace dapd
