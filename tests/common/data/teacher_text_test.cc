#include "common/data/teacher_text.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TeacherTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteSmallTokenizer(student_.folder);
    student_.text =
        LoadTextPipeline(student_.folder, ViewOptions{}, kSmallEndId).value();
    student_.model.vocab_size = 300;
    teacher_.settings.name = "big";
    WriteSmallTokenizer(teacher_.folder);
    teacher_.model.vocab_size = 270;
  }

  ModelText student_{.folder = TempPath("student")};
  FurtherTeacher teacher_{.folder = TempPath("teacher")};
};

TEST_F(TeacherTextTest, HeadsMayBePaddedToDifferentRows) {
  EXPECT_EQ(CheckTeacherText({teacher_}, student_), absl::OkStatus());
}

TEST_F(TeacherTextTest, AnotherTokenizerIsRefusedWithTheTeachersName) {
  AddToSmallTokenizer(teacher_.folder, "<think>");
  const absl::Status status = CheckTeacherText({teacher_}, student_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("teachers: 'big': "),
                    HasSubstr("token 262 is missing in "),
                    HasSubstr("'<think>' in "),
                    HasSubstr(student_.folder),
                    HasSubstr(teacher_.folder)));
}

TEST_F(TeacherTextTest, EveryTokenNeedsARowInEveryHead) {
  teacher_.model.vocab_size = 261;
  const absl::Status status = CheckTeacherText({teacher_}, student_);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("has 262 tokens"), HasSubstr("only 261 rows")));
}

}  // namespace
}  // namespace dapd
