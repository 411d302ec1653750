#include "common/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"

namespace dapd {
namespace {

using Step = PreTokenizer::Step;

absl::Status RefusePreTokenizer(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "pre_tokenizer: ",
      what,
      " is not supported; Split, Punctuation, Digits, Whitespace, "
      "WhitespaceSplit, CharDelimiterSplit and one ByteLevel are"));
}

// Decides what happens to the matches that split a word.
enum class Behavior {
  kIsolated,
  kRemoved,
  kContiguous,
  kMergedWithPrevious,
  kMergedWithNext,
};

absl::StatusOr<Behavior> ParseBehavior(const std::string& name) {
  // Older files write the names in small letters.
  const std::string small = absl::AsciiStrToLower(name);
  if (small == "isolated") return Behavior::kIsolated;
  if (small == "removed") return Behavior::kRemoved;
  if (small == "contiguous") return Behavior::kContiguous;
  if (small == "mergedwithprevious" || small == "merged_with_previous") {
    return Behavior::kMergedWithPrevious;
  }
  if (small == "mergedwithnext" || small == "merged_with_next") {
    return Behavior::kMergedWithNext;
  }
  return RefusePreTokenizer(absl::StrCat("the behavior '", name, "'"));
}

struct Piece {
  Span span;
  bool is_match = false;
};

// Returns the matches and the pieces between them.
std::vector<Piece> PiecesOf(Span word,
                            const std::vector<Span>& matches,
                            bool invert) {
  std::vector<Piece> pieces;
  size_t at = word.begin;
  for (const Span& match : matches) {
    if (at != match.begin) pieces.push_back({{at, match.begin}, invert});
    pieces.push_back({match, !invert});
    at = match.end;
  }
  if (at != word.end) pieces.push_back({{at, word.end}, invert});
  return pieces;
}

void AppendWords(const std::vector<Piece>& pieces,
                 Behavior behavior,
                 std::vector<Span>& words) {
  std::vector<Span> cut;
  bool was_match = false;
  switch (behavior) {
    case Behavior::kIsolated:
    case Behavior::kRemoved:
      for (const Piece& piece : pieces) {
        if (behavior == Behavior::kRemoved && piece.is_match) continue;
        cut.push_back(piece.span);
      }
      break;
    case Behavior::kContiguous:
    case Behavior::kMergedWithPrevious:
      for (const Piece& piece : pieces) {
        const bool merges = behavior == Behavior::kContiguous
                                ? piece.is_match == was_match
                                : piece.is_match && !was_match;
        if (merges && !cut.empty()) {
          cut.back().end = piece.span.end;
        } else {
          cut.push_back(piece.span);
        }
        was_match = piece.is_match;
      }
      break;
    case Behavior::kMergedWithNext:
      for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
        if (piece->is_match && !was_match && !cut.empty()) {
          cut.back().begin = piece->span.begin;
        } else {
          cut.push_back(piece->span);
        }
        was_match = piece->is_match;
      }
      std::reverse(cut.begin(), cut.end());
      break;
  }
  for (const Span& span : cut) {
    if (span.begin < span.end) words.push_back(span);
  }
}

class SplitStep : public Step {
 public:
  SplitStep(std::unique_ptr<const SplitPattern> pattern,
            Behavior behavior,
            bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(CutText& cut) const override {
    std::vector<Span> words;
    for (const Span& word : cut.words) {
      ASSIGN_OR_RETURN(const std::vector<Span> matches,
                       pattern_->Matches(cut.points, word));
      AppendWords(PiecesOf(word, matches, invert_), behavior_, words);
    }
    cut.words = std::move(words);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<const SplitPattern> pattern_;
  const Behavior behavior_;
  const bool invert_;
};

// Splits at characters of a kind; each such character is a match.
class CharacterStep : public Step {
 public:
  CharacterStep(std::function<bool(int32_t)> is_match, Behavior behavior)
      : is_match_(std::move(is_match)), behavior_(behavior) {}

  absl::Status Apply(CutText& cut) const override {
    std::vector<Span> words;
    for (const Span& word : cut.words) {
      std::vector<Span> matches;
      for (size_t i = word.begin; i < word.end; ++i) {
        if (is_match_(cut.points[i].value)) matches.push_back({i, i + 1});
      }
      AppendWords(PiecesOf(word, matches, /*invert=*/false), behavior_, words);
    }
    cut.words = std::move(words);
    return absl::OkStatus();
  }

 private:
  const std::function<bool(int32_t)> is_match_;
  const Behavior behavior_;
};

// Keeps the runs of \w, and the runs of characters that are neither \w nor
// white space.
class WhitespaceStep : public Step {
 public:
  absl::Status Apply(CutText& cut) const override {
    const auto kind = [&](size_t i) {
      const int32_t c = cut.points[i].value;
      return IsWordCharacter(c) ? 1 : IsWhitespace(c) ? 0 : 2;
    };
    std::vector<Span> words;
    for (const Span& word : cut.words) {
      for (size_t i = word.begin; i < word.end;) {
        size_t stop = i + 1;
        while (stop < word.end && kind(stop) == kind(i)) ++stop;
        if (kind(i) != 0) words.push_back({i, stop});
        i = stop;
      }
    }
    cut.words = std::move(words);
    return absl::OkStatus();
  }
};

class ByteLevelStep : public Step {
 public:
  ByteLevelStep(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  absl::Status Apply(CutText& cut) const override {
    if (add_prefix_space_) RETURN_IF_ERROR(AddSpaces(cut));
    if (use_regex_) {
      std::vector<Span> words;
      for (const Span& word : cut.words) {
        ASSIGN_OR_RETURN(const std::vector<Span> matches,
                         ByteLevelPattern().Matches(cut.points, word));
        words.insert(words.end(), matches.begin(), matches.end());
      }
      cut.words = std::move(words);
    }
    WriteBytes(cut);
    return absl::OkStatus();
  }

 private:
  // Adds a space in front of every word that does not begin with one.
  static absl::Status AddSpaces(CutText& cut) {
    std::string text;
    std::vector<Span> words;
    for (const Span& word : cut.words) {
      const bool needs_space = cut.points[word.begin].value != ' ';
      const size_t begin = words.empty() ? 0 : words.back().end;
      if (needs_space) text += ' ';
      absl::StrAppend(&text, cut.Bytes(word));
      words.push_back(
          {begin, begin + (needs_space ? 1 : 0) + word.end - word.begin});
    }
    cut.text = std::move(text);
    ASSIGN_OR_RETURN(cut.points, DecodeUtf8(cut.text));
    cut.words = std::move(words);
    return absl::OkStatus();
  }

  static void WriteBytes(CutText& cut) {
    std::vector<CodePoint> bytes;
    bytes.reserve(cut.text.size());
    std::vector<size_t> places;  // the first byte of each character
    for (const CodePoint& point : cut.points) {
      places.push_back(bytes.size());
      for (size_t i = point.begin; i < point.end; ++i) {
        bytes.push_back(
            {ByteAlphabet::Get().Letter(static_cast<uint8_t>(cut.text[i])),
             i,
             i + 1});
      }
    }
    places.push_back(bytes.size());
    for (Span& word : cut.words) {
      word = {places[word.begin], places[word.end]};
    }
    cut.points = std::move(bytes);
  }

  const bool add_prefix_space_;
  const bool use_regex_;
};

// Appends the steps of a part. `has_bytes` says whether an earlier part was
// ByteLevel.
absl::Status AddSteps(const nlohmann::json& json,
                      std::vector<std::shared_ptr<const Step>>& steps,
                      bool& has_bytes) {
  if (!json.is_object()) return RefusePreTokenizer(json.dump());
  const std::string type = json.value("type", std::string());
  const auto add_characters = [&](std::function<bool(int32_t)> is_match,
                                  Behavior behavior) {
    steps.push_back(
        std::make_shared<CharacterStep>(std::move(is_match), behavior));
    return absl::OkStatus();
  };
  if (type == "Sequence") {
    for (const nlohmann::json& part :
         json.value("pretokenizers", nlohmann::json::array())) {
      RETURN_IF_ERROR(AddSteps(part, steps, has_bytes));
    }
    return absl::OkStatus();
  }
  if (type == "Split") {
    auto pattern = SplitPattern::Parse(json.value("pattern", nlohmann::json()));
    if (!pattern.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pre_tokenizer: ", std::string(pattern.status().message())));
    }
    ASSIGN_OR_RETURN(const Behavior behavior,
                     ParseBehavior(json.value("behavior", std::string())));
    steps.push_back(std::make_shared<SplitStep>(
        *std::move(pattern), behavior, json.value("invert", false)));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    if (std::exchange(has_bytes, true)) {
      return RefusePreTokenizer("a second ByteLevel");
    }
    steps.push_back(std::make_shared<ByteLevelStep>(
        json.value("add_prefix_space", true), json.value("use_regex", true)));
    return absl::OkStatus();
  }
  if (type == "Digits") {
    return add_characters(IsDigitOfRust,
                          json.value("individual_digits", false)
                              ? Behavior::kIsolated
                              : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    ASSIGN_OR_RETURN(
        const Behavior behavior,
        ParseBehavior(json.value("behavior", std::string("Isolated"))));
    return add_characters(IsPunctuation, behavior);
  }
  if (type == "WhitespaceSplit") {
    return add_characters(IsWhitespace, Behavior::kRemoved);
  }
  if (type == "CharDelimiterSplit") {
    const auto delimiter = DecodeUtf8(json.value("delimiter", std::string()))
                               .value_or(std::vector<CodePoint>{});
    if (delimiter.size() != 1) {
      return RefusePreTokenizer("CharDelimiterSplit without one delimiter");
    }
    return add_characters(
        [c = delimiter[0].value](int32_t other) { return other == c; },
        Behavior::kRemoved);
  }
  if (type == "Whitespace") {
    steps.push_back(std::make_shared<WhitespaceStep>());
    return absl::OkStatus();
  }
  return RefusePreTokenizer(absl::StrCat("type '", type, "'"));
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Parse(const nlohmann::json& json) {
  PreTokenizer result;
  bool has_bytes = false;
  RETURN_IF_ERROR(AddSteps(json, result.steps_, has_bytes));
  if (!has_bytes) return RefusePreTokenizer("one without ByteLevel");
  return result;
}

absl::StatusOr<CutText> PreTokenizer::Split(absl::string_view text) const {
  CutText cut;
  cut.text = std::string(text);
  ASSIGN_OR_RETURN(cut.points, DecodeUtf8(cut.text));
  if (cut.points.empty()) return cut;
  cut.words.push_back({0, cut.points.size()});
  for (const auto& step : steps_) RETURN_IF_ERROR(step->Apply(cut));
  return cut;
}

}  // namespace dapd
