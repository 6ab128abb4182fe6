// Numbers of cuBLASLt's attributes, as its header (13.0) has them.
#include "backend/cuda/cublaslt_names.h"

#include <gtest/gtest.h>

using namespace crest::cuda;

TEST(CublasltNames, TilesHaveTheNumbersOfTheHeader) {
  using Tile = std::pair<int, int>;
  EXPECT_EQ(tile_of(0), Tile(0, 0));
  EXPECT_EQ(tile_of(1), Tile(8, 8));
  EXPECT_EQ(tile_of(20), Tile(128, 128));
  EXPECT_EQ(tile_of(36), Tile(8, 128));
  EXPECT_EQ(tile_of(132), Tile(72, 576));
  EXPECT_EQ(tile_of(209), Tile(192, 192));
  EXPECT_EQ(tile_of(311), Tile(768, 64));
  EXPECT_EQ(tile_of(312), Tile(64, 16));
  EXPECT_EQ(tile_of(392), Tile(64, 760));
  EXPECT_EQ(tile_of(447), Tile(128, 512));
  EXPECT_EQ(tile_of(513), Tile(256, 256));
  EXPECT_EQ(tile_of(630), Tile(768, 80));
  EXPECT_EQ(tile_of(634), Tile(512, 1024));
  EXPECT_EQ(tile_of(635), Tile(0, 0));
}

TEST(CublasltNames, StagesAndClusters) {
  EXPECT_EQ(stages_of(0), "");
  EXPECT_EQ(stages_of(16), "64x4");
  EXPECT_EQ(stages_of(24), "128x6");
  EXPECT_EQ(stages_of(31), "8x3");
  EXPECT_EQ(stages_of(35), "64xauto");
  EXPECT_EQ(stages_of(38), "768xauto");
  EXPECT_EQ(stages_of(39), "");
  EXPECT_EQ(cluster_of(0), "");
  EXPECT_EQ(cluster_of(2), "1x1x1");
  EXPECT_EQ(cluster_of(16), "1x16x1");
  EXPECT_EQ(cluster_of(29), "5x2x1");
  EXPECT_EQ(cluster_of(37), "3x4x1");
  EXPECT_EQ(cluster_of(51), "1x15x1");
  EXPECT_EQ(cluster_of(52), "");
}
