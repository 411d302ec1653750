// dapd eval: Avg@K and pass@k over a data set with verified answers.

#include <algorithm>
#include <cstdio>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/config/load_config.h"
#include "common/config/prompts.h"
#include "common/data/confidence_interval.h"
#include "common/data/dataset.h"
#include "common/data/expected_answer.h"
#include "common/data/grade_answer.h"
#include "common/data/repetition.h"
#include "common/data/template_support.h"
#include "common/data/view_builder.h"
#include "common/generation/decode_request.h"
#include "common/hub/model_folder.h"
#include "common/model/weights/base_digest.h"
#include "common/tensor/torch_bridge.h"
#include "services/cli/answer_file.h"
#include "services/cli/answer_source.h"
#include "services/cli/command.h"
#include "services/cli/eval_report.h"
#include "services/cli/gpu_generator.h"
#include "services/cli/local_generator.h"
#include "services/cli/ordered_grading.h"
#include "services/cli/worker_generator.h"

namespace dapd {
namespace {

struct EvalOptions {
  LocalGeneratorOptions generator;
  WorkerOptions workers;
  int64_t gpus = 0;    // 0: all
  std::string config;  // empty: the released prompts
  std::string data;
  std::string id_column = "id";
  std::string problem_column = "problem";
  std::string answer_column = "answer";
  std::string messages_column;  // empty: as the configuration says
  std::string tools_column;
  EvaluationForm prompt = EvaluationForm::kTraining;
  bool thinking = false;
  std::string marker;  // empty: none
  std::string output;
  int64_t samples = 1;
  int64_t limit = 0;
  bool json = false;
};

// Returns the parts of --config that an evaluation reads: the sections
// `prompts` and `grader`, and data.system and the columns of the section `data`
// beside the problem, unless options name others.
absl::StatusOr<Config> ReadEvalConfig(const EvalOptions& options) {
  Config config;
  if (!options.config.empty()) {
    ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(options.config, {}));
    config = std::move(loaded.config);
  }
  if (!options.messages_column.empty()) {
    config.data.messages_column = options.messages_column;
  }
  if (!options.tools_column.empty()) {
    config.data.tools_column = options.tools_column;
  }
  return config;
}

absl::StatusOr<Dataset> ReadProblems(const EvalOptions& options,
                                     const Config& config) {
  ASSIGN_OR_RETURN(
      Dataset data,
      ReadDataset(options.data,
                  {.id_column = options.id_column,
                   .problem_column = options.problem_column,
                   .answer_column = options.answer_column,
                   .messages_column = config.data.messages_column,
                   .tools_column = config.data.tools_column,
                   .prompt_columns = ColumnsOfFields(
                       Prompts(config.prompts).QuestionColumns(),
                       config.data.context_column),
                   .needs_row_json = config.grader.is_given(),
                   .needs_solution = false,
                   .needs_answer = !config.grader.is_given(),
                   .split_rule = SplitRule::kNamed,
                   .column_settings =
                       "--id-column, --problem-column and --answer-column",
                   .messages_setting = "--messages-column "}));
  if (options.limit > 0 &&
      options.limit < static_cast<int64_t>(data.problems.size())) {
    data.problems.resize(static_cast<size_t>(options.limit));
  }
  if (!config.grader.is_given()) {
    WarnOfBadAnswers(options.data, "--answer-column", data);
  }
  return data;
}

// Returns everything that determines the answers, except for rounding.
absl::StatusOr<nlohmann::ordered_json> AnswerSettings(
    const EvalOptions& options, const Config& config, const Dataset& data) {
  const LocalGeneratorOptions& generator = options.generator;
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(generator.model));
  // Both digests read whole files.
  auto model_digest =
      std::async(std::launch::async, [&] { return BaseDigest(folder); });
  std::string adapter = "none";
  if (!generator.adapter.empty()) {
    ASSIGN_OR_RETURN(const std::string adapter_folder,
                     FindAdapterFolder(generator.adapter));
    ASSIGN_OR_RETURN(adapter, BaseDigest(adapter_folder));
  }
  ASSIGN_OR_RETURN(const std::string model, model_digest.get());
  ASSIGN_OR_RETURN(const Precision precision, generator.ResolvedPrecision());
  nlohmann::ordered_json settings = {
      {"format", 1},
      {"model", model},
      {"adapter", adapter},
      {"data", DigestOf(data.problems)},
      {"prompt", NameOf(options.prompt)},
      {"prompts.none",
       options.prompt == EvaluationForm::kTraining ? config.prompts.none : ""},
      {"thinking", options.thinking},
      {"samples", options.samples},
      {"precision", NameOf(precision)},
      {"temperature", generator.sampling.temperature},
      {"top_p", generator.sampling.top_p},
      {"top_k", generator.sampling.top_k},
      {"max_new_tokens", generator.sampling.max_new_tokens},
      {"seed", generator.seed}};
  // Older files lack these keys.
  for (const auto& [key, text] :
       {std::pair{"prompts.system", &config.prompts.system},
        std::pair{"data.system", &config.data.system}}) {
    if (!text->empty()) settings[key] = *text;
  }
  if (config.grader.is_given()) settings["grader"] = "the user's own";
  if (generator.kv_precision != KvPrecision::kModel) {
    settings["kv_precision"] = NameOf(generator.kv_precision);
  }
  return settings;
}

// The known answers of an evaluation, which are on disk if it has an output.
struct KnownAnswers {
  std::string marker;                          // searched for in the texts
  std::vector<AnswerRecord> records;           // without their texts
  std::set<std::pair<int64_t, int64_t>> keys;  // index, sample
  std::unique_ptr<AnswerFile> file;            // none: in memory only

  void Take(AnswerRecord record) {
    record.is_marked = absl::StrContains(record.text, marker);
    // The text is no longer needed.
    record.text.clear();
    record.text.shrink_to_fit();
    keys.emplace(record.index, record.sample);
    records.push_back(std::move(record));
  }
};

absl::StatusOr<KnownAnswers> OpenOutput(const EvalOptions& options,
                                        const Config& config,
                                        const Dataset& data) {
  KnownAnswers known{.marker = options.marker};
  if (options.output.empty()) return known;
  ASSIGN_OR_RETURN(const nlohmann::ordered_json settings,
                   AnswerSettings(options, config, data));
  const auto problems = static_cast<int64_t>(data.problems.size());
  ASSIGN_OR_RETURN(
      AnswerFile file,
      AnswerFile::Open(
          options.output,
          settings,
          [&](const AnswerRecord& record) -> absl::Status {
            if (record.index >= problems || record.sample >= options.samples ||
                known.keys.contains({record.index, record.sample})) {
              return absl::InvalidArgumentError(
                  absl::StrCat(options.output,
                               " holds an answer ",
                               record.sample,
                               " to problem ",
                               record.index,
                               " that was not asked for, or occurs twice; the "
                               "file is damaged"));
            }
            known.Take(record);
            return absl::OkStatus();
          }));
  known.file = std::make_unique<AnswerFile>(std::move(file));
  if (!known.records.empty()) {
    LogInfo(absl::StrCat(options.output,
                         " has ",
                         known.records.size(),
                         " of ",
                         problems * options.samples,
                         " answers; continuing with the rest"));
  }
  return known;
}

// Returns the prompts that still need answers, a problem's answers one after
// another.
absl::StatusOr<std::vector<AnswerPrompt>> OpenPrompts(
    const EvalOptions& options,
    const Config& config,
    const Dataset& data,
    const KnownAnswers& known,
    const TextPipeline& text) {
  RETURN_IF_ERROR(CheckTemplateSupport(config, *text.chat_template));
  if (options.thinking && !text.chat_template->supports_thinking()) {
    LogWarning(absl::StrCat("--thinking has no effect: the chat template of ",
                            options.generator.model,
                            " does not support it"));
  }
  const ViewBuilder views(
      *text.tokenizer,
      *text.chat_template,
      {.prompts = Prompts(config.prompts), .system = config.data.system});
  std::vector<AnswerPrompt> prompts;
  for (size_t i = 0; i < data.problems.size(); ++i) {
    const Problem& problem = data.problems[i];
    AnswerPrompt prompt{.name = problem.id,
                        .example = static_cast<uint32_t>(i)};
    auto ids = views.EvaluationPrompt(
        problem.source(), options.prompt, options.thinking);
    if (!ids.ok()) return RowError(problem, ids.status());
    prompt.ids = *std::move(ids);
    for (int64_t k = 0; k < options.samples; ++k) {
      if (known.keys.contains({static_cast<int64_t>(i), k})) continue;
      prompt.sample = static_cast<uint32_t>(k);
      prompts.push_back(prompt);
    }
  }
  return prompts;
}

absl::StatusOr<AnswerRecord> GradeOne(const Problem& problem,
                                      const AnswerPrompt& prompt,
                                      const SampledAnswer& answer,
                                      const TextPipeline& text) {
  AnswerRecord record{.index = prompt.example,
                      .sample = prompt.sample,
                      .id = problem.id,
                      .answer = ExpectedAnswer(problem),
                      .tokens = static_cast<int64_t>(answer.ids.size()),
                      .finish_reason = answer.finish_reason};
  ASSIGN_OR_RETURN(
      record.text,
      text.tokenizer->Decode(answer.ids, /*skip_special_tokens=*/true));
  // Another grader, if there is one, decides whether the answer is right.
  record.grade = GradeAnswer(record.text, record.answer);
  record.repeated =
      EndsInRepetition(WithoutEndToken(answer.ids, answer.finish_reason));
  return record;
}

// `answers`: the number of answers.
absl::StatusOr<std::unique_ptr<AnswerSource>> OpenSource(
    const EvalOptions& options, int64_t answers) {
  if (!options.workers.addresses.empty()) {
    return WorkerGenerator::Load(options.generator, options.workers);
  }
  ASSIGN_OR_RETURN(std::vector<std::vector<std::string>> gpus,
                   GpusOfWorkers(options.generator, options.gpus, answers));
  if (gpus.empty()) return LocalGenerator::Load(options.generator);
  return GpuGenerator::Load(options.generator, std::move(gpus));
}

// The answers that this call sampled, not those of an earlier call.
struct Sampled {
  int64_t answers = 0;
  int64_t tokens = 0;
  MemoryCost cost;
};

void LogSampled(const Sampled& sampled) {
  const MemoryCost& cost = sampled.cost;
  LogInfo(absl::StrFormat(
      "%d answers with %d tokens were sampled; %d tokens were computed once "
      "more (%.2f %%); keys and values of answers were moved to the host's "
      "memory %d times, %.2f GiB in all",
      sampled.answers,
      sampled.tokens,
      cost.recomputed_tokens,
      100.0 * static_cast<double>(cost.recomputed_tokens) /
          static_cast<double>(std::max<int64_t>(1, sampled.tokens)),
      cost.swaps,
      static_cast<double>(cost.swapped_bytes) / (1 << 30)));
}

absl::Status AnswerTheRest(const EvalOptions& options,
                           const Config& config,
                           const Dataset& data,
                           KnownAnswers& known) {
  std::unique_ptr<OrderedGrading> grading;
  if (config.grader.is_given()) {
    ASSIGN_OR_RETURN(grading, OrderedGrading::Open(config.grader));
  }
  const auto asked =
      static_cast<int64_t>(data.problems.size()) * options.samples;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<AnswerSource> source,
      OpenSource(options, asked - static_cast<int64_t>(known.records.size())));
  const TextPipeline& text = source->text();
  ASSIGN_OR_RETURN(const std::vector<AnswerPrompt> prompts,
                   OpenPrompts(options, config, data, known, text));
  const auto keep = [&](AnswerRecord record) -> absl::Status {
    if (known.file != nullptr) RETURN_IF_ERROR(known.file->Append(record));
    known.Take(std::move(record));
    return absl::OkStatus();
  };
  Sampled sampled;
  RETURN_IF_ERROR(source->AnswerAll(
      prompts, [&](size_t at, const SampledAnswer& answer) -> absl::Status {
        ++sampled.answers;
        sampled.tokens += static_cast<int64_t>(answer.ids.size());
        sampled.cost += answer.cost;
        const Problem& problem = data.problems[prompts[at].example];
        ASSIGN_OR_RETURN(AnswerRecord record,
                         GradeOne(problem, prompts[at], answer, text));
        if (grading == nullptr) return keep(std::move(record));
        GraderQuestion question = {.problem_id = problem.id,
                                   .problem = problem.problem,
                                   .reference = problem.solution,
                                   .expected = record.answer,
                                   .answer = record.text,
                                   .row_json = problem.row_json};
        return grading->Add(std::move(question),
                            [&keep, record = std::move(record)](
                                const GraderResult& result) mutable {
                              record.given_grade = result;
                              record.grade.correct = result.correct;
                              return keep(std::move(record));
                            });
      }));
  LogSampled(sampled);
  if (grading == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(grading->Finish());
  if (grading->ungraded() > 0) {
    LogWarning(absl::StrCat(grading->ungraded(),
                            " answers could not be graded and count as not "
                            "right"));
  }
  return absl::OkStatus();
}

absl::Status Evaluate(const EvalOptions& options) {
  if (!IsUtf8(options.marker)) {
    return WithExitCode(
        absl::InvalidArgumentError("--marker is not UTF-8, as answers are"),
        ExitCode::kUsage);
  }
  if (options.gpus > 0 && !options.workers.addresses.empty()) {
    return WithExitCode(
        absl::InvalidArgumentError("--gpus is for workers that `dapd eval` "
                                   "starts itself, and --workers names others; "
                                   "give one of the two"),
        ExitCode::kUsage);
  }
  ASSIGN_OR_RETURN(const Config config, ReadEvalConfig(options));
  ASSIGN_OR_RETURN(const Dataset data, ReadProblems(options, config));
  if (options.samples > 1 && options.generator.sampling.temperature == 0.0) {
    LogWarning(absl::StrCat("--samples ",
                            options.samples,
                            " has no effect: at --temperature 0 all answers to "
                            "a problem are the same"));
  }
  ASSIGN_OR_RETURN(KnownAnswers known, OpenOutput(options, config, data));
  if (known.records.size() <
      data.problems.size() * static_cast<size_t>(options.samples)) {
    RETURN_IF_ERROR(AnswerTheRest(options, config, data, known));
  }
  if (known.file != nullptr) RETURN_IF_ERROR(known.file->Sort());
  std::vector<std::string> ids;
  for (const Problem& problem : data.problems) ids.push_back(problem.id);
  const EvalReport report = SummarizeAnswers(
      ids, options.samples, known.records, options.marker, kEvaluationSeed);
  std::puts((options.json ? ToJson(report).dump(2) : ToText(report)).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddEvalCommand(Command& app) {
  auto options = std::make_shared<EvalOptions>();
  options->generator.precision = "auto";
  Command command = app.AddSubcommand(
      "eval", "Measures Avg@K and pass@k on problems with answers");
  options->generator.AddFlags(command);
  command
      .AddOption(
          "--data",
          options->data,
          "problems with answers, as data.path; of several splits one is "
          "named, as in folder#:test")
      .Path()
      .Required();
  command
      .AddOption("--config",
                 options->config,
                 "YAML configuration whose section grader, prompts.none, "
                 "prompts.system and data.system are used, and the columns "
                 "that prompts and conversations need (default: the released "
                 "prompt, the built-in grader)")
      .Path()
      .NotEmpty();
  command
      .AddOption(
          "--id-column", options->id_column, "column of the id; may be missing")
      .ShowDefault();
  command
      .AddOption(
          "--problem-column", options->problem_column, "column of the problem")
      .ShowDefault();
  command
      .AddOption("--answer-column",
                 options->answer_column,
                 "column of the correct answer")
      .ShowDefault();
  command
      .AddOption("--messages-column",
                 options->messages_column,
                 "column of conversations, in place of --problem-column "
                 "(default: data.messages_column of --config)")
      .NotEmpty();
  command
      .AddOption("--tools-column",
                 options->tools_column,
                 "column of the tools that the chat template gets (default: "
                 "data.tools_column of --config)")
      .NotEmpty();
  command
      .AddOption("--prompt",
                 EnumVariable(&options->prompt),
                 "training: the sampler's, which begins \"Problem: \"; plain: "
                 "without that")
      .ShowDefault();
  command.AddFlag("--thinking",
                  options->thinking,
                  "let the model think first, if its template supports it");
  command.AddOption("--samples", options->samples, "answers per problem (K)")
      .Range(1, 4096)
      .ShowDefault();
  command.AddOption("--limit", options->limit, "only the first N problems")
      .NonNegative();
  command
      .AddOption("--marker",
                 options->marker,
                 "a text: also measure the share of answers that contain it")
      .NotEmpty();
  command
      .AddOption("--output",
                 options->output,
                 "JSON Lines with every answer and its grade, each written "
                 "as it ends; the same call resumes an unfinished file")
      .Path()
      .NotEmpty();
  command.AddFlag("--json", options->json, "print JSON");
  options->workers.AddFlags(command);
  command
      .AddOption("--gpus",
                 options->gpus,
                 "GPUs of this machine that answer, from the first that "
                 "CUDA_VISIBLE_DEVICES leaves on (default: all); the answers "
                 "are the same on any number")
      .Range(1, 256);
  command.Does(
      [options] { return CatchTorch([&] { return Evaluate(*options); }); });
}

}  // namespace dapd
