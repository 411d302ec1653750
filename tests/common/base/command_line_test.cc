#include "common/base/command_line.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

std::optional<int> Parse(CommandLine& line, std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return line.Parse(static_cast<int>(argv.size()), argv.data());
}

// Holds the values that a program with an option of every kind gets.
struct Values {
  std::string text = "before";
  std::string file;
  std::vector<std::string> list;
  int64_t count = 1;
  int64_t any_count = 1;
  uint64_t seed = 0;
  double rate = 0.5;
  double share = 0.5;
  std::optional<bool> maybe;
  bool flag = false;
  std::optional<int> code;
  std::string error;
};

Values ParseValues(const std::vector<std::string>& words) {
  Values values;
  CommandLine line("Tests.", "program");
  line.AddOption("text", values.text, "a text").Required();
  line.AddOption("--list", values.list, "a list").TakeAll();
  line.AddOption("--count", values.count, "a count").Range(1, 9);
  line.AddOption("--file", values.file, "a file").NotEmpty();
  line.AddOption("--any-count", values.any_count, "a count without a range");
  line.AddOption("--seed", values.seed, "a seed");
  line.AddOption("--rate", values.rate, "a rate").Positive();
  line.AddOption("--share", values.share, "a share").Range(1e-9, 1.0);
  line.AddOption("--maybe", values.maybe, "true or false");
  line.AddFlag("--flag", values.flag, "a flag");
  testing::internal::CaptureStderr();
  values.code = Parse(line, words);
  values.error = testing::internal::GetCapturedStderr();
  return values;
}

TEST(CommandLineTest, OptionsFillTheirValues) {
  const Values values = ParseValues({"given",
                                     "--list",
                                     "a",
                                     "--list",
                                     "b",
                                     "--count",
                                     "3",
                                     "--seed",
                                     "18446744073709551615",
                                     "--rate",
                                     "2.5",
                                     "--share",
                                     "1e-9",
                                     "--maybe",
                                     "false",
                                     "--flag"});
  EXPECT_EQ(values.code, std::nullopt) << values.error;
  EXPECT_EQ(values.text, "given");
  EXPECT_EQ(values.list, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(values.count, 3);
  EXPECT_EQ(values.seed, 18446744073709551615u);
  EXPECT_EQ(values.rate, 2.5);
  EXPECT_EQ(values.share, 1e-9);
  EXPECT_EQ(values.maybe, false);
  EXPECT_TRUE(values.flag);
}

TEST(CommandLineTest, WhatIsWrongIsSaidAndAUsageError) {
  for (const auto& [words, said] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "text is required"},
           {{""}, "text: The value is empty"},
           {{"x", "--file", ""}, "--file: The value is empty"},
           {{"x", "--count", "10"}, "--count"},
           {{"x", "--count", "1.5"}, "--count"},
           {{"x", "--rate", "-1"}, "--rate: Value -1 is not above 0"},
           {{"x", "--rate", "nan"}, "--rate: Value nan is not a finite number"},
           {{"x", "--rate", "1e400"}, "--rate"},
           {{"x", "--share", "0"}, "--share: Value 0 not in range 1e-09 to 1"},
           {{"x", "--share", "2"}, "--share: Value 2 not in range 1e-09 to 1"},
           {{"x", "--share", "half"}, "--share"},
           {{"x", "--any-count", "9223372036854775808"}, "--any-count"},
           {{"x", "--seed", "18446744073709551616"}, "--seed"},
           {{"x", "--seed", "-1"}, "--seed: Value -1 is negative"},
           {{"x", "--unknown"}, "--unknown"}}) {
    const Values values = ParseValues(words);
    EXPECT_EQ(values.code, kUsage) << said;
    EXPECT_NE(values.error.find(said), std::string::npos) << values.error;
  }
}

TEST(CommandLineTest, NoItemOfARequiredListIsEmpty) {
  std::vector<std::string> runs;
  CommandLine line("Tests.", "program");
  line.AddOption("runs", runs, "folders").Required();
  testing::internal::CaptureStderr();
  const std::optional<int> code = Parse(line, {"first", ""});
  const std::string error = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, kUsage);
  EXPECT_NE(error.find("runs: The value is empty"), std::string::npos) << error;
}

TEST(CommandLineTest, ArgumentsAreQuotedEscaped) {
  const Values values = ParseValues({"x", "--count", "\xff\x1b[2J"});
  EXPECT_EQ(values.code, kUsage);
  EXPECT_NE(values.error.find("\\xff\\x1b[2J"), std::string::npos)
      << values.error;
}

TEST(CommandLineTest, AnUnknownSubcommandIsNamed) {
  for (const auto& [words, said] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "A subcommand is required"},
           {{"lists"}, "A subcommand is required"},
           {{"train", "run.yaml"},
            "program has no subcommand or option 'train'"},
           {{"-v"}, "program has no subcommand or option '-v'"},
           {{"lists", "shw"}, "lists has no subcommand or option 'shw'"},
           {{"lists", "show", "more"}, "was not expected: more"}}) {
    CommandLine line("Tests.", "program");
    line.RequireSubcommand();
    Command lists = line.AddSubcommand("lists", "has a subcommand");
    lists.RequireSubcommand();
    lists.AddSubcommand("show", "succeeds");
    testing::internal::CaptureStderr();
    const std::optional<int> code = Parse(line, words);
    const std::string error = testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, kUsage) << said;
    EXPECT_NE(error.find(said), std::string::npos) << error;
  }
}

TEST(CommandLineTest, TheChosenCommandRuns) {
  for (const auto& [name, code] :
       {std::pair{"first", absl::StatusCode::kOk},
        std::pair{"second", absl::StatusCode::kAborted}}) {
    CommandLine line("Tests.", "program");
    line.RequireSubcommand();
    line.AddSubcommand("first", "succeeds").Does([] {
      return absl::OkStatus();
    });
    Command second = line.AddSubcommand("second", "fails");
    bool flag = false;
    second.AddFlag("--flag", flag, "of the second alone");
    second.Does([] { return absl::AbortedError("as asked"); });
    ASSERT_EQ(Parse(line, {name}), std::nullopt);
    EXPECT_EQ(line.Run().code(), code);
  }
}

TEST(CommandLineTest, TheRestIsTheCommandLineOfAnotherProgram) {
  const auto rest_of = [](std::vector<std::string> words) {
    std::vector<std::string> rest;
    CommandLine line("Tests.", "program");
    Command keep = line.AddSubcommand("keep", "Keeps another program.");
    keep.TakeRest(rest);
    keep.Does([] { return absl::OkStatus(); });
    words.insert(words.begin(), "keep");
    const std::optional<int> code = Parse(line, words);
    if (code.has_value()) rest.insert(rest.begin(), std::to_string(*code));
    return rest;
  };
  EXPECT_EQ(rest_of({"other", "--set", "a=b", "--", "-x"}),
            (std::vector<std::string>{"other", "--set", "a=b", "--", "-x"}));
  EXPECT_EQ(rest_of({}).front(), std::to_string(kUsage));
  EXPECT_EQ(rest_of({"--no-such-option", "other"}).front(),
            std::to_string(kUsage));
}

}  // namespace
}  // namespace dapd
