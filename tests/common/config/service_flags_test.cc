#include "common/config/service_flags.h"

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/loaded_config.h"

namespace dapd {
namespace {

// Returns the result of CommandLine::Parse().
std::optional<int> ParseFlags(std::vector<std::string> words,
                              ServiceFlags* flags) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  CommandLine line("Tests.");
  flags->AddTo(line, "trainer.listen");
  return line.Parse(static_cast<int>(argv.size()), argv.data());
}

TEST(ServiceFlagsTest, AnAddressToListenOnIsTakenAsItIsGiven) {
  ServiceFlags flags;
  ASSERT_FALSE(ParseFlags({"service",
                           "config.yaml",
                           "--set",
                           "trainer.steps=7",
                           "--listen",
                           "[::1]:7993"},
                          &flags)
                   .has_value());
  EXPECT_EQ(flags.config, "config.yaml");
  const auto loaded = Load(kGood, flags.Overrides());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.trainer.listen, "[::1]:7993");
  EXPECT_EQ(loaded->config.trainer.steps, 7);
}

// A script whose variable is not set passes an empty address.
TEST(ServiceFlagsTest, AnEmptyAddressIsNotTheOneOfTheConfiguration) {
  ServiceFlags flags;
  EXPECT_EQ(ParseFlags({"service", "config.yaml", "--listen", ""}, &flags),
            static_cast<int>(ExitCode::kUsage));
}

}  // namespace
}  // namespace dapd
