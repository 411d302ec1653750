#include "common/model/spec/model_card.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/version.h"
#include "common/hub/hub_id.h"

namespace dapd {
namespace {

constexpr absl::string_view kBegin = "<!-- dapd: training -->\n";
constexpr absl::string_view kEnd = "<!-- dapd: end of training -->\n";
constexpr absl::string_view kBaseDigest = "\n* Base, SHA-256: ";

// Returns a double-quoted scalar of YAML; JSON's strings are such scalars.
std::string YamlText(const std::string& text) {
  return nlohmann::json(text).dump(
      -1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

// Returns the base if it is an id on the hub. A folder of that name takes
// precedence.
std::optional<HubId> BaseId(const std::string& base_model) {
  if (FileExists(base_model)) return std::nullopt;
  return ParseHubId(base_model);
}

std::string Header(const ModelCard& card, const std::optional<HubId>& base) {
  std::string text = "---\n";
  if (base.has_value()) {
    absl::StrAppend(&text,
                    "base_model: ",
                    YamlText(base->name),
                    "\nbase_model_relation: ",
                    card.is_merged ? "finetune" : "adapter",
                    "\n");
  }
  absl::StrAppend(&text,
                  "library_name: ",
                  card.is_merged ? "transformers" : "peft",
                  "\npipeline_tag: text-generation\ntags:\n- dapd\n",
                  card.is_merged ? "" : "- lora\n",
                  "---\n\n");
  return text;
}

std::string Targets(const LoraConfig& lora) {
  return lora.targets.empty()
             ? "all projections"
             : absl::StrCat("`", absl::StrJoin(lora.targets, "`, `"), "`");
}

std::string Serving(const ModelCard& card, const HubId& base) {
  const std::string revision =
      base.revision.empty()
          ? ""
          : absl::StrCat(", revision=\"", base.revision, "\"");
  std::string text = MarkdownBlock(
      absl::StrCat("from peft import PeftModel\n"
                   "from transformers import AutoModelForCausalLM\n\n"
                   "base = AutoModelForCausalLM.from_pretrained(\"",
                   base.name,
                   "\"",
                   revision,
                   ")\n"
                   "model = PeftModel.from_pretrained(base, \"FOLDER\")"),
      "python");
  const int64_t rank = VllmMaxLoraRank(card.lora.rank);
  if (rank == 0) return text;
  return text + "\n" +
         MarkdownBlock(absl::StrCat("vllm serve ",
                                    base.name,
                                    base.revision.empty() ? "" : " --revision ",
                                    base.revision,
                                    " --enable-lora --max-lora-rank ",
                                    rank,
                                    " --lora-modules adapter=FOLDER"),
                       "bash");
}

}  // namespace

std::string FormatModelCard(const ModelCard& card) {
  const std::optional<HubId> base = BaseId(card.base_model);
  std::string text = Header(card, base);
  absl::StrAppend(&text, "# ", MarkdownText(card.title), "\n\n");
  const std::string update = absl::StrCat("a LoRA adapter of rank ",
                                          card.lora.rank,
                                          " and alpha ",
                                          card.lora.alpha,
                                          " on ",
                                          Targets(card.lora));
  absl::StrAppend(
      &text,
      card.is_merged ? "The weights of the base model with " : "This is ",
      update,
      card.is_merged ? " added to them." : ".",
      "\n\n* Base model: ",
      MarkdownText(base.has_value() ? base->name : card.base_model),
      base.has_value() && !base->revision.empty()
          ? absl::StrCat(", revision ", MarkdownText(base->revision))
          : "",
      "\n* Made with DAPD ",
      Version(),
      " (Dual-Anchored Policy Distillation, arXiv:2608.01735)\n");
  if (base.has_value() && !card.is_merged) {
    absl::StrAppend(
        &text,
        "\n## Use\n\n`FOLDER` is the folder that contains this file.\n\n",
        Serving(card, *base));
  }
  if (!card.training.empty()) absl::StrAppend(&text, "\n", card.training);
  return text;
}

std::string TrainingSection(absl::string_view markdown) {
  return absl::StrCat(kBegin, markdown, kEnd);
}

std::string CardTraining(absl::string_view card) {
  const size_t begin = card.find(kBegin);
  const size_t end = card.rfind(kEnd);
  if (begin == absl::string_view::npos || end == absl::string_view::npos ||
      end < begin) {
    return "";
  }
  return std::string(card.substr(begin, end + kEnd.size() - begin));
}

std::string BaseDigestLine(absl::string_view digest) {
  return absl::StrCat(kBaseDigest, MarkdownText(digest));
}

std::string CardBaseDigest(absl::string_view card) {
  const std::string section = CardTraining(card);
  const absl::string_view training(section);
  const size_t begin = training.find(kBaseDigest);
  if (begin == absl::string_view::npos) return "";
  const size_t digest = begin + kBaseDigest.size();
  return std::string(
      training.substr(digest, training.find('\n', digest) - digest));
}

std::string MarkdownText(absl::string_view text) {
  std::string escaped;
  for (const char c : Printable(text)) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      default:
        // CommonMark allows a backslash in front of any ASCII punctuation. The
        // characters that are frequent in paths and names have no meaning and
        // stay.
        if (absl::ascii_ispunct(static_cast<unsigned char>(c)) &&
            !absl::StrContains("/.,:;@%", c)) {
          escaped += '\\';
        }
        escaped += c;
    }
  }
  return escaped;
}

std::string MarkdownBlock(absl::string_view text, absl::string_view language) {
  size_t longest = 2;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return absl::StrCat(fence, language, "\n", text, "\n", fence, "\n");
}

int64_t VllmMaxLoraRank(int64_t rank) {
  static constexpr int64_t kRanks[] = {8, 16, 32, 64, 128, 256, 320, 512};
  const auto* found =
      std::lower_bound(std::begin(kRanks), std::end(kRanks), rank);
  return found == std::end(kRanks) ? 0 : *found;
}

}  // namespace dapd
