#include "common/config/set_up_log.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/log.h"
#include "common/config/load_config.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Write(const std::string& text) {
  const std::string path = TempPath("log.yaml");
  std::ofstream(path) << text;
  return path;
}

std::string LoggedAs(const Config& config) {
  SetUpLog("trainer", config, 3);
  testing::internal::CaptureStderr();
  LogWarning("careful");
  LogInfo("at ease");
  return testing::internal::GetCapturedStderr();
}

TEST(SetUpLogTest, FormatAndLevelAreTheConfigurations) {
  const std::string path =
      Write("{run: {name: mine}, log: {format: json, level: warning}}");
  const std::string logged = LoggedAs(PeekConfig(path, {}));
  EXPECT_THAT(logged, HasSubstr(R"("run":"mine","rank":3)"));
  EXPECT_THAT(logged, HasSubstr("careful"));
  EXPECT_THAT(logged, Not(HasSubstr("at ease")));
  EXPECT_THAT(LoggedAs(PeekConfig(path, {"log.level=error"})), IsEmpty());
  EXPECT_THAT(LoggedAs(PeekConfig(path, {"log.format=text"})),
              HasSubstr("trainer-3] careful"));
}

TEST(SetUpLogTest, MistakesElsewhereDoNotHideTheFormat) {
  const std::string path = Write(
      "{run: {name: mine, sead: 1}, trainer: {steps: many},"
      " log: {format: json, level: loud}}");
  EXPECT_FALSE(LoadConfig(path, {}).ok());
  const Config config = PeekConfig(path, {"no key"});
  EXPECT_EQ(config.log.format, LogFormat::kJson);
  EXPECT_EQ(config.log.level, Severity::kInfo);
  EXPECT_EQ(config.run.name, "mine");
}

TEST(SetUpLogTest, TheEnvironmentServesWhereNoFileCanBeRead) {
  ::setenv("DAPD_LOG__FORMAT", "json", /*overwrite=*/1);
  const std::string missing = TempPath("no-such.yaml");
  EXPECT_EQ(PeekConfig(missing, {}).log.format, LogFormat::kJson);
  EXPECT_EQ(PeekConfig(missing, {"log.format=text"}).log.format,
            LogFormat::kText);
  EXPECT_EQ(PeekConfig(Write("{run: "), {}).log.format, LogFormat::kJson);
  ::unsetenv("DAPD_LOG__FORMAT");
}

}  // namespace
}  // namespace dapd
