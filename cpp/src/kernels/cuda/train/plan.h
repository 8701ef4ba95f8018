// How one layer's recurrence is spread over the thread blocks of a GPU.
//
// A *team* of blocks holds the recurrent matrix in its shared memories, each member the rows of its
// own units, and takes its own rows of the batch through all steps. What the next product reads (h
// going forward, dz going backward: the *x* of the product) every member sends to all others after
// each step, in one of three ways:
//
//   kAlone    a team of one block: x never leaves its shared memory;
//   kCluster  the members are a thread-block cluster and write into each other's shared memory;
//   kGrid     the members are any blocks that run at the same time and exchange x through L2.
//
// A small matrix fits into the registers of one block and is not read again:
//
//   kRegisters a team of one block, whose warps have a unit tile each, and two rows of the batch.
//
// Letters as in recurrence.h. A *block of k* is 16 consecutive k of the product; the x of a member,
// its *slice*, is D [blocks][rows][16], contiguous, so that it is one copy, or one per block. D is
// the type of U and x: bfloat16 or float.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define TSM_HOST_DEVICE __host__ __device__
#else
#define TSM_HOST_DEVICE
#endif

namespace tsm::team {

constexpr int kTile = 16;         // units of a tile, k of a block
constexpr int kRowTile = 8;       // rows of a tile
constexpr int kWarps = 16;        // of a block, at most
constexpr int kZStride = 20;      // floats between two rows of 16 units: no bank conflicts
constexpr int kRegisterRows = 2;  // of a block with the matrix in registers

enum class Exchange { kAlone, kCluster, kGrid, kRegisters };

// The kernels are compiled in these forms, the first of them for float, too. With the matrix in
// registers `warps` is also the most unit tiles, and row_tiles and items do not matter.
struct Form {
  Exchange exchange;
  int row_tiles;  // of a warp's product
  int items;      // (row, two units) of a worker's thread
  int warps;      // of a block, at most: the fewer, the more registers has a thread
};
constexpr Form kForms[] = {
    {Exchange::kAlone, 1, 1, kWarps}, {Exchange::kCluster, 1, 1, kWarps},
    {Exchange::kGrid, 1, 1, kWarps},  {Exchange::kGrid, 2, 1, kWarps},
    {Exchange::kAlone, 2, 2, 12},     {Exchange::kCluster, 2, 1, kWarps},
    {Exchange::kGrid, 3, 1, 12},      {Exchange::kGrid, 4, 2, 12},
    {Exchange::kGrid, 5, 2, 12},      {Exchange::kRegisters, 1, 1, 8},
};
constexpr int kFormCount = int(sizeof(kForms) / sizeof(Form)), kFloatFormCount = 4;

// Warps of a block, at most. In float a thread has more to keep.
TSM_HOST_DEVICE constexpr int warps_of(const Form& form, int number_bytes) {
  return number_bytes == 4 ? 12 : form.warps;
}

// Whether a thread has registers for its part of the matrix, 4 a block of k and gate, and for its
// work.
TSM_HOST_DEVICE constexpr bool fits_registers(const Form& form, int gates) {
  return form.warps <= 8 && gates * form.warps * 4 + 88 <= 255;
}
// Bytes of a row of such a block's x, for so many blocks of k: both rows lie in different banks.
TSM_HOST_DEVICE constexpr int register_row_bytes(int blocks) { return (blocks | 2) * kTile * 2; }

struct LayerShape {
  int64_t B, H;
  int gates;
  bool backward;
  int number_bytes;  // sizeof(D): 2 or 4
};

struct Device {
  int blocks;            // that run at once, one per multiprocessor
  int64_t shared_bytes;  // of one block
  int major;             // compute capability
  int largest_cluster;   // blocks of one, at most
};

struct Plan {
  Exchange exchange;
  int members, teams;  // teams that run in one launch; more rows than they hold take more launches
  int units, rows;     // of a member; of a team
  int workers;         // warps that multiply and run the cell
  int products;        // unit tiles' parts of the matrix: gates going forward, 1 going backward
  int slice_blocks;    // blocks of k of one member
  int row_tiles;       // of a warp: form().row_tiles
  int row_groups;      // warps beside each other over rows
  int splits;          // warps beside each other over k, a power of two
  int parts;           // of z that shared memory holds, splits or fewer; the cell adds them up
  int group;           // members that are counted together
  int pieces;          // of a group's slices, which arrive as so many chunks
  int chunks;          // of a step
  // How many chunks shared memory holds: all, or a multiple of splits. Chunk c is read by split c %
  // splits alone, and put where chunk c - stages was. A barrier tells two fillings of a stage apart
  // by parity, so a warp that waits for one must have seen the one before: both are for one split.
  int stages;
  int form;                     // of the kernels: an index into kForms
  int number_bytes;             // sizeof(D)
  int x_at, z_at, barriers_at;  // where things lie in shared memory, in bytes
  int shared_bytes;

  TSM_HOST_DEVICE int worker_threads() const { return workers * 32; }
  TSM_HOST_DEVICE int tiles() const { return units / kTile; }
  TSM_HOST_DEVICE int jobs() const { return tiles() * row_groups * splits; }
  TSM_HOST_DEVICE int64_t slice_bytes() const {
    return int64_t(slice_blocks) * rows * kTile * number_bytes;
  }
  TSM_HOST_DEVICE int groups() const { return chunks / pieces; }
  TSM_HOST_DEVICE int chunk_blocks() const { return group * slice_blocks / pieces; }
  TSM_HOST_DEVICE int64_t chunk_bytes() const { return group * slice_bytes() / pieces; }
  TSM_HOST_DEVICE int64_t exchange_bytes() const {  // both sides of the double buffer
    return exchange == Exchange::kGrid ? 2 * slice_bytes() * members * teams : 0;
  }
  TSM_HOST_DEVICE int64_t counter_bytes() const {
    return exchange == Exchange::kGrid ? int64_t(teams) * groups() * 4 : 0;
  }
};

// The plan that should take the least time; members = 0 where U does not fit on the chip, or not
// well.
Plan plan_for(const Device& device, const LayerShape& layer);

// The plan of that rank among all that fit, 0 the best by the estimate; members = 0 where there are
// not so many. For measurements.
Plan plan_ranked(const Device& device, const LayerShape& layer, int rank);

}  // namespace tsm::team
