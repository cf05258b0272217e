// Reader of `nvidia-smi topo -m`.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "machine/nvidia_smi_rows.h"
#include "machine/topology_readers.h"
#include "moetax/base/text.h"

namespace moetax {
namespace {

constexpr std::size_t kMaxLine = std::size_t{1} << 16;
constexpr std::size_t kMaxLinks = std::size_t{1} << 20;  // of all machines of a file together

class MatrixReader {
 public:
  void take(std::string_view raw, int number) {
    if (raw.size() > kMaxLine) return;
    const std::string line = without_escapes(raw);
    if (auto header = matrix_header(line, number)) {
      finish();
      header_ = std::move(*header);
    } else if (header_.line > 0) {
      take_inside(line, number);
    }
  }

  std::vector<Topology> result() {
    finish();
    return std::move(machines_);
  }

 private:
  void take_inside(std::string_view line, int number) {
    if (auto row = matrix_row(header_, line)) return take_row(*row, number);
    const std::vector<Word> words = words_of(line);
    if (words.size() == 2 && words[0].text.ends_with(':')) name_adapter(words[0].text, words[1].text);
  }

  bool begin_machine() {
    const std::size_t devices = header_.devices.size();
    if (links_ + devices * devices > kMaxLinks) return false;
    links_ += devices * devices;
    machine_.emplace(TopologyFormat::kNvidiaSmi, header_.line, header_.devices);
    return true;
  }

  void take_row(const MatrixRow& row, int number) {
    if (!machine_ && !begin_machine()) {
      if (!machines_.empty()) machines_.back().skip(number, "too many machines in one file; split it");
      header_ = {};
      return;
    }
    if (!row.trouble.empty()) machine_->skip(number, row.trouble);
    for (int column = 0; column < static_cast<int>(row.cells.size()); ++column) {
      const auto& cell = row.cells[static_cast<std::size_t>(column)];
      if (!cell || cell->self) continue;
      take_link(row.device, column, cell->link, number);
    }
    cells_ = cells_ || row.cells[static_cast<std::size_t>(row.device)].has_value();
    Device& device = machine_->devices()[static_cast<std::size_t>(row.device)];
    if (!row.cpus.empty()) device.cpus = row.cpus;
    if (row.numa_node >= 0) device.numa_node = row.numa_node;
  }

  // Both directions are in the matrix. Where they differ the slower one holds.
  void take_link(int a, int b, const Link& link, int number) {
    const Link& known = machine_->link(a, b);
    cells_ = true;
    if (known.kind != LinkKind::kUnknown && known != link) {
      machine_->skip(
          number, fmt::format("{} to {} is {} here and {} in another row; the slower one is taken",
                              machine_->device(a).name, machine_->device(b).name, link_text(link), link_text(known)));
      if (slower(known, link)) return;
    }
    machine_->set_link(a, b, link);
  }

  // The legend: "NIC0: mlx5_1".
  void name_adapter(std::string_view nic, std::string_view adapter) {
    if (!machine_) return;
    nic.remove_suffix(1);
    for (Device& device : machine_->devices()) {
      if (device.kind == DeviceKind::kNic && device.name == nic) device.adapter = adapter;
    }
  }

  // A header whose rows hold no cell of this format is not a matrix of it.
  void finish() {
    if (machine_ && cells_) {
      machine_->note_unknown_pairs();
      machines_.push_back(std::move(*machine_));
    }
    machine_.reset();
    header_ = {};
    cells_ = false;
  }

  MatrixHeader header_;
  std::optional<Topology> machine_;
  bool cells_ = false;  // the machine has at least one
  std::size_t links_ = 0;
  std::vector<Topology> machines_;
};

}  // namespace

std::vector<Topology> parse_nvidia_smi(std::string_view text) {
  MatrixReader reader;
  Splitter lines(text, '\n');
  int number = 0;
  while (const auto line = lines.next()) reader.take(*line, ++number);
  return reader.result();
}

}  // namespace moetax
