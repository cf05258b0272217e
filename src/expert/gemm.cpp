#include "expert/gemm.h"

#include <fmt/format.h>

#include "moetax/expert/feed_forward.h"

namespace moetax {
namespace {

const char* isa_name() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2 with VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 with bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX-512 with AMX";
    default:
      return "an instruction set it does not name";
  }
}

}  // namespace

std::string gemm_description() {
  const dnnl::version_t* version = dnnl::version();
  const char* bf16 =
      is_native(DType::kBf16) ? "bf16 products are native" : "bf16 weights are converted to fp32 in tiles";
  return fmt::format("oneDNN {}.{}.{}, {}, {}", version->major, version->minor, version->patch, isa_name(), bf16);
}

bool is_native(DType dtype) {
  // oneDNN has packed products from AVX-512 on. AVX-512 without bf16 instructions would emulate them at a fraction of
  // the rate of fp32, so bf16 is converted there.
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed =
      static_cast<unsigned>(dtype == DType::kBf16 ? dnnl::cpu_isa::avx512_core_bf16 : dnnl::cpu_isa::avx512_core);
  return (isa & needed) == needed;
}

Result<std::unique_ptr<RowGemm>> RowGemm::create(const GemmSpec& spec) {
  return is_native(spec.in) ? make_packed_gemm(spec) : make_tiled_gemm(spec);
}

Result<WeightReorder> WeightReorder::create(const dnnl::memory::desc& from, const dnnl::memory::desc& to, int threads) {
  return guard_library("a copy of weights", [&] {
    const ScopedTeam team(threads);
    WeightReorder made;
    made.threads_ = threads;
    made.stream_ = dnnl::stream(cpu_engine());
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc description(cpu_engine(), from, cpu_engine(), to, attributes);
    made.reorder_ = dnnl::reorder(description);
    made.scratch_ = dnnl::memory(description.scratchpad_desc(), cpu_engine());
    return made;
  });
}

void WeightReorder::run(const dnnl::memory& from, const dnnl::memory& to) {
  const ScopedTeam team(threads_);
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}, {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
  execute(reorder_, stream_, arguments);
}

dnnl::memory::desc transposed(const dnnl::memory::desc& desc) {
  return desc.permute_axes({1, 0});
}

dnnl::memory::desc plain_weights(std::int64_t k, std::int64_t n) {
  return {{k, n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ba};
}

Result<dnnl::memory> bind_matrix(const dnnl::memory::desc& desc, const void* place) {
  return guard_library("a matrix", [&] { return dnnl::memory(desc, cpu_engine(), const_cast<void*>(place)); });
}

}  // namespace moetax
