// Runs the tests linked with it as on a machine whose widest instruction set is AVX2: no bf16 products, no packed
// weights.
#include <gtest/gtest.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "moetax/expert/feed_forward.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Before anything else asks the library, which settles its instruction set at the first question.
  if (dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2) != dnnl::status::success) return 1;
  return RUN_ALL_TESTS();
}

TEST(WithoutBf16, SaysSo) {
  EXPECT_NE(moetax::gemm_description().find("bf16 weights are converted to fp32 in tiles"), std::string::npos)
      << moetax::gemm_description();
}
