// Model cards: README.md beside weights, in the form that the Hugging Face hub
// reads (a YAML header, then Markdown). Names, paths and settings are foreign
// text from a configuration: none of them can end the header, a block or a
// table.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

#include "common/model/spec/lora_config.h"

namespace dapd {

inline constexpr char kModelCardFile[] = "README.md";

struct ModelCard {
  std::string title;
  // In the form of BaseModelName (common/hub/model_folder.h). The header names
  // the base only if it is an id on the hub; the header allows nothing else.
  std::string base_model;
  LoraConfig lora;
  bool is_merged = false;  // the folder holds a whole model
  std::string training;    // TrainingSection; empty: unknown
};

// Returns the text of README.md, with this program's version.
std::string FormatModelCard(const ModelCard& card);

// Puts `markdown` between marks that CardTraining finds: the section that a
// merged model's card takes over from its adapter's.
std::string TrainingSection(absl::string_view markdown);
// Returns the section of a card with its marks; empty for a card without one,
// such as another program's.
std::string CardTraining(absl::string_view card);

// BaseDigestLine returns the line of a training section that names the base by
// its digest. CardBaseDigest returns the digest from the section of a card;
// empty if there is none.
std::string BaseDigestLine(absl::string_view digest);
std::string CardBaseDigest(absl::string_view card);

// Returns foreign text as plain text for a line of Markdown, also in a table.
std::string MarkdownText(absl::string_view text);
// Returns foreign text as a block that shows it unchanged.
std::string MarkdownBlock(absl::string_view text, absl::string_view language);

// Returns the smallest --max-lora-rank that vLLM accepts and that takes
// adapters of `rank`; 0 if there is none.
int64_t VllmMaxLoraRank(int64_t rank);

}  // namespace dapd
