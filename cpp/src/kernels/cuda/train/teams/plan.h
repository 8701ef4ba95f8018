// How one layer's recurrence is spread over the thread blocks of a GPU.
//
// A *team* of blocks holds the recurrent matrix in shared memory, each member the rows of its own
// units, and takes its own rows of the batch through all steps. After each step every member sends
// the input of the next product (h in forward, dz in backward: the *x* of the product) to all
// others, in one of three ways:
//
//   kAlone    a team of one block: x never leaves its shared memory;
//   kCluster  the members are a thread-block cluster and write into each other's shared memory
//             (compute capability 9.0);
//   kGrid     the members are any blocks that run at the same time and exchange x through L2, with
//             bulk copies (9.0), ordinary asynchronous ones, or words that are marked as unwritten.
//
// A matrix that shared memory cannot hold is *streamed* where the batch has few rows: a grid's
// members keep a part of it, also in registers, and read the rest in every step
// (streamed_matrix.cuh).
//
// A grid's neighbours may *cut* k: as a cluster of 2 or 4 blocks, each multiplies the units of all
// of them with its part of k, so that it reads only that part of x, and they send each other the
// sums (9.0, backward).
//
// A small matrix fits in the registers of one block, or in its registers and shared memory:
//
//   kRegisters a team of one block for two rows of the batch; each warp has a unit tile.
//
// Where that is slow, or U does not fit:
//
//   kSteps    no teams: one product for the whole batch and one launch per step (steps.h).
//
// Dimensions as in recurrence.h. A *block of k* is 16 consecutive k of the product. The x of a
// member, its *slice*, is D [blocks][rows][16] and contiguous, so that it is sent with one copy, or
// one per block. D is the type of U and x: bfloat16 or float.
#pragma once
#include <cstdint>
#include <string>

#if defined(__CUDACC__)
#define TSM_HOST_DEVICE __host__ __device__
#else
#define TSM_HOST_DEVICE
#endif

namespace tsm::team {

constexpr int kTile = 16;         // units of a tile, k of a block
constexpr int kRowTile = 8;       // rows of a tile
constexpr int kWarps = 16;        // per block, at most
constexpr int kZStride = 20;      // floats between two rows of 16 units, avoids bank conflicts
constexpr int kRegisterRows = 2;  // per block with the matrix in registers
constexpr int kPieceBlocks = 2;   // blocks of k in a piece of a streamed matrix, of all gates

enum class Exchange { kAlone, kCluster, kGrid, kRegisters, kSteps };

// The kernels are compiled in these forms for bfloat16, in some also for float. With the matrix in
// registers, `warps` is also the maximum number of unit tiles, and row_tiles and items are unused.
struct Form {
  Exchange exchange;
  int row_tiles;  // per warp in the product
  int items;      // (row, two units) per thread of a worker that runs the cell
  int warps;      // per block, at most: fewer warps leave more registers per thread
  bool in_float = false;
  bool streams = false;  // whether the matrix is streamed
  bool cuts = false;     // whether neighbours cut k; only backward
};
constexpr Form kForms[] = {
    {Exchange::kAlone, 1, 1, kWarps, true},
    {Exchange::kCluster, 1, 1, kWarps, true},
    {Exchange::kGrid, 1, 1, kWarps, true},
    {Exchange::kGrid, 2, 1, kWarps, true},
    {Exchange::kAlone, 2, 2, 12},
    {Exchange::kCluster, 2, 1, kWarps},
    {Exchange::kGrid, 3, 1, 12},
    {Exchange::kGrid, 4, 2, 12},
    {Exchange::kGrid, 5, 2, 12},
    {Exchange::kRegisters, 1, 1, 4, true},
    {Exchange::kRegisters, 1, 1, 8, true},
    {Exchange::kRegisters, 1, 1, 10},
    {Exchange::kGrid, 1, 2, 12, false, true},
    {Exchange::kGrid, 2, 3, 12, false, true},
    {Exchange::kGrid, 2, 1, kWarps, false, false, true},
    {Exchange::kGrid, 3, 1, 12, false, false, true},
    {Exchange::kGrid, 4, 2, 12, false, false, true},
};
constexpr int kFormCount = int(sizeof(kForms) / sizeof(Form));

// Whether the form has kernels for numbers of that size.
TSM_HOST_DEVICE constexpr bool is_compiled(const Form& form, int number_bytes) {
  return number_bytes == 2 || form.in_float;
}

// The maximum number of warps per block. In float a thread of a team needs more registers.
TSM_HOST_DEVICE constexpr int warps_of(const Form& form, int number_bytes) {
  return number_bytes == 4 && form.exchange != Exchange::kRegisters ? 12 : form.warps;
}

// kRegisters: how many of a warp's tiles of the matrix, one per block of k and gate, its registers
// hold. A tile takes 4 registers of a thread, in float 8. A thread has 255 with up to 8 warps and
// 168 with more; the cell needs the others. Tiles that are not held are in shared memory. In
// bfloat16 with up to 8 warps, all are held, or there is no kernel and this returns 0.
TSM_HOST_DEVICE constexpr int register_tiles(const Form& form, int gates, bool backward,
                                             int number_bytes) {
  const int all = gates * form.warps;
  if (form.warps <= 8 && number_bytes == 2) return all * 4 + 88 <= 255 ? all : 0;
  const int held = number_bytes == 4 ? (255 - (backward ? 110 : 98) - 4 * gates) / 8
                                     : (168 - (backward ? 94 : 72) - 4 * gates) / 4;
  return held < all ? held : all;
}
// Streaming: how many of a warp's pieces of the matrix (streamed_matrix.cuh) its registers hold. A
// thread has 168 registers. A piece takes 4 for each gate and block of k; the product needs about
// 84, with a piece that it reads, and 16 more for further rows.
TSM_HOST_DEVICE constexpr int held_pieces(const Form& form, int gates) {
  const int held = (168 - 84 - 16 * (form.row_tiles - 1)) / (4 * gates * kPieceBlocks);
  return form.streams ? held : 0;
}
// Bytes of x in a kRegisters team, for `blocks` blocks of k. In bfloat16, the two rows of x are in
// different banks; in float, they alternate.
TSM_HOST_DEVICE constexpr int register_x_bytes(int blocks, int number_bytes) {
  return kRegisterRows * kTile * number_bytes * (number_bytes == 2 ? blocks | 2 : blocks);
}

struct LayerShape {
  int64_t B, H;
  int gates;
  bool backward;
  int number_bytes;  // sizeof(D): 2 or 4
};

struct Device {
  int blocks;             // that run at once, one per multiprocessor
  int64_t shared_bytes;   // per block
  int major;              // compute capability; 0: this build has no code for the device
  int largest_cluster;    // blocks per cluster, at most
  bool products = false;  // whether kSteps can run
  int minor = 0;
  int largest_cut = 4;  // neighbours that cut k, at most

  bool hopper() const { return major == 9; }  // clusters, bulk copies and streaming are used
};

// `device` with the limits of another one, for tests: "8.6" or "8.6,84,99", i.e. compute
// capability, multiprocessors, KB of shared memory per block. What the device has less of stays.
// Throws an Error if `like` has another form, or a capability that has no kernels.
Device pretended(Device device, const std::string& like);

// Which of the kernels a device gets.
std::string path_in_words(const Device& device);

struct Plan {
  Exchange exchange;
  int members, teams;  // teams per launch; further rows take more launches
  int units, rows;     // per member; per team
  int workers;         // warps that multiply or run the cell, or both
  int products;        // per unit tile: gates in forward, 1 in backward
  int slice_blocks;    // blocks of k per member
  int row_tiles;       // per warp: form().row_tiles
  int row_groups;      // warps that split the rows
  int splits;          // warps that split k, a power of two
  // Parts of z in shared memory, at most splits; the cell adds them up. If k is cut, there are
  // splits from every neighbour.
  int parts;
  int group;   // members that share a counter
  int pieces;  // chunks per group of members
  int chunks;  // per step (of a cut, if k is cut)
  // How many chunks shared memory holds: all, or a multiple of splits. Chunk c is read only by
  // split c % splits, and replaces chunk c - stages. A barrier distinguishes two fillings of a
  // stage by parity, so a warp that waits for one must have seen the previous one; this holds
  // because both are for the same split. If k is cut, warps do not wait for each other between
  // steps; then chunks are a multiple of splits, so that a stage is for the same split forever.
  int stages;
  bool bulk;  // kGrid: by bulk copies
  // kGrid: further warps, which fetch x; one with bulk copies, up to four without. Each fills every
  // producers-th stage. A power of two that divides splits, so that it divides the number of stages
  // where a stage is refilled within a step.
  int producers;
  bool marked;       // kGrid without bulk copies: x's words tell whether they have been written
  int form;          // index into kForms
  int number_bytes;  // sizeof(D)
  // Of a streamed matrix: pieces of a job in registers, in shared memory, and that are read in
  // every step, how many of these the L2 cache keeps, and slots for them.
  int held, resident, streamed, kept, slots;
  int x_at, z_at, ring_at, barriers_at;  // offsets in shared memory, in bytes
  int shared_bytes;
  // kGrid: neighbours that cut k, 1 if it is not cut. Ranks cut * i .. cut * i + cut - 1 are a
  // cluster. Number c of a cluster multiplies with the slices of cut c: those of ranks
  // cut_members() * c and following.
  int cut = 1;

  TSM_HOST_DEVICE int worker_threads() const { return workers * 32; }
  TSM_HOST_DEVICE int threads() const { return (workers + producers) * 32; }
  TSM_HOST_DEVICE int tiles() const { return units / kTile; }
  TSM_HOST_DEVICE int jobs() const { return tiles() * cut * row_groups * splits; }
  TSM_HOST_DEVICE int cut_members() const { return members / cut; }  // whose slices are a cut
  // Rows of z: those of whole row tiles. x has only `rows`, fewer than 8 in a small batch.
  TSM_HOST_DEVICE int z_rows() const { return row_groups * row_tiles * kRowTile; }
  // Workers that may have items, the first ones. With a streamed matrix, the others have jobs.
  TSM_HOST_DEVICE int item_warps() const { return streamed > 0 ? workers - jobs() : workers; }
  TSM_HOST_DEVICE int publishers() const {  // warps that have items
    const int needed = (rows * units / 2 + 31) / 32;
    return needed < item_warps() ? needed : item_warps();
  }
  TSM_HOST_DEVICE int64_t slice_bytes() const {
    return int64_t(slice_blocks) * rows * kTile * number_bytes;
  }
  TSM_HOST_DEVICE int groups() const { return chunks / pieces; }  // of a cut, if k is cut
  // Words from one counter to the next. If several producers per member poll, each counter has a
  // line of L2 of its own.
  TSM_HOST_DEVICE int counter_words() const { return producers > 1 ? 32 : 1; }
  // The first chunk of a round that a producer fetches. After it, it fetches every producers-th.
  TSM_HOST_DEVICE int first_chunk(int producer, uint32_t round) const {
    const uint32_t begin = round * uint32_t(chunks) % uint32_t(stages);  // the stage of chunk 0
    return int(uint32_t(producer) - begin) & (producers - 1);
  }
  TSM_HOST_DEVICE int chunk_blocks() const { return group * slice_blocks / pieces; }
  TSM_HOST_DEVICE int64_t chunk_bytes() const { return group * slice_bytes() / pieces; }
  TSM_HOST_DEVICE int piece_blocks() const { return slice_blocks / tiles() * kPieceBlocks; }
  TSM_HOST_DEVICE int64_t piece_bytes() const {
    return int64_t(products) * piece_blocks() * kTile * kTile * number_bytes;
  }
  TSM_HOST_DEVICE int64_t matrix_bytes() const {  // of all members, that are streamed
    return int64_t(members) * teams * jobs() * streamed * piece_bytes();
  }
  // Copies of x, for consecutive rounds.
  TSM_HOST_DEVICE int sides() const { return marked ? 4 : 2; }
  TSM_HOST_DEVICE int64_t exchange_bytes() const {
    return exchange == Exchange::kGrid ? sides() * slice_bytes() * members * teams : 0;
  }
  TSM_HOST_DEVICE int64_t counter_bytes() const {
    return exchange == Exchange::kGrid && !marked
               ? int64_t(teams) * cut * groups() * counter_words() * 4
               : 0;
  }
};

// The plan with the lowest estimate; members = 0 if there is none.
Plan plan_for(const Device& device, const LayerShape& layer);

// The plan without teams.
Plan steps_plan(const LayerShape& layer);

// Estimated cycles per step of all rows together.
double estimate(const Device& device, const LayerShape& layer, const Plan& plan);

// The plan of that rank among all that fit; 0 is the best estimate. members = 0 if there are fewer
// plans. For measurements.
Plan plan_ranked(const Device& device, const LayerShape& layer, int rank);

}  // namespace tsm::team
