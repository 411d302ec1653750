#include "common/tokenizer/jinja/lexer.h"

#include <unicode/utf.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/python_text.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd::jinja {
namespace {

constexpr size_t kMaxNameBytes = 1000;

// A name starts with a letter, an underscore, or a byte of a character outside
// ASCII.
bool IsNameStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         (c & 0x80) != 0;
}
bool IsDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool IsSpace(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

// Behind a backslash, kLetters[i] stands for the character kMeanings[i].
constexpr absl::string_view kLetters = "\\'\"abfnrtv";
constexpr absl::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
constexpr uint32_t kLastCharacter = 0x10FFFF;

// Implements Python's encode("ascii", "backslashreplace").
absl::StatusOr<std::string> ToAscii(const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<CodePoint> points, DecodeUtf8(text));
  std::string ascii;
  for (const CodePoint& point : points) {
    const auto c = static_cast<uint32_t>(point.value);
    if (c < 0x80) {
      ascii.push_back(static_cast<char>(c));
    } else if (c < 0x100) {
      absl::StrAppend(&ascii, "\\x", absl::Hex(c, absl::kZeroPad2));
    } else if (c < 0x10000) {
      absl::StrAppend(&ascii, "\\u", absl::Hex(c, absl::kZeroPad4));
    } else {
      absl::StrAppend(&ascii, "\\U", absl::Hex(c, absl::kZeroPad8));
    }
  }
  return ascii;
}

size_t HexDigits(char kind) {
  if (kind == 'x') return 2;
  if (kind == 'u') return 4;
  return kind == 'U' ? 8 : 0;
}

// Reads at most three octal digits.
uint32_t ReadOctal(absl::string_view& rest) {
  uint32_t c = 0;
  for (int i = 0; i < 3 && !rest.empty() && rest[0] >= '0' && rest[0] <= '7';
       ++i) {
    c = 8 * c + static_cast<uint32_t>(rest[0] - '0');
    rest.remove_prefix(1);
  }
  return c;
}

absl::StatusOr<uint32_t> ReadHex(absl::string_view& rest, size_t digits) {
  const absl::string_view number = rest.substr(0, digits);
  uint32_t c = 0;
  if (number.size() < digits ||
      !std::all_of(number.begin(), number.end(), absl::ascii_isxdigit) ||
      !absl::SimpleHexAtoi(number, &c) || c > kLastCharacter ||
      U_IS_SURROGATE(c)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an escape with '", number, "' for ", digits, " hexadecimal digits"));
  }
  rest.remove_prefix(digits);
  return c;
}

// Returns the text of a literal with this well-formed UTF-8 between its quotes.
// As in jinja2, it is encode("ascii",
// "backslashreplace").decode("unicode-escape"), so an unknown escape stands for
// itself. Returns INVALID_ARGUMENT for an escape that lacks digits or means no
// character, and for a character by its name (\N).
absl::StatusOr<std::string> Unescape(const std::string& literal) {
  ASSIGN_OR_RETURN(const std::string ascii, ToAscii(literal));
  std::string text;
  for (absl::string_view rest = ascii; !rest.empty();) {
    const char c = rest[0];
    rest.remove_prefix(1);
    if (c != '\\' || rest.empty()) {
      text.push_back(c);
      continue;
    }
    if (rest[0] >= '0' && rest[0] <= '7') {
      AppendCharacter(ReadOctal(rest), text);
      continue;
    }
    const char kind = rest[0];
    rest.remove_prefix(1);
    const size_t letter = kLetters.find(kind);
    if (letter != absl::string_view::npos) {
      text.push_back(kMeanings[letter]);
    } else if (HexDigits(kind) > 0) {
      ASSIGN_OR_RETURN(const uint32_t point, ReadHex(rest, HexDigits(kind)));
      AppendCharacter(point, text);
    } else if (kind == 'N') {
      return absl::InvalidArgumentError("the escape \\N is not supported");
    } else if (kind != '\n') {
      text.push_back('\\');
      text.push_back(kind);
    }
  }
  return text;
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

  // Adds the text from position_ to `open`, without the white space that the
  // tags around it strip.
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

  // lstrip_blocks: removes blanks between the start of the line and a block
  // tag.
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
    if (type == '%') {
      const size_t raw = BehindWord(position_ + 2, "raw", "-+");
      if (raw > 0) return LexRaw(raw);
    }
    position_ += 2;
    // In "{#-#}", too, the sign belongs to the opening.
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

  // Skips "[sign] word" behind the "{%" of a tag. Returns the position of its
  // "%}" or of the sign before it; 0 if it is not such a tag.
  size_t BehindWord(size_t at,
                    absl::string_view word,
                    const char* end_signs) const {
    const auto skip_space = [&] {
      while (at < source_.size() && IsSpace(source_[at])) ++at;
    };
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    skip_space();
    if (!absl::StartsWith(absl::string_view(source_).substr(at), word)) {
      return 0;
    }
    at += word.size();
    skip_space();
    const absl::string_view rest = absl::string_view(source_).substr(at);
    if (absl::StartsWith(rest, "%}")) return at;
    const bool has_sign = !rest.empty() &&
                          std::strchr(end_signs, rest[0]) != nullptr &&
                          absl::StartsWith(rest.substr(1), "%}");
    return has_sign ? at : 0;
  }

  // Reads from the end of {% raw %} to behind {% endraw %}; everything between
  // them is text. `end` is the position of the first tag's "%}" or "-%}".
  absl::Status LexRaw(size_t end) {
    if (source_[end] == '+') return Error("'raw' ends with a '+'");
    const bool strips = source_[end] == '-';
    size_t begin = end + (strips ? 3 : 2);
    while (strips && begin < source_.size() && IsSpace(source_[begin])) ++begin;
    size_t close = begin;
    size_t behind = 0;
    while (behind == 0) {
      close = source_.find("{%", close);
      if (close == std::string::npos) return Error("'raw' is never closed");
      behind = BehindWord(close + 2, "endraw", "-+");
      if (behind == 0) close += 2;
    }
    std::string text = source_.substr(begin, close - begin);
    const int first_line = line_;
    const char control = source_[close + 2];
    if (control == '-') {
      text.erase(text.find_last_not_of(" \t\n\r\v\f") + 1);
    } else if (control != '+') {
      StripIndent(strips && source_[begin - 1] == '\n', text);
    }
    if (!text.empty()) {
      tokens_.push_back({Token::Kind::kText, std::move(text), first_line});
    }
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<int64_t>(position_),
                   source_.begin() + static_cast<int64_t>(behind),
                   '\n'));
    strip_next_ = source_[behind] == '-';
    trim_newline_ = source_[behind] == '%';
    position_ = behind + (source_[behind] == '%' ? 2 : 3);
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
      std::string name = source_.substr(begin, position_ - begin);
      for (const CodePoint& letter : Characters(name)) {
        if (letter.value < 0x80 || IsSmallOrUncased(letter.value) ||
            IsCapitalOrUncased(letter.value) ||
            (letter.begin > 0 && IsNumber(letter.value))) {
          continue;
        }
        return Error(absl::StrCat("unexpected '", name, "'"));
      }
      Add(Token::Kind::kName, std::move(name));
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

  // Reads digits with single underscores between them, and returns them without
  // underscores; empty if there is no digit.
  std::string TakeDigits(const char* digits) {
    std::string taken;
    while (position_ < source_.size()) {
      const bool is_mark = source_[position_] == '_' && !taken.empty() &&
                           position_ + 1 < source_.size();
      const char next = source_[position_ + (is_mark ? 1 : 0)];
      if (next == '\0' || std::strchr(digits, next) == nullptr) break;
      position_ += is_mark ? 2 : 1;
      taken += next;
    }
    return taken;
  }

  absl::Status LexNumber() {
    constexpr char kDecimal[] = "0123456789";
    const size_t begin = position_;
    // A prefix may name another base.
    const char kind = source_[begin] == '0' && begin + 1 < source_.size()
                          ? absl::ascii_tolower(
                                static_cast<unsigned char>(source_[begin + 1]))
                          : ' ';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) {
      position_ += 2;
      if (position_ < source_.size() && source_[position_] == '_') ++position_;
      const std::string digits =
          TakeDigits(base == 16  ? "0123456789abcdefABCDEF"
                     : base == 8 ? "01234567"
                                 : "01");
      if (digits.empty()) return Error("a number without digits");
      if (digits.size() > (base == 2 ? 62 : 15)) {
        return Error("a number is too long");
      }
      Add(Token::Kind::kInteger,
          absl::StrCat(std::strtoll(digits.c_str(), nullptr, base)));
      return absl::OkStatus();
    }
    std::string number = TakeDigits(kDecimal);
    bool is_float = false;
    // "a.0.1" has no decimal point.
    if (begin == 0 || source_[begin - 1] != '.') {
      const auto sees = [&](size_t at, const char* any) {
        return at < source_.size() && source_[at] != '\0' &&
               std::strchr(any, source_[at]) != nullptr;
      };
      if (sees(position_, ".") && sees(position_ + 1, kDecimal)) {
        is_float = true;
        ++position_;
        absl::StrAppend(&number, ".", TakeDigits(kDecimal));
      }
      const size_t sign = sees(position_ + 1, "+-") ? 1 : 0;
      if (sees(position_, "eE") && sees(position_ + 1 + sign, kDecimal)) {
        is_float = true;
        absl::StrAppend(&number, source_.substr(position_, 1 + sign));
        position_ += 1 + sign;
        number += TakeDigits(kDecimal);
      }
    }
    if (number.size() > (is_float ? 300 : 18)) {
      return Error("a number is too long");
    }
    // Python reads several zeros as one number; to jinja2 "012" is two numbers.
    if (!is_float && number.size() > 1 && number[0] == '0' &&
        number.find_first_not_of('0') != std::string::npos) {
      return Error("a number begins with a zero");
    }
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger,
        std::move(number));
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
