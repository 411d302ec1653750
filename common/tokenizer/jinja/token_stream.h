// TokenStream gives the tokens of a template to a parser, and counts its depth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/lexer.h"

namespace dapd::jinja {

// Limits the nesting of blocks and expressions, since evaluation and
// destruction of the tree are recursive.
inline constexpr int kMaxDepth = 100;

// The tokens end with kEnd, which is never taken. Errors are INVALID_ARGUMENT
// with the line of the next token.
class TokenStream {
 public:
  // `tokens` is the result of Lex.
  explicit TokenStream(std::vector<Token> tokens)
      : tokens_(std::move(tokens)) {}

  const Token& Peek() const { return tokens_[position_]; }
  const Token& Ahead(size_t n) const {
    return tokens_[std::min(position_ + n, tokens_.size() - 1)];
  }
  Token Take() {
    return tokens_[position_ + 1 < tokens_.size() ? position_++ : position_];
  }
  bool IsOperator(const char* text) const {
    return Peek().kind == Token::Kind::kOperator && Peek().text == text;
  }
  bool IsName(const char* text) const {
    return Peek().kind == Token::Kind::kName && Peek().text == text;
  }
  bool TakeOperator(const char* text) {
    if (!IsOperator(text)) return false;
    Take();
    return true;
  }
  bool TakeName(const char* text) {
    if (!IsName(text)) return false;
    Take();
    return true;
  }
  absl::Status Error(const std::string& problem) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", Peek().line, ": ", problem));
  }
  absl::Status Expect(Token::Kind kind, const char* what) {
    if (Peek().kind != kind) {
      return Error(
          absl::StrCat("expected ", what, ", got '", Peek().text, "'"));
    }
    Take();
    return absl::OkStatus();
  }
  absl::Status ExpectOperator(const char* text) {
    if (!TakeOperator(text)) {
      return Error(
          absl::StrCat("expected '", text, "', got '", Peek().text, "'"));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ExpectName() {
    if (Peek().kind != Token::Kind::kName) {
      return Error(absl::StrCat("expected a name, got '", Peek().text, "'"));
    }
    return Take().text;
  }

  // Returns the number of tokens that were taken.
  size_t position() const { return position_; }
  // Returns whether one of the taken tokens from `begin` on is this name.
  bool HasName(size_t begin, const char* name) const {
    return std::any_of(tokens_.begin() + static_cast<int64_t>(begin),
                       tokens_.begin() + static_cast<int64_t>(position_),
                       [&](const Token& token) {
                         return token.kind == Token::Kind::kName &&
                                token.text == name;
                       });
  }

  // Descend begins, and Ascend ends, a block or expression that may hold
  // others.
  absl::Status Descend() {
    return ++depth_ > kMaxDepth ? TooDeep() : absl::OkStatus();
  }
  void Ascend() { --depth_; }
  absl::Status TooDeep() const { return Error("nested too deeply"); }

 private:
  const std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace dapd::jinja
