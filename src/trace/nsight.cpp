#include "moetax/trace/nsight.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

namespace moetax {
namespace {

using Database = std::unique_ptr<sqlite3, int (*)(sqlite3*)>;
using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

// One kind of work: its table, and the column that names what ran, best first; without any it has a name of its own.
struct Table {
  const char* name;
  GpuEventKind kind;
  std::vector<const char*> name_columns;
  const char* name_without;
};

const Table kTables[] = {
    {"CUPTI_ACTIVITY_KIND_KERNEL", GpuEventKind::kKernel, {"demangledName", "shortName"}, "kernel"},
    {"CUPTI_ACTIVITY_KIND_MEMCPY", GpuEventKind::kCopy, {}, "memcpy"},
    {"CUPTI_ACTIVITY_KIND_MEMSET", GpuEventKind::kFill, {}, "memset"},
    {"CUPTI_ACTIVITY_KIND_RUNTIME", GpuEventKind::kRuntime, {"nameId"}, "runtime"},
};

class NsightFile {
 public:
  explicit NsightFile(const std::string& path) : db_(nullptr, sqlite3_close) {
    trace_.file = path;
    trace_.kind = "nsight-sqlite";
    trace_.names.intern("");
  }

  Result<GpuTrace> read() {
    sqlite3* db = nullptr;
    const int status = sqlite3_open_v2(trace_.file.c_str(), &db, SQLITE_OPEN_READONLY, nullptr);
    db_.reset(db);
    if (status != SQLITE_OK) return refused(sqlite3_errstr(status));
    const auto has = [&](const char* table) { return !columns(table).empty(); };
    if (!has("StringIds") || (!has("META_DATA_EXPORT") && !has("EXPORT_META_DATA") && !has(kTables[0].name))) {
      return refused(trace_.read.cut ? trace_.read.cut_why : "it has none of the tables that nsys export writes");
    }
    each_row("SELECT id, value FROM StringIds",
             [&](sqlite3_stmt* row) { strings_[sqlite3_column_int64(row, 0)] = trace_.names.intern(text(row, 1)); });
    for (const Table& table : kTables) read_table(table);
    if (columns("TARGET_INFO_GPU").contains("name")) {
      each_row("SELECT name FROM TARGET_INFO_GPU",
               [&](sqlite3_stmt* row) { trace_.devices.emplace_back(text(row, 0)); });
    }
    return std::move(trace_);
  }

 private:
  Unexpected refused(std::string_view why) const {
    return fail(ErrorCode::kBadInput,
                fmt::format("{}: is no export of Nsight Systems that can be read: {}", trace_.file, why));
  }

  static std::string text(sqlite3_stmt* row, int column) {
    const auto* bytes = sqlite3_column_text(row, column);
    return bytes ? reinterpret_cast<const char*>(bytes) : "";
  }

  // Trouble ends the reading of a table, not of the file.
  void each_row(const std::string& sql, const std::function<void(sqlite3_stmt*)>& take) {
    sqlite3_stmt* prepared = nullptr;
    int status = sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &prepared, nullptr);
    const Statement statement(prepared, sqlite3_finalize);
    while (status == SQLITE_OK || status == SQLITE_ROW) {
      status = sqlite3_step(statement.get());
      if (status == SQLITE_ROW) take(statement.get());
    }
    if (status == SQLITE_DONE) return;
    trace_.read.cut = true;
    trace_.read.cut_why = fmt::format("the database is damaged: {}", sqlite3_errmsg(db_.get()));
  }

  std::set<std::string> columns(const char* table) {
    std::set<std::string> names;
    each_row(fmt::format("PRAGMA table_info({})", table), [&](sqlite3_stmt* row) { names.insert(text(row, 1)); });
    return names;
  }

  void read_table(const Table& table) {
    const std::set<std::string> there = columns(table.name);
    if (!there.contains("start") || !there.contains("end")) return;
    const auto column = [&](const char* name) { return there.contains(name) ? name : "0"; };
    const auto named = std::find_if(table.name_columns.begin(), table.name_columns.end(),
                                    [&](const char* name) { return there.contains(name); });
    const bool has_name = named != table.name_columns.end();
    const NameTable::Id name_without = trace_.names.intern(table.name_without);
    each_row(fmt::format("SELECT start, \"end\", {}, {}, {}, {}, {} FROM {}", column("deviceId"), column("streamId"),
                         column("correlationId"), has_name ? *named : "0", column("globalTid"), table.name),
             [&](sqlite3_stmt* row) {
               const auto at = strings_.find(sqlite3_column_int64(row, 5));
               keep(table.kind, has_name && at != strings_.end() ? at->second : name_without, row);
             });
  }

  void keep(GpuEventKind kind, NameTable::Id name, sqlite3_stmt* row) {
    ++trace_.read.events;
    constexpr std::int64_t kMostNs = std::int64_t{1} << 61;  // differences and sums of two stay in range
    const std::int64_t start = sqlite3_column_int64(row, 0), end = sqlite3_column_int64(row, 1);
    const bool sound = sqlite3_column_type(row, 0) == SQLITE_INTEGER && sqlite3_column_type(row, 1) == SQLITE_INTEGER &&
                       start > -kMostNs && end >= start && end < kMostNs;
    if (!sound) {
      ++trace_.read.damaged;
      return;
    }
    GpuEvent event{start, end - start, name};
    event.kind_bits = static_cast<std::uint8_t>(kind);
    event.track = (on_device(kind) ? track(sqlite3_column_int(row, 2), sqlite3_column_int64(row, 3))
                                   : track(-1, sqlite3_column_int64(row, 6))) &
                  0xffffff;
    event.correlation = static_cast<std::uint32_t>(sqlite3_column_int64(row, 4));
    trace_.events.push_back(event);
  }

  std::uint32_t track(int device, std::int64_t stream) {
    const auto [at, is_new] = tracks_.try_emplace({device, stream}, static_cast<std::uint32_t>(trace_.tracks.size()));
    if (is_new) trace_.tracks.push_back({device, stream, "", ""});
    return at->second;
  }

  Database db_;
  GpuTrace trace_;
  std::unordered_map<std::int64_t, NameTable::Id> strings_;
  std::map<std::pair<int, std::int64_t>, std::uint32_t> tracks_;
};

}  // namespace

bool is_sqlite(const std::string& path) {
  char head[16] = {};
  std::ifstream file(path, std::ios::binary);
  return file.read(head, sizeof head) && std::string_view(head, 15) == "SQLite format 3";
}

Result<GpuTrace> read_nsight(const std::string& path) {
  return NsightFile(path).read();
}

}  // namespace moetax
