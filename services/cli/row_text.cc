#include "services/cli/row_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/data/row_material.h"
#include "services/trainer/record/shown_answer.h"

namespace dapd {
namespace {

constexpr size_t kMaxReferenceBytes = 256;
constexpr size_t kMaxPromptBytes = 1200;

std::string Line(const char* name, const std::string& text) {
  return absl::StrFormat("%-16s %s", name, Printable(text));
}

std::string Counted(size_t count, const char* thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

// Returns a text such as "system message, 2 messages before the problem, 1
// tool, columns hint and tests".
std::string PartsText(const RowMaterial& material) {
  std::vector<std::string> parts;
  if (material.system.has_value()) parts.push_back("its own system message");
  if (!material.before.empty()) {
    parts.push_back(absl::StrCat(Counted(material.before.size(), "message"),
                                 " before the problem"));
  }
  if (!material.after.empty()) {
    parts.push_back(absl::StrCat(Counted(material.after.size(), "message"),
                                 " between problem and answer"));
  }
  if (!material.tools.empty()) {
    parts.push_back(
        Counted(nlohmann::json::parse(material.tools).size(), "tool"));
  }
  for (const auto& [name, text] : material.columns) {
    parts.push_back(
        absl::StrCat("{", name, "} of ", Counted(text.size(), "byte")));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> RowText(const Problem& problem,
                                                 const TextPipeline& text) {
  const auto ids = text.views->RolloutPrompt(problem.source());
  if (!ids.ok()) return RowError(problem, ids.status());
  ASSIGN_OR_RETURN(const std::string prompt,
                   text.tokenizer->Decode(*ids, /*skip_special_tokens=*/false));
  std::vector<std::string> lines = {
      Line("first row", absl::StrCat(problem.where, ", id ", problem.id))};
  if (problem.material != nullptr) {
    lines.push_back(Line("  beside", PartsText(*problem.material)));
  }
  if (!problem.solution.empty()) {
    lines.push_back(
        Line("  reference", CutMiddle(problem.solution, kMaxReferenceBytes)));
  }
  lines.push_back(Line("  prompt", CutMiddle(prompt, kMaxPromptBytes)));
  return lines;
}

}  // namespace dapd
