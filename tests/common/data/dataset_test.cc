#include "common/data/dataset.h"

#include <zlib.h>

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/data/epoch_order.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRows[] =
    "{\"problem\": \"1+1?\", \"solution\": \"2\", \"answer\": 2}\n"
    "\n"
    "{\"id\": \"b\", \"problem\": \"2+2?\", \"solution\": \"4\"}\n";

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = TempPath(name);
  EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
  return path;
}

std::string WriteGzip(const std::string& name, const std::string& bytes) {
  const std::string path = TempPath(name);
  const gzFile file = ::gzopen(path.c_str(), "wb1");
  EXPECT_EQ(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  ::gzclose(file);
  return path;
}

TEST(ReadDatasetTest, RowsKeepTheirOrderIdsAndAnswers) {
  const auto data = ReadDataset(Write("rows.jsonl", kRows), {});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->problems.size(), 2u);
  EXPECT_EQ(data->problems[0].id, "0");
  EXPECT_EQ(data->problems[0].answer, "2");
  EXPECT_EQ(data->problems[1].id, "b");
  EXPECT_EQ(data->problems[1].answer, "");
}

Config RoutedConfig() {
  Config config;
  config.data.teacher_column = "who";
  config.teachers = {{.name = "big"}, {.name = "small"}};
  config.objective.preset = "opd";
  config.objective.teacher_weights.names = {kRowTeacher};
  return config;
}

TEST(ReadDatasetTest, ARowNamesItsTeacher) {
  const std::string path =
      Write("routed.jsonl",
            "{\"problem\": \"1?\", \"solution\": \"1\", \"who\": \"big\"}\n"
            "{\"problem\": \"2?\", \"solution\": \"2\", \"who\": \"base\"}\n"
            "{\"problem\": \"3?\", \"solution\": \"3\", \"who\": \"\"}\n"
            "{\"problem\": \"4?\", \"solution\": \"4\", \"who\": null}\n");
  const Config config = RoutedConfig();
  const auto data = ReadDataset(path, MakeDatasetOptions(config));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->problems[0].teacher, "big");
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(data->problems[i].teacher, "");

  Config unrouted = config;
  unrouted.objective.teacher_weights.names = {"big"};
  const auto plain = ReadDataset(path, MakeDatasetOptions(unrouted));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->problems[0].teacher, "") << "no term asks for it";
  EXPECT_NE(plain->digest, data->digest) << "a run is bound to the teachers";
  std::vector<Problem> problems = data->problems;
  problems[0].teacher.clear();
  EXPECT_EQ(DigestOf(problems), plain->digest) << "as before there were any";
}

TEST(ReadDatasetTest, ARowsTeacherMustBeKnown) {
  Config config = RoutedConfig();
  const std::string unknown = Write(
      "unknown.jsonl",
      "{\"problem\": \"1?\", \"solution\": \"1\", \"who\": \"big\"}\n"
      "{\"problem\": \"2?\", \"solution\": \"2\", \"who\": \"bigger\"}\n");
  const absl::Status status =
      ReadDataset(unknown, MakeDatasetOptions(config)).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("unknown.jsonl:2: column 'who' names the teacher "
                        "'bigger', but teachers has only big, small and base"));
  config.data.on_bad_row = OnBadRow::kSkip;
  const auto skipped = ReadDataset(unknown, MakeDatasetOptions(config));
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_EQ(skipped->skipped_rows, 1);

  const std::string without =
      Write("without.jsonl", "{\"problem\": \"1?\", \"solution\": \"1\"}\n");
  config.data.on_bad_row = OnBadRow::kFail;
  EXPECT_THAT(
      std::string(
          ReadDataset(without, MakeDatasetOptions(config)).status().message()),
      AllOf(HasSubstr("who"), HasSubstr("data.teacher_column")));
  EXPECT_TRUE(ReadDataset(without, MakeHeldOutOptions(config)).ok())
      << "held-out rows are read by the base";
}

TEST(ReadDatasetTest, ANumberThatIsNotReadExactlyIsABadRow) {
  const absl::Status status =
      ReadDataset(Write("large.jsonl",
                        "{\"problem\": \"2^100?\", \"solution\": \"2\", "
                        "\"answer\": 1267650600228229401496703205376}\n"),
                  {})
          .status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("large.jsonl:1: column 'answer' holds a number"));
}

TEST(ReadDatasetTest, GzipIsReadLikePlain) {
  const auto data = ReadDataset(WriteGzip("rows.jsonl.gz", kRows), {});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->digest, ReadDataset(Write("rows.jsonl", kRows), {})->digest);
}

TEST(ReadDatasetTest, AnArrayOfRowsIsReadLikeLines) {
  const std::string array =
      "\n [\n  {\"problem\": \"1, ]+1?\", \"solution\": \"2\"},\n"
      " {\"problem\": \"\\\"\", \"solution\": \"[\"} ]\n";
  const auto data = ReadDataset(Write("array.json", array), {});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->problems.size(), 2u);
  EXPECT_EQ(data->problems[0].problem, "1, ]+1?");
  EXPECT_EQ(data->problems[1].problem, "\"");
  EXPECT_THAT(data->problems[1].where, HasSubstr("array.json row 2"));
  for (const auto& path : {WriteGzip("array.json.gz", "\xEF\xBB\xBF" + array),
                           Write("marked.json", "\xEF\xBB\xBF" + array)}) {
    EXPECT_EQ(ReadDataset(path, {})->digest, data->digest);
  }
}

TEST(ReadDatasetTest, ABadRowOfAnArrayIsOneRowAndABadArrayIsNone) {
  const std::string row = "{\"problem\": \"p\", \"solution\": \"s\"}";
  const DatasetOptions skip = {.on_bad_row = OnBadRow::kSkip};
  const auto bad =
      ReadDataset(Write("bad.json", "[" + row + ", {\"a\" 1}, 7]"), skip);
  ASSERT_TRUE(bad.ok()) << bad.status();
  EXPECT_EQ(bad->skipped_rows, 2);
  for (const auto& [text, said] :
       {std::pair("[" + row, "ends within its JSON array"),
        std::pair("[" + row + ",]", "row 2: there is no row"),
        std::pair("[" + row + "] x", "something follows"),
        std::pair(std::string("[{\"a\": ]"), "ends within"),
        std::pair(std::string("{\n\"data\": []}"), "takes several lines")}) {
    const absl::Status status =
        ReadDataset(Write("array.json", text), skip).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(said)) << text;
  }
}

TEST(ReadDatasetTest, ALineOrAnElementThatIsTooLongIsNamed) {
  const std::string much(size_t{64} << 20, 'x');
  EXPECT_THAT(
      std::string(
          ReadDataset(WriteGzip("long.jsonl.gz", kRows + ("{\"" + much)), {})
              .status()
              .message()),
      HasSubstr("long.jsonl.gz:4: the line is longer than 64 MiB"));
  EXPECT_THAT(
      std::string(ReadDataset(WriteGzip("array.json.gz", "[1, \"" + much),
                              {.on_bad_row = OnBadRow::kSkip})
                      .status()
                      .message()),
      HasSubstr("row 2: the row is longer than 64 MiB"));
}

TEST(ReadDatasetTest, ASolutionThatIsNotNeededIsNotRead) {
  const std::string path =
      Write("olympiad.jsonl",
            "{\"problem\": \"p\", \"solution\": [\"a\", \"b\"], "
            "\"answer\": \"1\"}\n");
  EXPECT_THAT(std::string(ReadDataset(path, {}).status().message()),
              HasSubstr("column 'solution' holds array"));
  const auto data =
      ReadDataset(path, {.needs_solution = false, .needs_answer = true});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->problems[0].solution, "");
}

TEST(ReadDatasetTest, AColumnMapChoosesTheColumns) {
  const std::string path =
      Write("mapped.jsonl", "{\"q\": \"1+1?\", \"a\": \"2\"}\n");
  const auto data =
      ReadDataset(path, {.problem_column = "q", .solution_column = "a"});
  ASSERT_TRUE(data.ok()) << data.status();
  const absl::Status missing = ReadDataset(path, {}).status();
  EXPECT_EQ(ExitCodeOf(missing), ExitCode::kData);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("found: a, q"));
}

TEST(ReadDatasetTest, ABenchmarkNeedsAnswersAndNoSolutions) {
  const DatasetOptions benchmark = {.id_column = "name",
                                    .problem_column = "question",
                                    .answer_column = "target",
                                    .needs_solution = false,
                                    .needs_answer = true,
                                    .column_settings = "--answer-column"};
  const auto data = ReadDataset(
      Write("benchmark.jsonl",
            "{\"name\": \"p\", \"question\": \"1+1?\", \"target\": 2}\n"),
      benchmark);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->problems[0].id, "p");
  EXPECT_EQ(data->problems[0].answer, "2");
  EXPECT_EQ(data->problems[0].solution, "");

  const auto missing = ReadDataset(
      Write("no_answers.jsonl", "{\"question\": \"1+1?\"}\n"), benchmark);
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("no column 'target'"),
                    HasSubstr("name the right ones with --answer-column")));
  const auto empty =
      ReadDataset(Write("empty_answer.jsonl",
                        "{\"question\": \"1+1?\", \"target\": null}\n"),
                  benchmark);
  EXPECT_THAT(std::string(empty.status().message()),
              AllOf(HasSubstr(":1"), HasSubstr("column 'target' is empty")));
}

TEST(ReadDatasetTest, ABadRowIsNamedOrSkippedAndCounted) {
  const std::string path = Write(
      "bad.jsonl",
      std::string(kRows) + "{\"problem\": \" \", \"solution\": \"x\"}\n{\n");
  EXPECT_THAT(std::string(ReadDataset(path, {}).status().message()),
              HasSubstr("bad.jsonl:4"));
  const auto data = ReadDataset(path, {.on_bad_row = OnBadRow::kSkip});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->problems.size(), 2u);
  EXPECT_EQ(data->skipped_rows, 2);
}

TEST(DigestOfTest, EachTextOfARowCounts) {
  const Problem problem = {"id", "1+1?", "so 2", "2"};
  for (std::string Problem::*text : {&Problem::id,
                                     &Problem::problem,
                                     &Problem::solution,
                                     &Problem::answer}) {
    Problem other = problem;
    other.*text += "x";
    EXPECT_NE(DigestOf({problem}), DigestOf({other})) << other.*text;
  }
  EXPECT_NE(DigestOf({{"id", "1+1?", "so 22", ""}}),
            DigestOf({{"id", "1+1?", "so 2", "2"}}))
      << "where one text ends";
}

TEST(ReadDatasetTest, OtherFilesAreRefused) {
  EXPECT_EQ(ExitCodeOf(ReadDataset("/no/such.jsonl", {}).status()),
            ExitCode::kData);
  EXPECT_THAT(
      std::string(ReadDataset(Write("rows.csv", "a,b"), {}).status().message()),
      HasSubstr("CSV is not read"));
  EXPECT_EQ(ExitCodeOf(ReadDataset(Write("x.parquet", "PAR1"), {}).status()),
            ExitCode::kData);
}

TEST(EpochOrderTest, IsAPermutationThatSeedAndEpochDecide) {
  std::vector<int64_t> order = EpochOrder(1000, 42, 0);
  EXPECT_EQ(order, EpochOrder(1000, 42, 0));
  EXPECT_EQ(order, EpochOrder(1000, 41, 1));
  EXPECT_NE(order, EpochOrder(1000, 42, 1));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

// Python printed these for torch.randperm(10,
// generator=torch.Generator().manual_seed(42)).
TEST(EpochOrderTest, AgreesWithTorchRandperm) {
  EXPECT_EQ(EpochOrder(10, 42, 0),
            (std::vector<int64_t>{2, 6, 1, 8, 4, 5, 0, 9, 3, 7}));
}

// Computes the rows position by position, with a new order for each.
std::vector<int64_t> RowsOneByOne(int64_t size, int64_t step, int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t i = step * count; i < (step + 1) * count; ++i) {
    const std::vector<int64_t> order = EpochOrder(size, 42, i / size);
    rows.push_back(order[static_cast<size_t>(i % size)]);
  }
  return rows;
}

TEST(StepRowsTest, RunThroughTheEpochsWithoutAGap) {
  StepRows steps(10, 42);
  std::vector<int64_t> rows;
  for (int64_t step = 0; step < 5; ++step) {
    for (const int64_t row : steps.Of(step, 4)) rows.push_back(row);
  }
  std::vector<int64_t> expected = EpochOrder(10, 42, 0);
  const std::vector<int64_t> second = EpochOrder(10, 42, 1);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(rows, expected);
}

TEST(StepRowsTest, AStepHasTheSameRowsWhateverWasAskedForBefore) {
  // The steps are within an epoch, across its end, and over several epochs.
  for (const int64_t count : {1, 3, 4, 25}) {
    StepRows steps(10, 42);
    for (const int64_t step : {0, 1, 2, 2, 3, 7, 3, 0, 40, 41, 2}) {
      EXPECT_EQ(steps.Of(step, count), RowsOneByOne(10, step, count))
          << "step " << step << " of " << count << " rows";
    }
    for (int64_t step = 0; step < 30; ++step) {
      EXPECT_EQ(steps.Of(step, count), RowsOneByOne(10, step, count))
          << "step " << step << " of " << count << " rows";
      EXPECT_EQ(StepRows(10, 42).Of(step, count), steps.Of(step, count))
          << "resumed at step " << step << " of " << count << " rows";
    }
  }
}

TEST(StepRowsTest, TheOrderOfAnEpochIsMadeOnce) {
  // Making the order for every step would take minutes.
  constexpr int64_t kRows = 1'000'000;
  StepRows steps(kRows, 42);
  const std::vector<int64_t> order = EpochOrder(kRows, 42, 0);
  for (int64_t step = 0; step < 10'000; ++step) {
    ASSERT_EQ(steps.Of(step, 1).front(), order[static_cast<size_t>(step)]);
  }
}

TEST(ReadDatasetTest, ColumnsOfPromptsAreTextsOrJson) {
  const std::string path = Write(
      "columns.jsonl",
      R"({"problem": "P", "solution": "S", "hint": "a \"b\"", "tests": )"
      R"({"z": [1.0, 1e16, true, null], "a": "\u00e9"}, "note": "N"})"
      "\n"
      R"({"problem": "P", "solution": "S", "hint": 7, "tests": "x", "note": )"
      "null}\n");
  DatasetOptions options = {
      .prompt_columns = {{"hint", "hint"}, {"tests", "tests"}}};
  const auto data = ReadDataset(path, options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->problems[0].material->columns,
            (PromptColumns{
                {"hint", "a \"b\""},
                {"tests",
                 "{\"z\": [1.0, 1e+16, true, null], \"a\": \"\xC3\xA9\"}"}}));
  EXPECT_EQ(data->problems[1].material->columns,
            (PromptColumns{{"hint", "7"}, {"tests", "x"}}));
  EXPECT_NE(data->digest, ReadDataset(path, {})->digest);
  EXPECT_EQ(ReadDataset(path, {})->problems[0].material, nullptr);
  options.prompt_columns = {{"context", "note"}};
  EXPECT_THAT(
      std::string(ReadDataset(path, options).status().message()),
      AllOf(HasSubstr(":2: column 'note' is missing or null, and a prompt "
                      "shows it as {context}"),
            HasSubstr("write {{context}}")));
  options.on_bad_row = OnBadRow::kSkip;
  EXPECT_EQ(ReadDataset(path, options)->skipped_rows, 1);
}

TEST(ReadDatasetTest, AConversationGivesProblemSolutionAndTheRest) {
  const std::string path = Write(
      "chats.jsonl",
      R"({"chat": [{"role": "system", "content": "Y"}, {"role": "user", )"
      R"("content": "P"}, {"role": "assistant", "content": "S"}], "tools": )"
      R"([{"name": "f", "a": 1}], "answer": 3})"
      "\n"
      R"({"chat": "[{\"from\": \"human\", \"value\": \"Q\"}]", "solution": )"
      "\"T\", \"tools\": null}\n");
  DatasetOptions options = {.messages_column = "chat", .tools_column = "tools"};
  const auto data = ReadDataset(path, options);
  ASSERT_TRUE(data.ok()) << data.status();
  const Problem& first = data->problems[0];
  EXPECT_EQ(first.problem, "P");
  EXPECT_EQ(first.solution, "S");
  EXPECT_EQ(first.answer, "3");
  EXPECT_EQ(*first.material,
            (RowMaterial{.system = "Y", .tools = R"([{"name":"f","a":1}])"}));
  EXPECT_EQ(data->problems[1].problem, "Q");
  EXPECT_EQ(data->problems[1].solution, "T");
  EXPECT_EQ(data->problems[1].material, nullptr);
  options.solution_column = "none";
  EXPECT_THAT(
      std::string(ReadDataset(path, options).status().message()),
      HasSubstr(":2: column 'chat' does not end with an answer of the "
                "assistant, and there is no column 'none' with a solution"));
  options.needs_solution = false;
  EXPECT_EQ(ReadDataset(path, options)->problems.size(), 2u);
  options.messages_column = "tools";
  EXPECT_THAT(std::string(ReadDataset(path, options).status().message()),
              HasSubstr(":1: column 'tools' message 1 has no role"));
}

TEST(ReadDatasetTest, RowsOfConversationsAreRecognised) {
  for (const auto& [column, form] :
       {std::pair{"messages", "OpenAI"}, {"conversations", "ShareGPT"}}) {
    const std::string path =
        Write("chat.jsonl", "{\"" + std::string(column) + "\": []}\n");
    EXPECT_THAT(std::string(ReadDataset(path, {}).status().message()),
                AllOf(HasSubstr("there is no column 'problem'"),
                      HasSubstr(std::string(form) +
                                "'s form, which "
                                "data.messages_column: " +
                                column)));
  }
}

TEST(ReadDatasetTest, AWholeRowIsKeptIfItIsNeeded) {
  const std::string path = Write(
      "whole.jsonl",
      R"({"z": 1.5, "problem": "P", "solution": "S", "a": {"c": 1, "b": 2}, )"
      "\"none\": null}\n");
  EXPECT_EQ(ReadDataset(path, {.needs_row_json = true})->problems[0].row_json,
            R"({"a": {"c": 1, "b": 2}, "problem": "P", "solution": "S", )"
            R"("z": 1.5})");
  EXPECT_EQ(ReadDataset(path, {})->problems[0].row_json, "");
  EXPECT_NE(ReadDataset(path, {.needs_row_json = true})->digest,
            ReadDataset(path, {})->digest);
}

}  // namespace
}  // namespace dapd
