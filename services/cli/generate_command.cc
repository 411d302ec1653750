// dapd generate: answers to prompts or conversations.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/data/json_text.h"
#include "common/tensor/torch_bridge.h"
#include "services/cli/chat_rows.h"
#include "services/cli/command.h"
#include "services/cli/local_generator.h"

namespace dapd {
namespace {

struct GenerateOptions {
  LocalGeneratorOptions generator;
  std::string input;
  std::string output;
  std::optional<bool> enable_thinking;
};

// Parses {"id", "input_ids"} or {"id", "messages"}.
absl::StatusOr<AnswerPrompt> ParsePrompt(const GenerateOptions& options,
                                         const LocalGenerator& generator,
                                         const nlohmann::ordered_json& row,
                                         const std::string& where,
                                         uint32_t index,
                                         UnreadRowKeys* unread) {
  AnswerPrompt prompt;
  prompt.example = index;
  try {
    ASSIGN_OR_RETURN(prompt.name,
                     JsonText(row.at("id"), absl::StrCat(where, ": id")));
    if (row.contains("input_ids")) {
      if (row.contains("messages")) {
        return DataError(absl::StrCat(
            where, ": both input_ids and messages; give one of the two"));
      }
      auto ids = JsonTokenIds(
          row["input_ids"], "input_ids", generator.model().vocab_size);
      if (!ids.ok()) {
        return DataError(absl::StrCat(where, ": ", ids.status().message()));
      }
      prompt.ids = *std::move(ids);
      unread->Add(row, {"id", "input_ids"}, where);
      return prompt;
    }
  } catch (const nlohmann::json::exception& error) {
    return DataError(
        absl::StrCat(where,
                     ": a row needs id, and input_ids or messages: ",
                     JsonProblem(error)));
  }
  ASSIGN_OR_RETURN(ChatRow chat, ParseChatRow(row, where, unread));
  if (row.contains("add_generation_prompt") &&
      !chat.options.add_generation_prompt) {
    return DataError(absl::StrCat(
        where,
        ": add_generation_prompt is not true, but an answer needs the prompt; "
        "leave it out"));
  }
  chat.options.add_generation_prompt = true;
  if (options.enable_thinking.has_value()) {
    chat.options.enable_thinking = options.enable_thinking;
  }
  ASSIGN_OR_RETURN(const std::string text,
                   RenderChatRow(*generator.text().chat_template, chat, where));
  ASSIGN_OR_RETURN(prompt.ids, generator.text().tokenizer->Encode(text));
  return prompt;
}

absl::Status Generate(const GenerateOptions& options) {
  RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
  RETURN_IF_ERROR(CheckWritable(options.output));
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalGenerator> generator,
                   LocalGenerator::Load(options.generator));
  std::vector<AnswerPrompt> prompts;
  UnreadRowKeys unread;
  RETURN_IF_ERROR(ForEachOrderedJsonLine(
      options.input,
      [&](const nlohmann::ordered_json& row, int line) -> absl::Status {
        ASSIGN_OR_RETURN(AnswerPrompt prompt,
                         ParsePrompt(options,
                                     *generator,
                                     row,
                                     absl::StrCat(options.input, ":", line),
                                     static_cast<uint32_t>(prompts.size()),
                                     &unread));
        prompts.push_back(std::move(prompt));
        return absl::OkStatus();
      }));
  unread.Report(options.input);
  std::vector<SampledAnswer> answers(prompts.size());
  RETURN_IF_ERROR(
      generator->AnswerAll(prompts, [&](size_t index, SampledAnswer answer) {
        answers[index] = std::move(answer);
        return absl::OkStatus();
      }));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  for (size_t i = 0; i < answers.size(); ++i) {
    const SampledAnswer& answer = answers[i];
    ASSIGN_OR_RETURN(const std::string text,
                     generator->text().tokenizer->Decode(
                         answer.ids, /*skip_special_tokens=*/true));
    RETURN_IF_ERROR(
        writer.Append({{"id", prompts[i].name},
                       {"ids", answer.ids},
                       {"text", text},
                       {"logprobs", answer.logprobs},
                       {"finish_reason", NameOf(answer.finish_reason)}}));
  }
  return writer.Commit();
}

}  // namespace

void AddGenerateCommand(Command& app) {
  auto options = std::make_shared<GenerateOptions>();
  Command command =
      app.AddSubcommand("generate", "Answers prompts or conversations");
  options->generator.AddFlags(command);
  command
      .AddOption("--input",
                 options->input,
                 "JSON Lines {id, input_ids} or {id, messages, tools?}")
      .Path()
      .Required();
  command
      .AddOption("--output",
                 options->output,
                 "JSON Lines {id, ids, text, logprobs, finish_reason}")
      .Path()
      .Required();
  command.AddOption("--enable-thinking",
                    options->enable_thinking,
                    "true or false, for templates that support it");
  command.Does(
      [options] { return CatchTorch([&] { return Generate(*options); }); });
}

}  // namespace dapd
