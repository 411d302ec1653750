#include "common/base/line_relay.h"

#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Returns the lines that the relay makes of `pieces`.
std::vector<std::string> Relayed(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  auto relay = LineRelay::Start(
      [&](absl::string_view line) { lines.emplace_back(line); });
  EXPECT_TRUE(relay.ok()) << relay.status();
  for (const std::string& piece : pieces) {
    EXPECT_EQ(::write((*relay)->writer(), piece.data(), piece.size()),
              static_cast<ssize_t>(piece.size()));
  }
  relay->reset();
  return lines;
}

TEST(LineRelayTest, LinesComeWholeHoweverTheyWereWritten) {
  EXPECT_THAT(Relayed({"on", "e\n\ntw", "o\nthree"}),
              ElementsAre("one", "", "two", "three"));
  EXPECT_THAT(Relayed({}), ElementsAre());
}

TEST(LineRelayTest, ALineWithoutEndComesInPieces) {
  std::string endless(3 * LineRelay::kMaxLine, 'x');
  const std::vector<std::string> lines = Relayed({endless + "\nlast\n"});
  std::string sum;
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_LE(lines[i].size(), LineRelay::kMaxLine + (1 << 16));
    sum += lines[i];
  }
  EXPECT_EQ(sum, endless);
  EXPECT_EQ(lines.back(), "last");
}

TEST(LineRelayTest, WhatWritersSayAtOnceIsNotLost) {
  constexpr int kWriters = 4;
  constexpr int kLines = 2000;
  std::vector<std::string> lines;
  auto relay = LineRelay::Start(
      [&](absl::string_view line) { lines.emplace_back(line); });
  ASSERT_TRUE(relay.ok());
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < kWriters; ++i) {
      writers.emplace_back([&, i] {
        const std::string line(static_cast<size_t>(100 + i), 'a');
        for (int j = 0; j < kLines; ++j) {
          const std::string whole = line + "\n";
          (void)!::write((*relay)->writer(), whole.data(), whole.size());
        }
      });
    }
  }
  relay->reset();
  EXPECT_THAT(lines, SizeIs(kWriters * kLines));
  for (const std::string& line : lines) {
    EXPECT_GE(line.size(), 100U);
    EXPECT_LT(line.size(), 100U + kWriters);
  }
}

}  // namespace
}  // namespace dapd
