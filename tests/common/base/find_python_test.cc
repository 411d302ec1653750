#include "common/base/find_python.h"

#include <filesystem>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/line_process.h"
#include "common/base/steady_time.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

TEST(FindPythonTest, AGivenOneIsTaken) {
  EXPECT_EQ(FindPython("/usr/bin/python3.12"), "/usr/bin/python3.12");
}

TEST(PythonCommandTest, NoModuleComesFromTheFolderItIsStartedIn) {
  const std::string folder = TempPath("folder");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(folder, "json.py"),
                                  "dumps = lambda value: 'poisoned'\n")
                  .ok());
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  LineProcess python(
      "python",
      PythonCommand("", "import json\nprint(json.dumps([1]), flush=True)\n"));
  const absl::Status started = python.Start();
  std::filesystem::current_path(before);
  ASSERT_TRUE(started.ok()) << started;
  const auto line = python.Read(SteadyNow() + absl::Seconds(30));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(*line, "[1]");
}

}  // namespace
}  // namespace dapd
