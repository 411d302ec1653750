#include "common/base/this_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

TEST(ThisProgramTest, IsTheFileThatRuns) {
  // If a loader starts this program, as in the next test, /proc/self/exe names
  // the loader.
  const char* expected = std::getenv("EXPECTED_PROGRAM");
  EXPECT_EQ(ThisProgram(),
            expected != nullptr
                ? expected
                : std::filesystem::read_symlink("/proc/self/exe").string());
}

TEST(ThisProgramTest, AClosedStreamIsNotLeftToTheNextFile) {
  const int saved = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  OpenStandardStreams();
  const int next = ::open("/dev/null", O_RDONLY);
  EXPECT_GT(next, STDERR_FILENO);
  ::close(next);
  if (saved >= 0) {
    ::dup2(saved, STDIN_FILENO);
    ::close(saved);
  }
}

TEST(ThisProgramTest, IsFoundBehindALoader) {
  const std::string loader = "/lib64/ld-linux-x86-64.so.2";
  if (!std::filesystem::exists(loader))
    GTEST_SKIP() << "there is no " << loader;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("EXPECTED_PROGRAM", self.c_str(), 1);
    ::execl(loader.c_str(),
            loader.c_str(),
            self.c_str(),
            "--gtest_filter=ThisProgramTest.IsTheFileThatRuns",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ThisProgramTest, OfAReleaseTheLauncherIsCalled) {
  const std::filesystem::path root = TempPath("release");
  for (const char* folder : {"bin", "libexec"}) {
    std::filesystem::create_directories(root / folder);
    std::ofstream(root / folder / "dapd") << "program";
  }
  std::ofstream(root / "libexec/alone") << "program";
  EXPECT_EQ(LauncherOf(root / "libexec/dapd"), root / "bin/dapd");
  EXPECT_EQ(LauncherOf(root / "libexec/alone"), root / "libexec/alone");
  EXPECT_EQ(LauncherOf(root / "bin/dapd"), root / "bin/dapd");
}

TEST(ThisProgramTest, TheProcessHasTheNameOfItsFile) {
  NameThisProcess();
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  const std::string file =
      std::filesystem::path(ThisProgram()).filename().string();
  EXPECT_EQ(name, file.substr(0, 15));  // Linux keeps 15 characters of a name
}

}  // namespace
}  // namespace dapd
