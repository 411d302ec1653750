// Compares the tokenizers of two models, for a teacher that reads the tokens of
// a student: the tokens must mean the same to both.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/tokenizer/tokenizer.h"

namespace dapd {

struct NamedTokenizer {
  const Tokenizer& tokenizer;
  std::string folder;  // with its tokenizer.json, for messages
};

// Returns OK if both tokenizers agree id by id: every id stands for the same
// bytes, the merges are the same in the same order, and the same ids are added
// tokens. Rules that only cut a text (normaliser, pre-tokeniser, the flags of
// added tokens) may differ, since one tokenizer cuts every text. Otherwise
// returns an error (exit code kData) that names the first difference, by id and
// then by merge, and both files.
absl::Status CompareTokenizers(const NamedTokenizer& first,
                               const NamedTokenizer& second);

}  // namespace dapd
