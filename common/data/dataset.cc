#include "common/data/dataset.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/progress.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/preset_terms.h"
#include "common/config/prompts.h"
#include "common/data/chat_messages.h"
#include "common/data/data_files.h"
#include "common/data/data_format.h"
#include "common/data/row_source.h"

namespace dapd {
namespace {

constexpr size_t kMaxReportedRows = 5;
constexpr size_t kMaxNamedColumns = 20;

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

// Returns the characters of a string, and any other value as JSON.
std::string ShownText(const std::string& json) {
  return json.front() == '"' ? nlohmann::json::parse(json).get<std::string>()
                             : json;
}

absl::Status ColumnError(const std::string& where,
                         const std::string& column,
                         absl::string_view what) {
  return DataError(absl::StrCat(where, ": column '", column, "' ", what));
}

// Reads problem, solution and messages from the conversation.
absl::Status TakeConversation(const DataRow& row,
                              const DatasetOptions& options,
                              const std::string& where,
                              Problem* problem,
                              RowMaterial* material) {
  const std::string& column = options.messages_column;
  const auto found = row.values.find(column);
  if (found == row.values.end()) {
    return ColumnError(where, column, "is empty");
  }
  auto parsed = ParseConversation(found->second);
  if (!parsed.ok()) {
    return ColumnError(where, column, std::string(parsed.status().message()));
  }
  problem->problem = std::move(parsed->user.content);
  if (parsed->answer.has_value()) {
    problem->solution = *std::move(parsed->answer);
  }
  if (options.needs_solution && IsBlank(problem->solution)) {
    return ColumnError(
        where,
        column,
        absl::StrCat("does not end with an answer of the assistant, and there "
                     "is no column '",
                     options.solution_column,
                     "' with a solution"));
  }
  if (IsBlank(problem->problem)) {
    return ColumnError(where, column, "has an empty last message of the user");
  }
  material->system = std::move(parsed->system);
  material->before = std::move(parsed->before);
  material->after = std::move(parsed->after);
  material->user_more = std::move(parsed->user.more);
  return absl::OkStatus();
}

absl::Status TakeColumns(const DataRow& row,
                         const DatasetOptions& options,
                         const std::string& where,
                         RowMaterial* material) {
  for (const auto& [field, column] : options.prompt_columns) {
    const auto found = row.values.find(column);
    if (found == row.values.end()) {
      return ColumnError(
          where,
          column,
          absl::StrCat("is missing or null, and a prompt shows it as {",
                       field,
                       "}; to use that as text, write {{",
                       field,
                       "}}"));
    }
    material->columns[field] = ShownText(found->second);
  }
  if (const auto tools = row.values.find(options.tools_column);
      tools != row.values.end()) {
    auto list = ParseTools(tools->second);
    if (!list.ok()) {
      return ColumnError(
          where, options.tools_column, std::string(list.status().message()));
    }
    material->tools = *std::move(list);
  }
  return absl::OkStatus();
}

std::string RowJson(const TextRow& values) {
  return absl::StrCat(
      "{",
      absl::StrJoin(
          values,
          ", ",
          [](std::string* out, const auto& value) {
            absl::StrAppend(
                out, nlohmann::json(value.first).dump(), ": ", value.second);
          }),
      "}");
}

absl::Status CheckTexts(const Problem& problem,
                        const DatasetOptions& options,
                        const std::string& where) {
  const bool has_messages = !options.messages_column.empty();
  for (const auto& [column, value, is_needed] :
       {std::tuple(&options.problem_column, &problem.problem, !has_messages),
        std::tuple(&options.solution_column,
                   &problem.solution,
                   options.needs_solution && !has_messages),
        std::tuple(
            &options.answer_column, &problem.answer, options.needs_answer)}) {
    if (is_needed && IsBlank(*value)) {
      return ColumnError(where, *column, "is empty");
    }
  }
  // JSON is always UTF-8. Parquet promises UTF-8, but does not check it.
  for (const auto& [column, value] :
       {std::pair(options.id_column, &problem.id),
        std::pair(options.problem_column, &problem.problem),
        std::pair(options.solution_column, &problem.solution),
        std::pair(options.answer_column, &problem.answer),
        std::pair(options.teacher_column, &problem.teacher)}) {
    if (!IsUtf8(*value)) return ColumnError(where, column, "is not UTF-8");
  }
  return absl::OkStatus();
}

// Turns the base's name into an empty one, and refuses an unknown teacher.
absl::Status CheckTeacher(const DatasetOptions& options,
                          const std::string& where,
                          Problem* problem) {
  if (problem->teacher == NameOf(WeightSet::kBase)) problem->teacher.clear();
  if (!problem->teacher.empty() &&
      std::ranges::count(options.teachers, problem->teacher) == 0) {
    return ColumnError(where,
                       options.teacher_column,
                       absl::StrCat("names the teacher '",
                                    Printable(problem->teacher),
                                    "', but teachers has only ",
                                    absl::StrJoin(options.teachers, ", "),
                                    options.teachers.empty() ? "" : " and ",
                                    "base, the student's own base"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Problem> ToProblem(const absl::StatusOr<DataRow>& row,
                                  const DatasetOptions& options,
                                  const std::string& where,
                                  int64_t number) {
  RETURN_IF_ERROR(row.status());
  const auto text = [&](const std::string& column) {
    const auto found = row->texts.find(column);
    return found == row->texts.end() ? std::string() : found->second;
  };
  Problem problem;
  problem.where = where;
  problem.solution = text(options.solution_column);
  problem.answer = text(options.answer_column);
  problem.id = text(options.id_column);
  if (problem.id.empty()) problem.id = absl::StrCat(number);
  RowMaterial material;
  if (options.messages_column.empty()) {
    problem.problem = text(options.problem_column);
  } else {
    RETURN_IF_ERROR(
        TakeConversation(*row, options, where, &problem, &material));
  }
  problem.teacher = text(options.teacher_column);
  RETURN_IF_ERROR(CheckTexts(problem, options, where));
  RETURN_IF_ERROR(CheckTeacher(options, where, &problem));
  RETURN_IF_ERROR(TakeColumns(*row, options, where, &material));
  if (material != RowMaterial()) {
    problem.material = std::make_shared<const RowMaterial>(std::move(material));
  }
  if (options.needs_row_json) problem.row_json = RowJson(row->values);
  return problem;
}

// Returns the columns that `options` ask for.
RowQuery QueryOf(const DatasetOptions& options) {
  RowQuery query = {.columns = {options.id_column, options.answer_column},
                    .column_settings = options.column_settings,
                    .wants_all_values = options.needs_row_json,
                    .messages_setting = options.messages_setting};
  if (options.needs_solution) query.columns.push_back(options.solution_column);
  if (options.messages_column.empty()) {
    query.columns.push_back(options.problem_column);
    query.required = {options.problem_column};
    if (options.needs_solution) {
      query.required.push_back(options.solution_column);
    }
  } else {
    query.values = {options.messages_column};
    query.required = {options.messages_column};
  }
  if (!options.teacher_column.empty()) {
    query.columns.push_back(options.teacher_column);
    if (options.needs_teacher_column) {
      query.required.push_back(options.teacher_column);
    }
  }
  if (!options.tools_column.empty()) {
    query.values.push_back(options.tools_column);
  }
  for (const auto& [field, column] : options.prompt_columns) {
    query.values.push_back(column);
  }
  if (options.needs_answer) query.required.push_back(options.answer_column);
  return query;
}

absl::Status CheckIsNoPointer(const std::string& path) {
  std::string head(64, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return IsLfsPointer(head) ? DataError(absl::StrCat(path, kIsLfsPointer))
                            : absl::OkStatus();
}

absl::Status VisitRows(const std::string& file,
                       const RowQuery& query,
                       const RowVisitor& visit) {
  RETURN_IF_ERROR(CheckIsNoPointer(file));
  switch (DataFormatOf(file)) {
    case DataFormat::kParquet:
      return VisitParquetRows(file, query, visit);
    case DataFormat::kArrow:
      return VisitArrowRows(file, query, visit);
    default:
      return VisitJsonRows(file, query, visit);
  }
}

// Other programs use these columns in prompts; a prompt here does not contain
// them.
constexpr const char* kPromptColumns[] = {"documents",
                                          "functions",
                                          "image",
                                          "images",
                                          "reasoning_content",
                                          "system",
                                          "system_prompt",
                                          "tool_calls",
                                          "tools"};

// Returns a text such as "the column 'problem' alone".
std::string PromptColumnsText(const DatasetOptions& options) {
  std::set<std::string> columns = {options.messages_column.empty()
                                       ? options.problem_column
                                       : options.messages_column};
  if (!options.tools_column.empty()) columns.insert(options.tools_column);
  for (const auto& [field, column] : options.prompt_columns) {
    columns.insert(column);
  }
  return absl::StrCat(columns.size() == 1 ? "the column '" : "the columns '",
                      absl::StrJoin(columns, "', '"),
                      "' alone");
}

// Logs the columns that nothing reads; columns that could have changed the
// prompts are named in a warning.
void ReportUnread(const std::string& path,
                  const DatasetOptions& options,
                  const std::set<std::string>& unread) {
  std::vector<std::string> prompt;
  std::vector<std::string> others;
  for (const std::string& column : unread) {
    const bool is_prompt = std::ranges::count(kPromptColumns, column) > 0;
    (is_prompt ? prompt : others).push_back(Printable(column));
  }
  if (others.size() > kMaxNamedColumns) {
    others.resize(kMaxNamedColumns);
    others.push_back("...");
  }
  if (!prompt.empty()) {
    LogWarning(absl::StrCat(path,
                            ": not read: ",
                            absl::StrJoin(prompt, ", "),
                            "; a prompt is made of ",
                            PromptColumnsText(options)));
  }
  if (!others.empty()) {
    LogInfo(absl::StrCat(path,
                         ": columns that are not needed and not read: ",
                         absl::StrJoin(others, ", ")));
  }
}

}  // namespace

absl::Status RowError(const Problem& problem, const absl::Status& status) {
  return DataError(
      absl::StrCat(problem.where, ": ", std::string(status.message())));
}

absl::Status RequireDataPath(const DataSection& section) {
  return section.path.empty() ? ConfigError("data.path is missing")
                              : absl::OkStatus();
}

std::map<std::string, std::string> ColumnsOfFields(
    const std::set<std::string>& fields, const std::string& context_column) {
  std::map<std::string, std::string> columns;
  for (const std::string& field : fields) {
    columns[field] = field == kContextField ? context_column : field;
  }
  return columns;
}

DatasetOptions MakeDatasetOptions(const Config& config) {
  const DataSection& section = config.data;
  DatasetOptions options{
      .problem_column = section.problem_column,
      .solution_column = section.solution_column,
      .answer_column = section.answer_column,
      .messages_column = section.messages_column,
      .tools_column = section.tools_column,
      .prompt_columns = ColumnsOfFields(Prompts(config.prompts).Columns(),
                                        section.context_column),
      .needs_row_json = config.grader.is_given(),
      .on_bad_row = section.on_bad_row};
  if (TeachersNamed(ExpandTerms(config.objective)).contains(kRowTeacher)) {
    options.teacher_column = section.teacher_column;
    for (const TeacherModel& teacher : config.teachers) {
      options.teachers.push_back(teacher.name);
    }
    options.column_settings =
        "data.problem_column, data.solution_column, data.answer_column and "
        "data.teacher_column";
  }
  return options;
}

DatasetOptions MakeHeldOutOptions(const Config& config) {
  DatasetOptions options = MakeDatasetOptions(config);
  // The divergences of held-out problems are measured on their views, too.
  if (config.evaluation.kl_problems == 0) {
    options.prompt_columns = ColumnsOfFields(
        Prompts(config.prompts).QuestionColumns(), config.data.context_column);
  }
  options.split_rule = SplitRule::kNamed;
  options.needs_teacher_column = false;
  return options;
}

std::string DigestOf(const std::vector<Problem>& problems) {
  Sha256 digest;
  for (const Problem& problem : problems) {
    for (const std::string* text :
         {&problem.id, &problem.problem, &problem.solution, &problem.answer}) {
      digest.Update(absl::StrCat(text->size(), ":", *text));
    }
    if (!problem.teacher.empty()) {
      digest.Update(absl::StrCat(
          "teacher=", problem.teacher.size(), ":", problem.teacher));
    }
    digest.Update(problem.row_json);
    if (problem.material == nullptr) continue;
    const std::string material = MaterialJson(*problem.material).dump();
    digest.Update(absl::StrCat("material ", material.size(), ":", material));
  }
  return digest.HexDigest();
}

absl::StatusOr<Dataset> ReadDataset(const std::string& path,
                                    const DatasetOptions& options) {
  Dataset dataset;
  int64_t number = 0;
  Progress progress("rows");
  const RowVisitor visit = [&](const absl::StatusOr<DataRow>& row,
                               const std::string& where) -> absl::Status {
    auto problem = ToProblem(row, options, where, number++);
    progress.Update(number, path);
    if (!problem.ok()) {
      if (options.on_bad_row == OnBadRow::kFail) {
        return problem.status();
      }
      if (static_cast<size_t>(dataset.skipped_rows++) < kMaxReportedRows) {
        LogWarning(absl::StrCat("row skipped: ",
                                std::string(problem.status().message())));
      }
      return absl::OkStatus();
    }
    dataset.problems.push_back(*std::move(problem));
    return absl::OkStatus();
  };
  std::set<std::string> unread;
  RowQuery query = QueryOf(options);
  query.unread = &unread;
  ASSIGN_OR_RETURN(const std::vector<std::string> files,
                   FindDataFiles(path, options.split_rule));
  for (const std::string& file : files) {
    RETURN_IF_ERROR(VisitRows(file, query, visit));
  }
  ReportUnread(path, options, unread);
  if (dataset.problems.empty()) {
    return DataError(absl::StrCat(
        path, " holds no usable row (", dataset.skipped_rows, " skipped)"));
  }
  if (!options.tools_column.empty() &&
      std::ranges::none_of(dataset.problems, [](const Problem& problem) {
        return problem.material != nullptr && !problem.material->tools.empty();
      })) {
    LogWarning(absl::StrCat(
        path, ": no row has tools in the column '", options.tools_column, "'"));
  }
  dataset.digest = DigestOf(dataset.problems);
  return dataset;
}

}  // namespace dapd
