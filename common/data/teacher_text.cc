#include "common/data/teacher_text.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/compare_tokenizers.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {
namespace {

absl::Status CheckTokens(const FurtherTeacher& teacher,
                         const ModelText& student) {
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Load(teacher.folder));
  RETURN_IF_ERROR(CompareTokenizers({*student.text.tokenizer, student.folder},
                                    {*tokenizer, teacher.folder}));
  const int64_t rows = CommonVocabulary(student.model.vocab_size, {teacher});
  if (tokenizer->size() <= rows) return absl::OkStatus();
  return DataError(
      absl::StrCat("the tokenizer has ",
                   tokenizer->size(),
                   " tokens, but the smaller of both models' heads has only ",
                   rows,
                   " rows (vocab_size of ",
                   student.folder,
                   " is ",
                   student.model.vocab_size,
                   ", of ",
                   teacher.folder,
                   " ",
                   teacher.model.vocab_size,
                   "); both need a row for each token"));
}

}  // namespace

absl::Status CheckTeacherText(const FurtherTeachers& teachers,
                              const ModelText& student) {
  for (const FurtherTeacher& teacher : teachers) {
    RETURN_IF_ERROR(OfTeacher(teacher.settings, CheckTokens(teacher, student)));
  }
  return absl::OkStatus();
}

}  // namespace dapd
