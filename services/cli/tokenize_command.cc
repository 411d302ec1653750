// dapd tokenize: encodes texts as token ids.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/data/unread_row_keys.h"
#include "common/hub/model_folder.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct TokenizeOptions {
  std::string model;
  std::string input;
  std::string output;
  bool decode = false;
  bool skip_special_tokens = false;
};

absl::StatusOr<nlohmann::ordered_json> ConvertRow(
    const Tokenizer& tokenizer,
    const TokenizeOptions& options,
    const nlohmann::json& row,
    const std::string& where) {
  const auto refuse = [&](const absl::Status& status) {
    return DataError(absl::StrCat(where, ": ", status.message()));
  };
  try {
    if (options.decode) {
      const auto ids = JsonTokenIds(row.at("ids"), "ids", tokenizer.size());
      if (!ids.ok()) return refuse(ids.status());
      auto text = tokenizer.Decode(*ids, options.skip_special_tokens);
      if (!text.ok()) return refuse(text.status());
      return nlohmann::ordered_json{{"text", *std::move(text)}};
    }
    ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                     tokenizer.Encode(row.at("text").get<std::string>()));
    return nlohmann::ordered_json{{"ids", std::move(ids)}};
  } catch (const nlohmann::json::exception& error) {
    return DataError(absl::StrCat(where,
                                  ": a row needs ",
                                  options.decode ? "ids" : "text",
                                  ": ",
                                  JsonProblem(error)));
  }
}

absl::Status Tokenize(const TokenizeOptions& options) {
  RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(folder));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  Progress progress("lines");
  UnreadRowKeys unread;
  RETURN_IF_ERROR(ForEachJsonLine(
      options.input, [&](const nlohmann::json& row, int line) -> absl::Status {
        progress.Update(line);
        const std::string where = absl::StrCat(options.input, ":", line);
        ASSIGN_OR_RETURN(const nlohmann::ordered_json converted,
                         ConvertRow(*tokenizer, options, row, where));
        unread.Add(row, {options.decode ? "ids" : "text"}, where);
        return writer.Append(converted);
      }));
  unread.Report(options.input);
  return writer.Commit();
}

}  // namespace

void AddTokenizeCommand(Command& app) {
  auto options = std::make_shared<TokenizeOptions>();
  Command command =
      app.AddSubcommand("tokenize", "Converts texts to token ids, or back");
  command.AddOption("--model", options->model, "Hugging Face folder or id")
      .Path()
      .Required();
  command.AddOption("--input", options->input, "JSON Lines {text}")
      .Path()
      .Required();
  command.AddOption("--output", options->output, "JSON Lines {ids}")
      .Path()
      .Required();
  const CommandOption decode =
      command.AddFlag("--decode", options->decode, "{ids} to {text} instead");
  command
      .AddFlag("--skip-special-tokens",
               options->skip_special_tokens,
               "leave special tokens out of decoded text")
      .Needs(decode);
  command.Does([options] { return Tokenize(*options); });
}

}  // namespace dapd
