// A place in the tokens of an answer, and how deep the parsers that read from
// there (value_parser.h, answer_parser.cc) are nested.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

#include "common/data/grading/latex_lexer.h"

namespace dapd {

class TokenReader {
 public:
  // The tokens must outlive it.
  explicit TokenReader(std::span<const LatexToken> tokens) : tokens_(tokens) {}

  size_t at() const { return at_; }
  bool at_end() const { return at_ >= tokens_.size(); }
  // Digits of the number that stands here that are taken.
  size_t digits_taken() const { return digit_; }
  // Back to a place that at() gave, or forth to one that was read before.
  void GoTo(size_t at, size_t digits_taken = 0) {
    at_ = at;
    digit_ = digits_taken;
  }

  // Only before the end.
  const LatexToken& here() const { return tokens_[at_]; }
  const LatexToken& Next() { return tokens_[at_++]; }
  const LatexToken& TokenAt(size_t at) const { return tokens_[at]; }

  // Whether that token is the next one.
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

  // The same, and goes behind it if it is.
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

  // The next digit of the number that stands here; empty for one with a point.
  std::string TakeDigit() {
    const std::string& digits = here().text;
    if (digit_ >= digits.size() || digits.find('.') != std::string::npos) {
      return "";
    }
    const std::string digit = digits.substr(digit_, 1);
    if (++digit_ == digits.size()) GoTo(at_ + 1);
    return digit;
  }
  // The number that stands here, without the digits that were taken.
  std::string TakeNumber() {
    const std::string number = here().text.substr(digit_);
    GoTo(at_ + 1);
    return number;
  }

  // A level of the descent, from its construction to its end.
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
  size_t digit_ = 0;  // digits of the number at at_ that are taken
  int depth_ = 0;
};

}  // namespace dapd
