#include "common/tokenizer/jinja/lexer.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/string_literal.h"

namespace dapd::jinja {
namespace {

constexpr size_t kMaxNameBytes = 1000;

bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool IsDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool IsSpace(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) {
      const size_t open = FindTag();
      AddText(open);
      if (position_ < source_.size()) RETURN_IF_ERROR(LexTag());
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  size_t FindTag() const {
    for (size_t i = position_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' ||
           source_[i + 1] == '#')) {
        return i;
      }
    }
    return source_.size();
  }

  // Text from position_ to `open`, after what the tags around it strip.
  void AddText(size_t open) {
    std::string text = source_.substr(position_, open - position_);
    const int first_line = line_;
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    bool starts_line = position_ == 0;
    if (strip_next_) {
      text.erase(0,
                 std::min(text.find_first_not_of(" \t\n\r\v\f"), text.size()));
    } else if (trim_newline_ && !text.empty() && text[0] == '\n') {
      text.erase(0, 1);
      starts_line = true;
    }
    strip_next_ = false;
    trim_newline_ = false;
    if (open < source_.size()) {
      const char control = open + 2 < source_.size() ? source_[open + 2] : ' ';
      if (control == '-') {
        text.erase(text.find_last_not_of(" \t\n\r\v\f") + 1);
      } else if (source_[open + 1] != '{' && control != '+') {
        StripIndent(starts_line, text);
      }
    }
    position_ = open;
    if (!text.empty())
      tokens_.push_back({Token::Kind::kText, text, first_line});
  }

  // lstrip_blocks: blanks between the start of the line and a block tag.
  static void StripIndent(bool starts_line, std::string& text) {
    const size_t last = text.find_last_not_of(" \t\v\f");
    if (last != std::string::npos) {
      if (text[last] == '\n') text.erase(last + 1);
    } else if (starts_line) {
      text.clear();
    }
  }

  absl::Status LexTag() {
    const char type = source_[position_ + 1];
    position_ += 2;
    // In "{#-#}" too the sign is the opening one.
    if (position_ < source_.size() &&
        (source_[position_] == '-' || source_[position_] == '+')) {
      ++position_;
    }
    if (type == '#') return SkipComment();
    Add(type == '{' ? Token::Kind::kOutputBegin : Token::Kind::kBlockBegin, "");
    const std::string close = type == '{' ? "}}" : "%}";
    while (true) {
      SkipSpace();
      if (position_ >= source_.size()) return Error("a tag is never closed");
      if (depth_ == 0 && TakeClose(close)) break;
      RETURN_IF_ERROR(LexToken());
    }
    if (type == '{') trim_newline_ = false;
    Add(type == '{' ? Token::Kind::kOutputEnd : Token::Kind::kBlockEnd, "");
    return absl::OkStatus();
  }

  bool TakeClose(const std::string& close) {
    for (const char* control : {"-", "+", ""}) {
      const std::string text = control + close;
      if (absl::StartsWith(absl::string_view(source_).substr(position_),
                           text)) {
        position_ += text.size();
        strip_next_ = *control == '-';
        trim_newline_ = *control == '\0';
        return true;
      }
    }
    return false;
  }

  absl::Status SkipComment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return Error("a comment is never closed");
    line_ += static_cast<int>(
        std::count(source_.begin() + position_, source_.begin() + end, '\n'));
    const char control = end > position_ ? source_[end - 1] : ' ';
    strip_next_ = control == '-';
    trim_newline_ = control != '-' && control != '+';
    position_ = end + 2;
    return absl::OkStatus();
  }

  void SkipSpace() {
    while (position_ < source_.size() && IsSpace(source_[position_])) {
      if (source_[position_] == '\n') ++line_;
      ++position_;
    }
  }

  absl::Status LexToken() {
    const char c = source_[position_];
    if (IsNameStart(c)) {
      const size_t begin = position_;
      while (position_ < source_.size() &&
             (IsNameStart(source_[position_]) || IsDigit(source_[position_]))) {
        ++position_;
      }
      if (position_ - begin > kMaxNameBytes) return Error("a name is too long");
      Add(Token::Kind::kName, source_.substr(begin, position_ - begin));
      return absl::OkStatus();
    }
    if (IsDigit(c)) return LexNumber();
    if (c == '\'' || c == '"') return LexString(c);
    static const std::vector<std::string> operators = {
        "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "(",
        ")",  "[",  "]",  "{",  "}",  ",",  ".", ":", "|", "=", "<", ">"};
    for (const std::string& text : operators) {
      if (!absl::StartsWith(absl::string_view(source_).substr(position_),
                            text)) {
        continue;
      }
      if (text == "(" || text == "[" || text == "{") ++depth_;
      if (text == ")" || text == "]" || text == "}") --depth_;
      if (depth_ < 0) return Error(absl::StrCat("unexpected '", text, "'"));
      position_ += text.size();
      Add(Token::Kind::kOperator, text);
      return absl::OkStatus();
    }
    return Error(absl::StrCat("unexpected '", std::string(1, c), "'"));
  }

  absl::Status LexNumber() {
    const size_t begin = position_;
    while (position_ < source_.size() && IsDigit(source_[position_])) {
      ++position_;
    }
    // In "a.0.1" there is none.
    const bool is_float =
        source_[begin - 1] != '.' && position_ + 1 < source_.size() &&
        source_[position_] == '.' && IsDigit(source_[position_ + 1]);
    if (is_float) {
      ++position_;
      while (position_ < source_.size() && IsDigit(source_[position_])) {
        ++position_;
      }
    }
    if (position_ - begin > 18) return Error("a number is too long");
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger,
        source_.substr(begin, position_ - begin));
    return absl::OkStatus();
  }

  absl::Status LexString(char quote) {
    const size_t begin = ++position_;
    const int line = line_;
    for (; position_ < source_.size() && source_[position_] != quote;
         ++position_) {
      if (source_[position_] == '\\' && position_ + 1 < source_.size()) {
        ++position_;
      }
      if (source_[position_] == '\n') ++line_;
    }
    if (position_ >= source_.size()) return Error("a string is never closed");
    const auto text = Unescape(source_.substr(begin, position_ - begin));
    if (!text.ok()) return Error(std::string(text.status().message()));
    ++position_;
    tokens_.push_back({Token::Kind::kString, *text, line});
    return absl::OkStatus();
  }

  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
  }
  absl::Status Error(const std::string& problem) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ": ", problem));
  }

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  int depth_ = 0;              // open brackets in a tag
  bool strip_next_ = false;    // the last tag ended in -%} or -}}
  bool trim_newline_ = false;  // the last tag ended in %} or #}
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Lex(const std::string& source) {
  std::string text =
      absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}});
  // Jinja drops one newline at the very end.
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return Lexer(std::move(text)).Run();
}

}  // namespace dapd::jinja
