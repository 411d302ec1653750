// Model cards: README.md beside weights, in the form that the Hugging Face hub
// reads (a YAML header, then Markdown). Names, paths and settings are whatever
// a configuration says: none of them can end the header, a block or a table.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

#include "common/model/spec/lora_config.h"

namespace dapd {

inline constexpr char kModelCardFile[] = "README.md";

struct ModelCard {
  std::string title;
  // As BaseModelName (common/hub/model_folder.h) has it. Only an id on the hub
  // gets into the header, which knows nothing else.
  std::string base_model;
  LoraConfig lora;
  bool is_merged = false;  // the folder holds a whole model
  std::string training;    // TrainingSection; empty: nothing is known of it
};

// The text of README.md, with this program's version.
std::string FormatModelCard(const ModelCard& card);

// `markdown` between marks that CardTraining finds: what a merged model's card
// takes over from its adapter's.
std::string TrainingSection(absl::string_view markdown);
// The section of a card with its marks; empty for one without, such as another
// program's.
std::string CardTraining(absl::string_view card);

// The line in a training section that says which base was trained on, and what
// the section of a card says of that; empty if nothing.
std::string BaseDigestLine(absl::string_view digest);
std::string CardBaseDigest(absl::string_view card);

// Foreign text as plain text of a line of Markdown, in a table or out of one.
std::string MarkdownText(absl::string_view text);
// As a block that shows it as it is.
std::string MarkdownBlock(absl::string_view text, absl::string_view language);

// The smallest --max-lora-rank that vLLM knows and that takes adapters of
// `rank`; 0 if there is none.
int64_t VllmMaxLoraRank(int64_t rank);

}  // namespace dapd
