#include "common/tokenizer/jinja/string_methods.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_format.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kAll = INT64_MAX;

absl::Status NeedsText(const char* name, const Value& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' needs a string, not a ", value.TypeName()));
}

// Holds a part of a text between two characters, as Python's optional arguments
// `start` and `end` select it.
struct Window {
  std::vector<CodePoint> letters;
  absl::string_view text;
  int64_t begin = 0;       // number of characters before it
  bool is_beyond = false;  // begins behind the end of the text

  // Returns the index, in the whole text, of the character at this byte of
  // `text`.
  int64_t CharacterAt(size_t byte) const {
    const size_t first =
        letters.empty() || static_cast<size_t>(begin) >= letters.size()
            ? 0
            : letters[static_cast<size_t>(begin)].begin;
    const auto found = std::lower_bound(
        letters.begin(),
        letters.end(),
        first + byte,
        [](const CodePoint& point, size_t at) { return point.begin < at; });
    return found - letters.begin();
  }
};

absl::StatusOr<Window> WindowOf(const std::string& text,
                                const Value& start,
                                const Value& end) {
  Window window;
  window.letters = Characters(text);
  const auto size = static_cast<int64_t>(window.letters.size());
  const auto clip = [&](int64_t place) {
    return place < 0 ? std::max<int64_t>(place + size, 0) : place;
  };
  ASSIGN_OR_RETURN(const int64_t first, IntegerOr(start, 0));
  ASSIGN_OR_RETURN(const int64_t last, IntegerOr(end, size));
  window.begin = clip(first);
  const int64_t stop = std::min(clip(last), size);
  window.is_beyond = window.begin > size || window.begin > stop;
  if (window.begin >= stop) return window;
  const size_t from = window.letters[static_cast<size_t>(window.begin)].begin;
  const size_t to = window.letters[static_cast<size_t>(stop - 1)].end;
  window.text = absl::string_view(text).substr(from, to - from);
  return window;
}

// Returns the position of the last `mark` in `text`.
size_t FindLastText(absl::string_view text, absl::string_view mark) {
  const std::string turned(text.rbegin(), text.rend());
  const std::string turned_mark(mark.rbegin(), mark.rend());
  const size_t found = FindText(turned, turned_mark);
  return found == std::string::npos ? found : text.size() - found - mark.size();
}

// Returns -1 if the text is not there.
absl::StatusOr<int64_t> PlaceOf(const Call& call, bool last) {
  if (!call[0].is_string()) return NeedsText("find", call[0]);
  ASSIGN_OR_RETURN(const Window window,
                   WindowOf(call.object.string(), call[1], call[2]));
  if (window.is_beyond) return -1;
  const size_t found = last ? FindLastText(window.text, call[0].string())
                            : FindText(window.text, call[0].string());
  if (found == std::string::npos) return -1;
  return std::max(window.CharacterAt(found), window.begin);
}

Builtin Finder(bool last, bool must_be_there) {
  return {"sub start? end? /", [=](const Call& call) -> absl::StatusOr<Value> {
            ASSIGN_OR_RETURN(const int64_t place, PlaceOf(call, last));
            if (place < 0 && must_be_there) {
              return absl::InvalidArgumentError("'index': no such part");
            }
            return Value(place);
          }};
}

absl::StatusOr<Value> CountText(const Call& call) {
  if (!call[0].is_string()) return NeedsText("count", call[0]);
  ASSIGN_OR_RETURN(const Window window,
                   WindowOf(call.object.string(), call[1], call[2]));
  const std::string& mark = call[0].string();
  if (window.is_beyond) return Value(int64_t{0});
  if (mark.empty()) {
    return Value(
        static_cast<int64_t>(Characters(std::string(window.text)).size()) + 1);
  }
  int64_t count = 0;
  for (size_t at = FindText(window.text, mark); at != std::string::npos;
       at = FindText(window.text, mark, at + mark.size())) {
    ++count;
  }
  return Value(count);
}

Builtin AffixTest(bool at_start) {
  return {"affix start? end? /",
          [at_start](const Call& call) -> absl::StatusOr<Value> {
            const List affixes =
                call[0].is_tuple() ? call[0].list() : List{call[0]};
            ASSIGN_OR_RETURN(const Window window,
                             WindowOf(call.object.string(), call[1], call[2]));
            for (const Value& affix : affixes) {
              if (!affix.is_string()) {
                return NeedsText(at_start ? "startswith" : "endswith", affix);
              }
              if (window.is_beyond) continue;
              if (at_start ? absl::StartsWith(window.text, affix.string())
                           : absl::EndsWith(window.text, affix.string())) {
                return Value(true);
              }
            }
            return Value(false);
          }};
}

Builtin Stripper(bool left, bool right) {
  return {"chars? /", [=](const Call& call) -> absl::StatusOr<Value> {
            if (call.has(0) && !call[0].is_string()) {
              return NeedsText("strip", call[0]);
            }
            return Value(Strip(call.object.string(), call[0], left, right));
          }};
}

Builtin Changed(std::string (*change)(const std::string&)) {
  return {"/", [change](const Call& call) -> absl::StatusOr<Value> {
            return Value(change(call.object.string()));
          }};
}

Builtin Tested(bool (*test)(const std::string&)) {
  return {"/", [test](const Call& call) -> absl::StatusOr<Value> {
            return Value(test(call.object.string()));
          }};
}

Builtin Splitter(bool from_right) {
  return {"sep? maxsplit?",
          [from_right](const Call& call) -> absl::StatusOr<Value> {
            if (call.has(0) && !call[0].is_string()) {
              return NeedsText("split", call[0]);
            }
            ASSIGN_OR_RETURN(const int64_t most, IntegerOr(call[1], -1));
            ASSIGN_OR_RETURN(List parts,
                             SplitText(call.object.string(),
                                       call[0],
                                       most < 0 ? kAll : most,
                                       from_right));
            return Value(std::move(parts));
          }};
}

Builtin Partition(bool last) {
  return {
      "sep /", [last](const Call& call) -> absl::StatusOr<Value> {
        if (!call[0].is_string() || call[0].string().empty()) {
          return absl::InvalidArgumentError("'partition' needs a separator");
        }
        const std::string& text = call.object.string();
        const std::string& mark = call[0].string();
        const size_t at =
            last ? FindLastText(text, mark) : FindText(text, mark);
        const Value none{std::string()};
        List parts = last ? List{none, none, call.object}
                          : List{call.object, none, none};
        if (at != std::string::npos) {
          parts = {Value(text.substr(0, at)),
                   call[0],
                   Value(text.substr(at + mark.size()))};
        }
        return Value(std::move(parts), Shape::kTuple);
      }};
}

Builtin Justifier(bool fills_left, bool fills_right) {
  return {
      "width fillchar? /", [=](const Call& call) -> absl::StatusOr<Value> {
        ASSIGN_OR_RETURN(const int64_t width, IntegerOr(call[0], 0));
        const std::string fill = call[1].is_string() ? call[1].string() : " ";
        if (Characters(fill).size() != 1) {
          return absl::InvalidArgumentError(
              "the fill of a text must be one character");
        }
        ASSIGN_OR_RETURN(
            std::string text,
            Justify(
                call.object.string(), width, fill, fills_left, fills_right));
        return Value(std::move(text));
      }};
}

Builtin AffixRemover(bool at_start) {
  return {"affix /", [at_start](const Call& call) -> absl::StatusOr<Value> {
            if (!call[0].is_string()) return NeedsText("removeprefix", call[0]);
            absl::string_view text = call.object.string();
            if (at_start) {
              absl::ConsumePrefix(&text, call[0].string());
            } else {
              absl::ConsumeSuffix(&text, call[0].string());
            }
            return Value(std::string(text));
          }};
}

absl::StatusOr<Value> Replaced(const Call& call) {
  if (!call[0].is_string()) return NeedsText("replace", call[0]);
  if (!call[1].is_string()) return NeedsText("replace", call[1]);
  ASSIGN_OR_RETURN(const int64_t count, IntegerOr(call[2], -1));
  ASSIGN_OR_RETURN(std::string text,
                   ReplaceText(call.object.string(),
                               call[0].string(),
                               call[1].string(),
                               count < 0 ? kAll : count));
  return Value(std::move(text));
}

absl::StatusOr<Value> Joined(const Call& call) {
  ASSIGN_OR_RETURN(const List items, Iterate(call[0]));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) return NeedsText("join", items[i]);
    if (i > 0) joined += call.object.string();
    joined += items[i].string();
    if (joined.size() > kMaxBuiltBytes) {
      return absl::ResourceExhaustedError("join builds too long a text");
    }
  }
  return Value(std::move(joined));
}

absl::StatusOr<Value> Lines(const Call& call) {
  return Value(SplitLines(call.object.string(), call[0].Truthy()));
}

// Replaces each tab by blanks up to the next column that is a multiple of
// `tabsize`, in each line.
absl::StatusOr<Value> ExpandTabs(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t size, IntegerOr(call[0], 8));
  const std::string& text = call.object.string();
  std::string expanded;
  int64_t column = 0;
  for (const CodePoint& letter : Characters(text)) {
    if (letter.value == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      if (blanks > static_cast<int64_t>(kMaxBuiltBytes - expanded.size())) {
        return absl::ResourceExhaustedError(
            "expandtabs builds too long a text");
      }
      expanded.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
      continue;
    }
    expanded += text.substr(letter.begin, letter.end - letter.begin);
    const bool ends_line = letter.value == '\n' || letter.value == '\r';
    column = ends_line ? 0 : column + 1;
  }
  return Value(std::move(expanded));
}

absl::StatusOr<Value> ZeroFilled(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t width, IntegerOr(call[0], 0));
  const std::string& text = call.object.string();
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  ASSIGN_OR_RETURN(const std::string filled,
                   Justify(text.substr(has_sign ? 1 : 0),
                           has_sign ? width - 1 : width,
                           "0",
                           /*fills_left=*/true,
                           /*fills_right=*/false));
  return Value(absl::StrCat(text.substr(0, has_sign ? 1 : 0), filled));
}

absl::StatusOr<Value> FormatMap(const Call& call) {
  if (!call[0].is_dict()) {
    return absl::InvalidArgumentError("'format_map' needs a dict");
  }
  Arguments arguments;
  for (const auto& [key, value] : call[0].dict()) {
    if (key.is_string()) arguments.keywords.emplace_back(key.string(), value);
  }
  ASSIGN_OR_RETURN(std::string text,
                   FormatBraces(call.object.string(), arguments));
  return Value(std::move(text));
}

Builtin Unsupported(const char* name) {
  return {"*", [name](const Call&) -> absl::StatusOr<Value> {
            return absl::InvalidArgumentError(
                absl::StrCat("the method '", name, "' is not supported"));
          }};
}

}  // namespace

const Builtins& StringMethods() {
  static const auto& table = *new Builtins{
      {"capitalize", Changed(Capitalize)},
      {"casefold", Changed(FoldCase)},
      {"center", Justifier(true, true)},
      {"count", {"sub start? end? /", CountText}},
      {"encode", Unsupported("encode")},
      {"endswith", AffixTest(false)},
      {"expandtabs", {"tabsize?", ExpandTabs}},
      {"find", Finder(false, false)},
      {"format",
       {"*",
        [](const Call& call) -> absl::StatusOr<Value> {
          ASSIGN_OR_RETURN(std::string text,
                           FormatBraces(call.object.string(), call.arguments));
          return Value(std::move(text));
        }}},
      {"format_map", {"mapping /", FormatMap}},
      {"index", Finder(false, true)},
      {"isalnum", Tested(IsAlphanumeric)},
      {"isalpha", Tested(IsAlphabetic)},
      {"isascii", Tested(IsAscii)},
      {"isdecimal", Tested(IsDecimal)},
      {"isdigit", Tested(IsDigits)},
      {"isidentifier", Unsupported("isidentifier")},
      {"islower", Tested(IsLowerCase)},
      {"isnumeric", Tested(IsNumeric)},
      {"isprintable", Unsupported("isprintable")},
      {"isspace", Tested(IsBlank)},
      {"istitle", Tested(IsTitleCase)},
      {"isupper", Tested(IsUpperCase)},
      {"join", {"items /", Joined}},
      {"ljust", Justifier(false, true)},
      {"lower", Changed([](const std::string& t) { return Recase(t, false); })},
      {"lstrip", Stripper(true, false)},
      {"maketrans", Unsupported("maketrans")},
      {"partition", Partition(false)},
      {"removeprefix", AffixRemover(true)},
      {"removesuffix", AffixRemover(false)},
      {"replace", {"old new count? /", Replaced}},
      {"rfind", Finder(true, false)},
      {"rindex", Finder(true, true)},
      {"rjust", Justifier(true, false)},
      {"rpartition", Partition(true)},
      {"rsplit", Splitter(true)},
      {"rstrip", Stripper(false, true)},
      {"split", Splitter(false)},
      {"splitlines", {"keepends?", Lines}},
      {"startswith", AffixTest(true)},
      {"strip", Stripper(true, true)},
      {"swapcase", Changed(SwapCase)},
      {"title", Changed(Title)},
      {"translate", Unsupported("translate")},
      {"upper", Changed([](const std::string& t) { return Recase(t, true); })},
      {"zfill", {"width /", ZeroFilled}},
  };
  return table;
}

}  // namespace dapd::jinja
