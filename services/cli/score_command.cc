// dapd score: log-probabilities (and logits) of given token sequences.

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/data/json_text.h"
#include "common/data/unread_row_keys.h"
#include "common/hub/model_folder.h"
#include "common/model/reference/decoder.h"
#include "common/model/reference/token_logprobs.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/weights.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/torch_bridge.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct ScoreOptions {
  std::string model;
  std::string adapter;
  std::string input;
  std::string output;
  Precision precision = Precision::kFloat32;
  DeviceChoice device = DeviceChoice::kAuto;
  bool logits = false;
};

struct ScoreRow {
  std::string id;
  std::vector<int32_t> input_ids;
};

// Refuses tokens that the model cannot read, before anything is computed.
absl::StatusOr<ScoreRow> ParseScoreRow(const nlohmann::json& json,
                                       const std::string& where,
                                       const ModelConfig& model) {
  ScoreRow row;
  try {
    ASSIGN_OR_RETURN(row.id,
                     JsonText(json.at("id"), absl::StrCat(where, ": id")));
    auto ids =
        JsonTokenIds(json.at("input_ids"), "input_ids", model.vocab_size);
    if (!ids.ok()) {
      return DataError(absl::StrCat(where, ": ", ids.status().message()));
    }
    row.input_ids = *std::move(ids);
  } catch (const nlohmann::json::exception& error) {
    return DataError(absl::StrCat(
        where, ": a row needs id and input_ids: ", JsonProblem(error)));
  }
  const auto length = static_cast<int64_t>(row.input_ids.size());
  if (length < 1 || length > model.max_positions) {
    return DataError(absl::StrCat(where,
                                  ": input_ids has ",
                                  length,
                                  " ids; 1 to ",
                                  model.max_positions,
                                  " can be scored"));
  }
  return row;
}

absl::StatusOr<std::vector<ScoreRow>> ReadScoreRows(const std::string& path,
                                                    const ModelConfig& model) {
  std::vector<ScoreRow> rows;
  std::set<std::string> ids;
  UnreadRowKeys unread;
  RETURN_IF_ERROR(ForEachJsonLine(
      path, [&](const nlohmann::json& json, int line) -> absl::Status {
        const std::string where = absl::StrCat(path, ":", line);
        ASSIGN_OR_RETURN(ScoreRow row, ParseScoreRow(json, where, model));
        unread.Add(json, {"id", "input_ids"}, where);
        if (!ids.insert(row.id).second) {
          return DataError(
              absl::StrCat(where, ": id '", row.id, "' occurs twice"));
        }
        rows.push_back(std::move(row));
        return absl::OkStatus();
      }));
  unread.Report(path);
  return rows;
}

absl::Status Score(const ScoreOptions& options) {
  RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
  RETURN_IF_ERROR(CheckWritable(options.output));
  const at::ScalarType dtype = TypeOf(options.precision);
  ASSIGN_OR_RETURN(const at::Device device,
                   OpenDevice({.device = options.device}));
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(const auto weights, LoadModelWeights(folder, dtype, device));
  ASSIGN_OR_RETURN(const std::vector<ScoreRow> rows,
                   ReadScoreRows(options.input, weights->config));
  Adapter adapter;
  if (!options.adapter.empty()) {
    ASSIGN_OR_RETURN(const std::string path,
                     FindAdapterFolder(options.adapter));
    ASSIGN_OR_RETURN(adapter, ReadAdapter(path, weights->config, device));
  }
  const Adapter* active = options.adapter.empty() ? nullptr : &adapter;
  at::NoGradGuard no_grad;
  NamedTensors scores;
  Progress progress("sequences", static_cast<int64_t>(rows.size()));
  int64_t num_scored = 0;
  for (const ScoreRow& row : rows) {
    progress.Update(num_scored++);
    ASSIGN_OR_RETURN(HostTensor logprobs,
                     FromTorch(TokenLogprobs(*weights, active, row.input_ids)));
    scores.emplace_back(absl::StrCat(row.id, ".logprobs"), std::move(logprobs));
    if (!options.logits) continue;
    const PackedTokens tokens = PackTokens({row.input_ids}, device);
    const at::Tensor hidden =
        ForwardHidden(*weights,
                      active,
                      tokens,
                      at::arange(tokens.ids.size(0), tokens.ids.options()));
    ASSIGN_OR_RETURN(HostTensor logits,
                     FromTorch(ApplyHead(*weights, hidden).cpu()));
    scores.emplace_back(absl::StrCat(row.id, ".logits"), std::move(logits));
  }
  progress.Update(num_scored);
  return WriteSafetensors(options.output, scores, {{"format", "pt"}});
}

}  // namespace

void AddScoreCommand(Command& app) {
  auto options = std::make_shared<ScoreOptions>();
  Command command = app.AddSubcommand(
      "score", "Writes log-probabilities of token sequences, as safetensors");
  command.AddOption("--model", options->model, "Hugging Face folder or id")
      .Path()
      .Required();
  command.AddOption("--adapter", options->adapter, "PEFT folder or id")
      .Path()
      .NotEmpty();
  command.AddOption("--input", options->input, "JSON Lines {id, input_ids}")
      .Path()
      .Required();
  command.AddOption("--output", options->output, "safetensors file")
      .Path()
      .Required();
  command
      .AddOption(
          "--precision", EnumVariable(&options->precision), "of the weights")
      .ShowDefault();
  command
      .AddOption("--device",
                 EnumVariable(&options->device),
                 "where the model is computed")
      .ShowDefault();
  command.AddFlag("--logits", options->logits, "write <id>.logits as well");
  command.Does(
      [options] { return CatchTorch([&] { return Score(*options); }); });
}

}  // namespace dapd
