#include "common/base/error_output.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/steady_time.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

std::string Dropped(int64_t number) { return absl::StrCat("-", number, "\n"); }

// Makes a pipe that holds one page.
class PatientOutputTest : public testing::Test {
 protected:
  PatientOutputTest() {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    EXPECT_GE(::fcntl(ends_[1], F_SETPIPE_SZ, 4096), 4096);
  }
  ~PatientOutputTest() override {
    ::close(ends_[1]);
    ::close(ends_[0]);
  }

  // Returns the lines up to `last`, inclusive.
  std::vector<std::string> ReadUntil(const std::string& last) const {
    std::string text;
    char buffer[512];
    while (text != last + "\n" && !text.ends_with("\n" + last + "\n")) {
      const ssize_t size = ::read(ends_[0], buffer, sizeof(buffer));
      if (size <= 0) break;
      text.append(buffer, static_cast<size_t>(size));
    }
    return absl::StrSplit(text.substr(0, text.size() - 1), '\n');
  }

  int ends_[2] = {};
};

TEST_F(PatientOutputTest, ALineIsThereWhenTheCallReturns) {
  PatientOutput output(ends_[1], Dropped);
  for (int i = 0; i < 100; ++i) {
    output.Write("a line\n");
    char buffer[64];
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    ASSERT_EQ(::read(ends_[0], buffer, sizeof(buffer)), 7);
  }
}

TEST_F(PatientOutputTest, NobodyWaitsForAReaderWhoDoesNotRead) {
  PatientOutput output(ends_[1], Dropped);
  const absl::Time begin = SteadyNow();
  for (int i = 0; i < 10'000; ++i) output.Write(absl::StrCat(i, "\n"));
  output.Offer("a bar\n");
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(20));
  // All lines but the bar were kept for the late reader.
  const auto lines = ReadUntil("9999");
  ASSERT_EQ(lines.size(), 10'000U);
  for (int i = 0; i < 10'000; ++i) EXPECT_EQ(lines[i], absl::StrCat(i));
}

TEST_F(PatientOutputTest, LinesBeyondWhatIsKeptAreCountedWhereTheyAreMissing) {
  PatientOutput output(ends_[1], Dropped);
  const std::string filling(999, 'x');
  constexpr int kLines = 3000;
  for (int i = 0; i < kLines; ++i) output.Write(filling + "\n");
  std::jthread late([&] {
    absl::SleepFor(absl::Milliseconds(50));
    output.Write("end\n");
  });
  int64_t seen = 0;
  int64_t missing = 0;
  // `end` may come while there is no room yet; then it counts as missing.
  while (seen + missing < kLines + 1) {
    std::string line;
    char letter = 0;
    while (::read(ends_[0], &letter, 1) == 1 && letter != '\n') line += letter;
    int64_t number = 0;
    if (line.front() == '-' && absl::SimpleAtoi(line, &number)) {
      missing -= number;
      EXPECT_GE(seen, static_cast<int64_t>(kMaxUnreadBytes / 1000) - 10);
    } else {
      ++seen;
    }
  }
  EXPECT_GT(missing, 1000);
  EXPECT_EQ(seen + missing, kLines + 1);
}

TEST_F(PatientOutputTest, TheEndDoesNotWaitForAReaderWhoDoesNotRead) {
  const absl::Time begin = SteadyNow();
  {
    PatientOutput output(ends_[1], Dropped);
    for (int i = 0; i < 50; ++i) output.Write(std::string(999, 'x') + "\n");
    output.Write("end\n");
  }
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(3));
  // The output's thread still runs and would write into the next test's pipe.
  EXPECT_EQ(ReadUntil("end").size(), 51U);
}

TEST_F(PatientOutputTest, TheEndWaitsForAReaderWhoIsSlow) {
  std::vector<std::string> lines;
  std::jthread reader;
  {
    PatientOutput output(ends_[1], Dropped);
    for (int i = 0; i < 30; ++i) output.Write(std::string(999, 'x') + "\n");
    output.Write("end\n");
    reader = std::jthread([&] {
      absl::SleepFor(absl::Milliseconds(200));
      lines = ReadUntil("end");
    });
  }
  reader.join();
  EXPECT_EQ(lines.size(), 31U);
}

TEST_F(PatientOutputTest, AReaderThatMustNotBlockGetsEverything) {
  ::fcntl(ends_[1], F_SETFL, O_NONBLOCK);
  PatientOutput output(ends_[1], Dropped);
  for (int i = 0; i < 20; ++i) output.Write(std::string(999, 'x') + "\n");
  output.Write("end\n");
  EXPECT_EQ(ReadUntil("end").size(), 21U);
}

TEST_F(PatientOutputTest, NobodyLosesALineOfSeveralThreadsThatIsRead) {
  PatientOutput output(ends_[1], Dropped);
  std::vector<std::jthread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&output] {
      for (int i = 0; i < 2000; ++i) output.Write("a line\n");
    });
  }
  size_t bytes = 0;
  char buffer[4096];
  while (bytes < 4 * 2000 * 7) {
    const ssize_t size = ::read(ends_[0], buffer, sizeof(buffer));
    ASSERT_GT(size, 0);
    bytes += static_cast<size_t>(size);
  }
  EXPECT_EQ(bytes, 4U * 2000 * 7);
}

TEST_F(PatientOutputTest, AForkedChildWritesToo) {
  PatientOutput output(ends_[1], Dropped);
  output.Write("parent\n");
  output.BeforeFork();
  const pid_t child = ::fork();
  output.AfterFork(child == 0);
  if (child == 0) {
    output.Write("child\n");
    output.Flush();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  output.Write("end\n");
  EXPECT_THAT(ReadUntil("end"), ElementsAre("parent", "child", "end"));
}

}  // namespace
}  // namespace dapd
