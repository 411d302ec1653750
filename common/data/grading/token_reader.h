// TokenReader is a position in the tokens of an answer. It also counts the
// nesting of the parsers that read from it (value_parser.h, answer_parser.cc).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

#include "common/data/grading/latex_lexer.h"

namespace dapd {

class TokenReader {
 public:
  // The tokens must outlive the reader.
  explicit TokenReader(std::span<const LatexToken> tokens) : tokens_(tokens) {}

  size_t at() const { return at_; }
  bool at_end() const { return at_ >= tokens_.size(); }
  // Returns the number of digits that were taken from the number at this
  // position.
  size_t digits_taken() const { return digit_; }
  // Goes back to a position that at() returned, or forward to a position that
  // was read before.
  void GoTo(size_t at, size_t digits_taken = 0) {
    at_ = at;
    digit_ = digits_taken;
  }

  // Must not be called at the end.
  const LatexToken& here() const { return tokens_[at_]; }
  const LatexToken& Next() { return tokens_[at_++]; }
  const LatexToken& TokenAt(size_t at) const { return tokens_[at]; }

  // Return whether the next token is the given one.
  bool Sees(absl::string_view symbol) const { return SeesAt(at_, symbol); }
  bool SeesAt(size_t at, absl::string_view symbol) const {
    return at < tokens_.size() && Is(at, LatexToken::Kind::kSymbol, symbol);
  }
  bool SeesCommand(absl::string_view name) const {
    return SeesCommandAt(at_, name);
  }
  bool SeesCommandAt(size_t at, absl::string_view name) const {
    return at < tokens_.size() && Is(at, LatexToken::Kind::kCommand, name);
  }
  bool SeesKind(LatexToken::Kind kind) const {
    return !at_end() && here().kind == kind;
  }

  // Return whether the next token is the given one, and skip it if it is.
  bool Take(absl::string_view symbol) {
    if (!Sees(symbol)) return false;
    ++at_;
    return true;
  }
  bool TakeCommand(absl::string_view name) {
    if (!SeesCommand(name)) return false;
    ++at_;
    return true;
  }

  // Takes the next digit of the number at this position; returns an empty text
  // for a number with a point.
  std::string TakeDigit() {
    const std::string& digits = here().text;
    if (digit_ >= digits.size() || digits.find('.') != std::string::npos) {
      return "";
    }
    const std::string digit = digits.substr(digit_, 1);
    if (++digit_ == digits.size()) GoTo(at_ + 1);
    return digit;
  }
  // Takes the number at this position, without the digits that were taken
  // before.
  std::string TakeNumber() {
    const std::string number = here().text.substr(digit_);
    GoTo(at_ + 1);
    return number;
  }

  // Represents one level of the recursive descent, from construction to
  // destruction.
  class Level {
   public:
    explicit Level(TokenReader& tokens) : tokens_(tokens) { ++tokens_.depth_; }
    ~Level() { --tokens_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

    bool is_too_deep() const { return tokens_.depth_ > kMaxDepth; }

   private:
    TokenReader& tokens_;
  };
  int depth() const { return depth_; }

 private:
  static constexpr int kMaxDepth = 64;

  bool Is(size_t at, LatexToken::Kind kind, absl::string_view text) const {
    return tokens_[at].kind == kind && tokens_[at].text == text;
  }

  std::span<const LatexToken> tokens_;
  size_t at_ = 0;
  size_t digit_ = 0;  // digits taken from the number at at_
  int depth_ = 0;
};

}  // namespace dapd
