// The only file that sees Apache Arrow.

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/data/row_source.h"

namespace dapd {
namespace {

absl::Status ToAbsl(const std::string& path, const arrow::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return DataError(absl::StrCat(path, ": ", status.message()));
}

// The text of one cell; false if it is null.
absl::StatusOr<bool> CellText(const arrow::Array& array,
                              int64_t row,
                              std::string* text) {
  if (array.IsNull(row)) return false;
  switch (array.type_id()) {
    case arrow::Type::STRING:
      *text = static_cast<const arrow::StringArray&>(array).GetString(row);
      return true;
    case arrow::Type::LARGE_STRING:
      *text = static_cast<const arrow::LargeStringArray&>(array).GetString(row);
      return true;
    case arrow::Type::DICTIONARY: {
      // As pandas and polars write categories: a number for each text.
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      const int64_t index = coded.GetValueIndex(row);
      if (index < 0 || index >= coded.dictionary()->length()) {
        return absl::InvalidArgumentError(
            "has a category outside its dictionary");
      }
      return CellText(*coded.dictionary(), index, text);
    }
    default:
      break;
  }
  if (arrow::is_nested(array.type_id())) {
    return absl::InvalidArgumentError(absl::StrCat("has the nested type ",
                                                   array.type()->ToString(),
                                                   "; a string is needed"));
  }
  auto scalar = array.GetScalar(row);
  if (!scalar.ok()) return ToAbsl("", scalar.status());
  *text = (*scalar)->ToString();
  return true;
}

absl::Status VisitBatch(const std::string& path,
                        const arrow::RecordBatch& batch,
                        int64_t first_row,
                        const RowVisitor& visit) {
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    const std::string where = absl::StrCat(path, " row ", first_row + i + 1);
    absl::StatusOr<TextRow> row = TextRow();
    for (int c = 0; c < batch.num_columns() && row.ok(); ++c) {
      std::string text;
      const auto present = CellText(*batch.column(c), i, &text);
      if (!present.ok()) {
        row = DataError(absl::StrCat(where,
                                     ": column '",
                                     batch.column_name(c),
                                     "' ",
                                     std::string(present.status().message())));
      } else if (*present) {
        (*row)[batch.column_name(c)] = std::move(text);
      }
    }
    RETURN_IF_ERROR(visit(row, where));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VisitParquetRows(const std::string& path,
                              const RowQuery& query,
                              const RowVisitor& visit) {
  parquet::arrow::FileReaderBuilder builder;
  RETURN_IF_ERROR(ToAbsl(path, builder.OpenFile(path)));
  auto built = builder.Build();
  if (!built.ok()) return ToAbsl(path, built.status());
  const std::unique_ptr<parquet::arrow::FileReader> reader =
      std::move(built).ValueUnsafe();
  std::shared_ptr<arrow::Schema> schema;
  RETURN_IF_ERROR(ToAbsl(path, reader->GetSchema(&schema)));

  const std::vector<std::string> names = schema->field_names();
  for (const std::string& column : query.columns) {
    if (const auto count = std::ranges::count(names, column); count > 1) {
      return DataError(absl::StrCat(path,
                                    ": there are ",
                                    count,
                                    " columns '",
                                    column,
                                    "'; rename those that are not meant, or "
                                    "name another one with ",
                                    query.column_settings));
    }
  }
  for (const std::string& column : query.required) {
    if (schema->GetFieldIndex(column) < 0) {
      return MissingColumn(path, query, column, names);
    }
  }
  // Leaf columns count in Parquet: skip those of nested fields by name.
  std::vector<int> indices;
  const auto* leaves = reader->parquet_reader()->metadata()->schema();
  for (int leaf = 0; leaf < leaves->num_columns(); ++leaf) {
    const std::string root = leaves->GetColumnRoot(leaf)->name();
    for (const std::string& column : query.columns) {
      if (root == column) indices.push_back(leaf);
    }
  }
  std::vector<int> row_groups;
  for (int group = 0; group < reader->num_row_groups(); ++group) {
    row_groups.push_back(group);
  }
  auto batches = reader->GetRecordBatchReader(row_groups, indices);
  if (!batches.ok()) return ToAbsl(path, batches.status());
  int64_t first_row = 0;
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    RETURN_IF_ERROR(ToAbsl(path, (*batches)->ReadNext(&batch)));
    if (batch == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(VisitBatch(path, *batch, first_row, visit));
    first_row += batch->num_rows();
  }
}

}  // namespace dapd
