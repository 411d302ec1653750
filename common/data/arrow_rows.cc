// Reads rows of Parquet files, and of streams and files in Arrow's IPC format.

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/data/arrow_cell.h"
#include "common/data/json_text.h"
#include "common/data/row_source.h"

namespace dapd {
namespace {

// A file of Arrow's IPC format begins with this text; a stream does not.
constexpr absl::string_view kArrowFileMagic = "ARROW1";

absl::Status ToAbsl(const std::string& path, const arrow::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return DataError(absl::StrCat(path, ": ", status.message()));
}

// Returns an error if a required column is missing, or if there are two columns
// with the name of a column that is asked for.
absl::Status CheckColumns(const std::string& path,
                          const std::vector<std::string>& names,
                          const RowQuery& query) {
  for (const std::string& column : names) {
    const auto count = std::ranges::count(names, column);
    if (count > 1 && IsAsked(query, column)) {
      return DataError(absl::StrCat(path,
                                    ": there are ",
                                    count,
                                    " columns '",
                                    column,
                                    "'; rename the columns that are not meant, "
                                    "or name another column with ",
                                    query.column_settings));
    }
  }
  for (const std::string& column : query.required) {
    if (std::ranges::count(names, column) == 0) {
      return MissingColumn(path, query, column, names);
    }
  }
  for (const std::string& name : names) {
    if (query.unread != nullptr && !IsAsked(query, name) &&
        query.unread->size() < kMaxUnreadColumns) {
      query.unread->insert(name);
    }
  }
  return absl::OkStatus();
}

absl::Status CellError(const std::string& where,
                       const std::string& column,
                       const absl::Status& status) {
  return DataError(absl::StrCat(
      where, ": column '", column, "' ", std::string(status.message())));
}

// Adds the cell's JSON text, and nothing for null.
absl::Status AddCellValue(const arrow::Array& array,
                          int64_t index,
                          const std::string& column,
                          const std::string& where,
                          bool must_have_value,
                          DataRow* row) {
  const auto json = CellJson(array, index);
  if (!json.ok()) {
    return must_have_value ? CellError(where, column, json.status())
                           : absl::OkStatus();
  }
  return AddJsonValue(*json, column, where, &row->values);
}

absl::Status AddCell(const arrow::Array& array,
                     int64_t index,
                     const std::string& column,
                     const std::string& where,
                     const RowQuery& query,
                     DataRow* row) {
  const bool is_value = std::ranges::count(query.values, column) > 0;
  if (is_value || query.wants_all_values) {
    RETURN_IF_ERROR(AddCellValue(array, index, column, where, is_value, row));
  }
  if (std::ranges::count(query.columns, column) == 0) return absl::OkStatus();
  auto text = CellText(array, index);
  if (!text.ok()) return CellError(where, column, text.status());
  if (text->has_value()) row->texts[column] = **std::move(text);
  return absl::OkStatus();
}

absl::Status VisitBatch(const std::string& path,
                        const RowQuery& query,
                        const arrow::RecordBatch& batch,
                        int64_t first_row,
                        const RowVisitor& visit) {
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    const std::string where = absl::StrCat(path, " row ", first_row + i + 1);
    absl::StatusOr<DataRow> row = DataRow();
    for (int c = 0; c < batch.num_columns() && row.ok(); ++c) {
      const absl::Status added = AddCell(
          *batch.column(c), i, batch.column_name(c), where, query, &*row);
      if (!added.ok()) row = added;
    }
    RETURN_IF_ERROR(visit(row, where));
  }
  return absl::OkStatus();
}

// Visits batches until `next` returns null.
absl::Status VisitBatches(
    const std::string& path,
    const RowQuery& query,
    const std::function<arrow::Result<std::shared_ptr<arrow::RecordBatch>>()>&
        next,
    const RowVisitor& visit) {
  int64_t first_row = 0;
  while (true) {
    const auto batch = next();
    RETURN_IF_ERROR(ToAbsl(path, batch.status()));
    if (*batch == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(VisitBatch(path, query, **batch, first_row, visit));
    first_row += (*batch)->num_rows();
  }
}

// Returns the indices of the schema's columns that are asked for.
std::vector<int> AskedColumns(const arrow::Schema& schema,
                              const RowQuery& query) {
  std::vector<int> columns;
  for (int i = 0; i < schema.num_fields(); ++i) {
    if (IsAsked(query, schema.field(i)->name())) columns.push_back(i);
  }
  return columns;
}

absl::Status VisitArrowFile(
    const std::string& path,
    const std::shared_ptr<arrow::io::RandomAccessFile>& file,
    const RowQuery& query,
    const RowVisitor& visit) {
  auto reader = arrow::ipc::RecordBatchFileReader::Open(file);
  RETURN_IF_ERROR(ToAbsl(path, reader.status()));
  const std::shared_ptr<arrow::Schema> schema = (*reader)->schema();
  RETURN_IF_ERROR(CheckColumns(path, schema->field_names(), query));
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.included_fields = AskedColumns(*schema, query);
  reader = arrow::ipc::RecordBatchFileReader::Open(file, options);
  RETURN_IF_ERROR(ToAbsl(path, reader.status()));
  int number = 0;
  return VisitBatches(
      path,
      query,
      [&]() -> arrow::Result<std::shared_ptr<arrow::RecordBatch>> {
        if (number == (*reader)->num_record_batches()) return nullptr;
        ARROW_ASSIGN_OR_RAISE(auto batch, (*reader)->ReadRecordBatch(number++));
        ARROW_RETURN_NOT_OK(batch->ValidateFull());
        return batch;
      },
      visit);
}

absl::Status VisitArrowStream(
    const std::string& path,
    const std::shared_ptr<arrow::io::RandomAccessFile>& file,
    const RowQuery& query,
    const RowVisitor& visit) {
  auto reader = arrow::ipc::RecordBatchStreamReader::Open(file);
  RETURN_IF_ERROR(ToAbsl(path, reader.status()));
  const std::shared_ptr<arrow::Schema> schema = (*reader)->schema();
  RETURN_IF_ERROR(CheckColumns(path, schema->field_names(), query));
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.included_fields = AskedColumns(*schema, query);
  RETURN_IF_ERROR(ToAbsl(path, file->Seek(0)));
  reader = arrow::ipc::RecordBatchStreamReader::Open(file, options);
  RETURN_IF_ERROR(ToAbsl(path, reader.status()));
  return VisitBatches(
      path,
      query,
      [&]() -> arrow::Result<std::shared_ptr<arrow::RecordBatch>> {
        std::shared_ptr<arrow::RecordBatch> batch;
        ARROW_RETURN_NOT_OK((*reader)->ReadNext(&batch));
        if (batch != nullptr) ARROW_RETURN_NOT_OK(batch->ValidateFull());
        return batch;
      },
      visit);
}

// Parquet counts leaf columns: a nested field has several leaves.
std::vector<int> AskedLeaves(const parquet::SchemaDescriptor& schema,
                             const RowQuery& query) {
  std::vector<int> leaves;
  for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
    if (IsAsked(query, schema.GetColumnRoot(leaf)->name())) {
      leaves.push_back(leaf);
    }
  }
  return leaves;
}

}  // namespace

absl::Status VisitArrowRows(const std::string& path,
                            const RowQuery& query,
                            const RowVisitor& visit) {
  const auto file = arrow::io::ReadableFile::Open(path);
  RETURN_IF_ERROR(ToAbsl(path, file.status()));
  const auto magic = (*file)->Read(kArrowFileMagic.size());
  RETURN_IF_ERROR(ToAbsl(path, magic.status()));
  RETURN_IF_ERROR(ToAbsl(path, (*file)->Seek(0)));
  return (*magic)->ToString() == kArrowFileMagic
             ? VisitArrowFile(path, *file, query, visit)
             : VisitArrowStream(path, *file, query, visit);
}

absl::Status VisitParquetRows(const std::string& path,
                              const RowQuery& query,
                              const RowVisitor& visit) {
  // pyarrow and `datasets` read with this property, too: it gives a column that
  // Parquet marks as JSON or UUID the extension type of that name.
  parquet::ArrowReaderProperties properties =
      parquet::default_arrow_reader_properties();
  properties.set_arrow_extensions_enabled(true);
  parquet::arrow::FileReaderBuilder builder;
  RETURN_IF_ERROR(ToAbsl(path, builder.OpenFile(path)));
  auto built = builder.properties(properties)->Build();
  if (!built.ok()) return ToAbsl(path, built.status());
  const std::unique_ptr<parquet::arrow::FileReader> reader =
      std::move(built).ValueUnsafe();
  std::shared_ptr<arrow::Schema> schema;
  RETURN_IF_ERROR(ToAbsl(path, reader->GetSchema(&schema)));
  RETURN_IF_ERROR(CheckColumns(path, schema->field_names(), query));
  std::vector<int> row_groups;
  for (int group = 0; group < reader->num_row_groups(); ++group) {
    row_groups.push_back(group);
  }
  auto batches = reader->GetRecordBatchReader(
      row_groups,
      AskedLeaves(*reader->parquet_reader()->metadata()->schema(), query));
  if (!batches.ok()) return ToAbsl(path, batches.status());
  return VisitBatches(
      path,
      query,
      [&]() -> arrow::Result<std::shared_ptr<arrow::RecordBatch>> {
        std::shared_ptr<arrow::RecordBatch> batch;
        ARROW_RETURN_NOT_OK((*batches)->ReadNext(&batch));
        return batch;
      },
      visit);
}

}  // namespace dapd
