// dapd render: conversations through the model's chat template.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/hub/model_folder.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/chat_rows.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct RenderOptions {
  std::string model;
  std::string input;
  std::string output;
};

absl::Status Render(const RenderOptions& options) {
  RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(folder));
  ASSIGN_OR_RETURN(const auto chat_template, ChatTemplate::Load(folder));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  Progress progress("lines");
  UnreadRowKeys unread;
  RETURN_IF_ERROR(ForEachOrderedJsonLine(
      options.input,
      [&](const nlohmann::ordered_json& row, int line) -> absl::Status {
        progress.Update(line);
        const std::string where = absl::StrCat(options.input, ":", line);
        ASSIGN_OR_RETURN(const ChatRow chat, ParseChatRow(row, where, &unread));
        ASSIGN_OR_RETURN(std::string text,
                         RenderChatRow(*chat_template, chat, where));
        ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer->Encode(text));
        return writer.Append(
            {{"text", std::move(text)}, {"ids", std::move(ids)}});
      }));
  unread.Report(options.input);
  return writer.Commit();
}

}  // namespace

void AddRenderCommand(Command& app) {
  auto options = std::make_shared<RenderOptions>();
  Command command = app.AddSubcommand(
      "render", "Renders conversations with the chat template");
  command.AddOption("--model", options->model, "Hugging Face folder or id")
      .Path()
      .Required();
  command
      .AddOption("--input",
                 options->input,
                 "JSON Lines {messages, tools?, add_generation_prompt?, "
                 "enable_thinking?}")
      .Path()
      .Required();
  command.AddOption("--output", options->output, "JSON Lines {text, ids}")
      .Path()
      .Required();
  command.Does([options] { return Render(*options); });
}

}  // namespace dapd
