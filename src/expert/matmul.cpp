#include "expert/matmul.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cassert>

namespace moetax {
namespace {

thread_local bool inside_library = false;

struct LibraryCall {
  LibraryCall() { inside_library = true; }
  ~LibraryCall() { inside_library = false; }
};

void set_address(const dnnl::memory& memory, const void* address) {
  const LibraryCall inside;
  const dnnl_status_t status = dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(address));
  assert(status == dnnl_success);
  static_cast<void>(status);
}

}  // namespace

ScopedTeam::ScopedTeam(int threads)
    : threads_before_(omp_get_max_threads()),
      dynamic_before_(omp_get_dynamic()),
      levels_before_(omp_get_max_active_levels()) {
  omp_set_num_threads(std::min(threads, omp_get_thread_limit()));
  omp_set_dynamic(0);
  omp_set_max_active_levels(std::max(levels_before_, omp_get_active_level() + 1));
}

ScopedTeam::~ScopedTeam() {
  omp_set_num_threads(threads_before_);
  omp_set_dynamic(dynamic_before_);
  omp_set_max_active_levels(levels_before_);
}

const bool& inside_gemm_library() {
  return inside_library;
}

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

void execute(const dnnl::primitive& primitive, const dnnl::stream& stream, std::span<const dnnl_exec_arg_t> arguments) {
  const LibraryCall inside;
  dnnl_status_t status =
      dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(arguments.size()), arguments.data());
  if (status == dnnl_success) status = dnnl_stream_wait(stream.get());
  assert(status == dnnl_success);
  static_cast<void>(status);
}

dnnl::memory::data_type dnnl_type(DType dtype) {
  return dtype == DType::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc row_major(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t stride) {
  return {{rows, cols}, dnnl_type(dtype), dnnl::memory::dims{stride ? stride : cols, 1}};
}

Matmul::Matmul(const Spec& spec) {
  const dnnl::engine& engine = cpu_engine();
  const dnnl::memory::desc bias({1, spec.c.dims()[1]}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (spec.accumulate) {
    dnnl::post_ops add;
    add.append_sum(1.0f);
    attributes.set_post_ops(add);
  }
  const auto operation =
      spec.bias ? dnnl::matmul::desc(spec.a, spec.b, bias, spec.c) : dnnl::matmul::desc(spec.a, spec.b, spec.c);
  const dnnl::matmul::primitive_desc description(operation, attributes, engine);
  primitive_ = dnnl::matmul(description);
  weights_ = description.weights_desc();
  scratch_bytes_ = description.scratchpad_desc().get_size();
  a_ = dnnl::memory(spec.a, engine, nullptr);
  b_ = dnnl::memory(weights_, engine, nullptr);
  c_ = dnnl::memory(spec.c, engine, nullptr);
  scratch_ = dnnl::memory(description.scratchpad_desc(), engine, nullptr);
  if (spec.bias) bias_ = dnnl::memory(bias, engine, nullptr);
}

void Matmul::run(dnnl::stream& stream, const Addresses& at, const void* b) {
  set_address(b_, b);
  run(stream, at, b_);
}

void Matmul::run(dnnl::stream& stream, const Addresses& at, const dnnl::memory& b) {
  set_address(a_, at.a);
  set_address(c_, at.c);
  set_address(scratch_, at.scratch);
  std::array<dnnl_exec_arg_t, 5> arguments{{{DNNL_ARG_SRC, a_.get()},
                                            {DNNL_ARG_WEIGHTS, b.get()},
                                            {DNNL_ARG_DST, c_.get()},
                                            {DNNL_ARG_SCRATCHPAD, scratch_.get()},
                                            {DNNL_ARG_BIAS, nullptr}}};
  if (bias_) {
    set_address(bias_, at.bias);
    arguments[4].memory = bias_.get();
  }
  execute(primitive_, stream, std::span(arguments).first(bias_ ? 5 : 4));
}

void LibraryScratch::allocate() {
  memory_ = dnnl::memory(
      {{static_cast<std::int64_t>(bytes_)}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a}, cpu_engine());
}

}  // namespace moetax
