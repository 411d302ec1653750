#include "common/tokenizer/unicode_text.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>

#include "absl/strings/str_cat.h"

#include "common/base/check.h"
#include "common/tokenizer/newer_characters.h"

namespace dapd {
namespace {

// Uses Unicode 9.0, the version in Hugging Face's `tokenizers`. Later
// characters are left unchanged; otherwise Lao and Arabic texts would get other
// tokens than in training.
const icu::Normalizer2& NormalizerOf(NormalForm form) {
  static const auto& normalizers =
      [] {
        UErrorCode error = U_ZERO_ERROR;
        auto& known = *new icu::UnicodeSet(u"[:age=9.0:]", error);
        known.freeze();
        auto& all = *new std::array<const icu::Normalizer2*, 4>;
        size_t i = 0;
        for (const icu::Normalizer2* whole :
             {icu::Normalizer2::getNFCInstance(error),
              icu::Normalizer2::getNFDInstance(error),
              icu::Normalizer2::getNFKCInstance(error),
              icu::Normalizer2::getNFKDInstance(error)}) {
          Check(U_SUCCESS(error) != 0, "ICU has the data of the normal forms");
          all[i++] = new icu::FilteredNormalizer2(*whole, known);
        }
        return std::cref(all);
      }()
          .get();
  return *normalizers[static_cast<size_t>(form)];
}

// This Unicode version decides punctuation in `tokenizers`.
constexpr uint8_t kPunctuationUnicode = 8;

// Returns the character that begins at `begin`; its value is negative for
// ill-formed bytes.
CodePoint CodePointAt(absl::string_view text, size_t begin) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  auto end = static_cast<int64_t>(begin);
  UChar32 c = 0;
  U8_NEXT(bytes, end, static_cast<int64_t>(text.size()), c);
  return {c, begin, static_cast<size_t>(end)};
}

// ICU sorts a run of combining marks by insertion, in time proportional to the
// square of its length. Longer runs than this are sorted before they reach ICU.
constexpr size_t kLongRun = 64;

bool HasLongRun(absl::string_view text) {
  constexpr int32_t kFirstMark = 0x300;
  size_t run = 0;
  for (size_t i = 0; i < text.size() && run <= kLongRun;) {
    const CodePoint point = CodePointAt(text, i);
    const bool is_mark =
        point.value >= kFirstMark && u_getCombiningClass(point.value) != 0;
    run = is_mark ? run + 1 : 0;
    i = point.end;
  }
  return run > kLongRun;
}

struct Mark {
  uint8_t combining_class = 0;  // never 0, which is the class of other
                                // characters
  absl::string_view bytes;
};

// Returns the text with the marks in its long runs sorted.
std::string OrderLongRuns(absl::string_view text) {
  std::string ordered;
  ordered.reserve(text.size());
  std::vector<Mark> run;
  const auto end_run = [&] {
    if (run.size() > kLongRun) {
      std::ranges::stable_sort(run, {}, &Mark::combining_class);
    }
    for (const Mark& mark : run) absl::StrAppend(&ordered, mark.bytes);
    run.clear();
  };
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = CodePointAt(text, i);
    const absl::string_view character = text.substr(i, point.end - i);
    const uint8_t combining_class =
        NormalizerOf(NormalForm::kNfc).getCombiningClass(point.value);
    i = point.end;
    if (combining_class != 0) {
      run.push_back({combining_class, character});
      continue;
    }
    end_run();
    absl::StrAppend(&ordered, character);
  }
  end_run();
  return ordered;
}

}  // namespace

absl::StatusOr<std::vector<CodePoint>> DecodeUtf8(absl::string_view text) {
  std::vector<CodePoint> points;
  points.reserve(text.size());
  for (size_t i = 0; i < text.size(); i = points.back().end) {
    points.push_back(CodePointAt(text, i));
    if (points.back().value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the text is not valid UTF-8 at byte ", i));
    }
  }
  return points;
}

bool IsLetter(int32_t c) { return (CategoryMask(c) & U_GC_L_MASK) != 0; }

bool IsNumber(int32_t c) { return (CategoryMask(c) & U_GC_N_MASK) != 0; }

bool IsCapitalOrUncased(int32_t c) {
  constexpr uint32_t kMask = (U_GC_L_MASK & ~U_GC_LL_MASK) | U_GC_M_MASK;
  return (CategoryMask(c) & kMask) != 0;
}

bool IsSmallOrUncased(int32_t c) {
  constexpr uint32_t kCapitals = U_GC_LU_MASK | U_GC_LT_MASK;
  constexpr uint32_t kMask = (U_GC_L_MASK & ~kCapitals) | U_GC_M_MASK;
  return (CategoryMask(c) & kMask) != 0;
}

bool IsDigitOfRust(int32_t c) {
  // The ranges are the later digits of Unicode 17.
  return IsNumber(c) || (c >= 0x11DE0 && c <= 0x11DE9) ||
         (c >= 0x16FF4 && c <= 0x16FF6);
}

bool IsPunctuation(int32_t c) {
  if (c < 0x80) return c >= 0 && std::ispunct(c) != 0;
  if (c == 0x166D || c == 0x111C9) return true;  // as in Unicode 8
  UVersionInfo age = {};
  u_charAge(c, age);
  return age[0] > 0 && age[0] <= kPunctuationUnicode &&
         (U_GET_GC_MASK(c) & U_GC_P_MASK) != 0;
}

bool IsWordCharacter(int32_t c) {
  constexpr uint32_t kMask =
      U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_NL_MASK | U_GC_PC_MASK;
  if ((CategoryMask(c) & kMask) != 0 || c == 0x200C || c == 0x200D) return true;
  return OldStandIn(c) == c && u_hasBinaryProperty(c, UCHAR_ALPHABETIC) != 0;
}

bool IsWhitespace(int32_t c) { return u_isUWhiteSpace(c) != 0; }

std::string Normalize(absl::string_view text, NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  std::string ordered;
  if (HasLongRun(text)) {
    ordered = OrderLongRuns(text);
    text = ordered;
  }
  std::string normalized;
  icu::StringByteSink<std::string> sink(&normalized);
  NormalizerOf(form).normalizeUTF8(
      0,
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())),
      sink,
      nullptr,
      error);
  Check(U_SUCCESS(error) != 0, "well-formed text can be normalised");
  return normalized;
}

std::string ComposeNfc(absl::string_view text) {
  return Normalize(text, NormalForm::kNfc);
}

std::string LowerCase(absl::string_view text) {
  std::string lower;
  const std::vector<CodePoint> points = DecodeUtf8(text).value();
  for (const CodePoint& point : points) {
    icu::UnicodeString letter(OldStandIn(point.value) == point.value
                                  ? u_tolower(point.value)
                                  : LowerOfNewer(point.value));
    // This is the only letter that becomes two characters.
    if (point.value == 0x130) letter = icu::UnicodeString(u"i\u0307");
    letter.toUTF8String(lower);
  }
  return lower;
}

int64_t MostTokens(absl::string_view text) {
  return static_cast<int64_t>(std::max(text.size(), ComposeNfc(text).size()));
}

std::string RepairUtf8(absl::string_view bytes) {
  std::string repaired;
  icu::UnicodeString::fromUTF8(
      icu::StringPiece(bytes.data(), static_cast<int32_t>(bytes.size())))
      .toUTF8String(repaired);
  return repaired;
}

}  // namespace dapd
