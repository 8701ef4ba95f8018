// A thread block's part in its team: the matrix in shared memory, and the product of a step. The
// exchange of its x is in team_exchange.cuh.
//
// The product is z^T [units, rows] = A [units, K] x^T [K, rows] on tensor cores, one *job*
// (unit tile, rows, part of k) per warp. Within a block of k, lane q of each quad holds
// k = 4q .. 4q+3; within a unit tile, a lane holds the neighbours 2i and 2i+1. So every access to
// shared memory is contiguous.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/teams/streamed_matrix.cuh"
#include "kernels/cuda/train/teams/team_exchange.cuh"

namespace tsm::team {

// Division of numbers below 2^20 by one divisor, without the instructions of an integer division.
class Quotient {
 public:
  __device__ explicit Quotient(int divisor) : inverse(1.0f / float(divisor)) {}
  __device__ int of(int n) const { return int((float(n) + 0.5f) * inverse); }

 private:
  float inverse;
};

// D: type of the matrix and x. X: how x is exchanged. P: products per unit tile (forward: gates,
// backward: 1). NT: row tiles per warp. N: blocks of k per piece of a streamed matrix
// (streamed_matrix.cuh), 0 if all of it stays in shared memory. R: its pieces in registers. C:
// whether neighbours cut k (Plan::cut).
template <class D, Exchange X, int P, int NT, int N = 0, int R = 0, bool C = false>
class Member : public TeamExchange<D, X, (N > 0), C> {
  using Base = TeamExchange<D, X, (N > 0), C>;
  using Base::bulk;
  using Base::cut;
  using Base::cut_members;
  using Base::cuts;
  using Base::empty;
  using Base::full;
  using Base::lane;
  using Base::own_group;
  using Base::plan;
  using Base::rank;
  using Base::shared;
  using Base::sources;
  using Base::sums;
  using Base::sums_read;
  using Base::team_bytes;
  using Base::warp;
  using Base::workers_sync;

 public:
  using Operand = OperandOf<D>;
  using Four = typename Operand::Four;
  using Base::kAlone, Base::kCuts, Base::kGrid, Base::kStreams;
  using Streamed = StreamedMatrix<D, P, kStreams ? N : 1, R>;

  template <class Launch>
  __device__ Member(const Launch& launch, void* shared_memory)
      : Base(launch, shared_memory),
        memory(launch.matrix),
        has_job(warp >= plan.workers - plan.jobs() && warp < plan.workers),
        job(has_job ? warp - (plan.workers - plan.jobs()) : 0) {
    split = job % plan.splits;
    const int rest = job / plan.splits, tile = rest / plan.row_groups;
    const int row = (rest - tile * plan.row_groups) * NT * kRowTile;
    const int blocks = sources() * plan.slice_blocks;
    a = reinterpret_cast<const uint4*>(shared) + tile * P * blocks * kTileWords + lane;
    product_stride = blocks * kTileWords;
    // Lanes without a row read the last one: their sums are not used.
    x_lane = min(row + lane / 4, plan.rows - 1) * kRowBytes + lane % 4 * int(sizeof(Four));
    z_part = plan.tiles() * plan.z_rows() * kZStride;
    z_mine = (split % plan.parts * P * plan.tiles() + tile) * plan.z_rows() * kZStride +
             (row + lane % 4 * 2) * kZStride + lane / 4 * 2;
    if (kCuts) {
      owner = tile / plan.tiles();
      z_mine += ((cut * plan.splits - owner) * plan.tiles()) * plan.z_rows() * kZStride;
      own_group = rank / cut_members * plan.groups() + rank % cut_members / plan.group;
    }
  }

  // A warp with a job and without items: `work` is all that it does.
  __device__ bool only_multiplies() const { return kStreams && has_job; }

  // After this, members may exchange data.
  __device__ void start() const {
    if (threadIdx.x == 0 && !kAlone) {
      for (int i = 0; i < plan.stages; ++i) {
        ptx::barrier_init(full + i, kGrid && !bulk() ? 32 : 1);
        ptx::barrier_init(empty + i, plan.jobs() / plan.splits);
      }
      if (kCuts) {
        ptx::barrier_init(sums, 1);
        ptx::barrier_init(sums_read, plan.cut * plan.publishers());
      }
      uint64_t* ring = Streamed::ring_barriers(plan, shared);
      for (int i = 0; kStreams && i < plan.jobs() * plan.slots; ++i) ptx::barrier_init(ring + i, 1);
      ptx::barrier_init_fence();
    }
    __syncthreads();
    if (X == Exchange::kCluster || kCuts) ptx::cluster_sync();
  }
  // No member exits while another may still write into its shared memory.
  __device__ void finish() const {
    if (X == Exchange::kCluster || kCuts) ptx::cluster_sync();
  }

  // Fills the matrix: read(unit of the member, product, member of k, block of its slice, k in the
  // block, out) returns four consecutive k of two neighbouring units in `out`. If k is cut, units
  // of other members of the cluster lie before and after the member's own.
  template <class Read>
  __device__ void load_matrix(const Read& read) const {
    const auto of_block = by_block(read);
    if constexpr (kStreams) {
      Streamed::fill(plan, shared, memory, of_block);
    } else {
      constexpr int kReads = 8;  // tiles of a warp that are under way at a time
      const int blocks = sources() * plan.slice_blocks, parts = plan.tiles() * cuts() * P;
      const int warps = blockDim.x / 32;
      uint4* to = reinterpret_cast<uint4*>(shared) + lane;
      for (int part = 0, block = warp; part < parts;) {  // of the warp's next tile
        Four unit[kReads][2] = {};
        int at[kReads];
#pragma unroll
        for (int i = 0; i < kReads; ++i, block += warps) {
          for (; block >= blocks; block -= blocks) ++part;
          at[i] = part < parts ? part * blocks + block : -1;
          if (part < parts) of_block(part / P, block, part % P, lane, unit[i]);
        }
#pragma unroll
        for (int i = 0; i < kReads; ++i)
          if (at[i] >= 0) Operand::put(to + at[i] * kTileWords, Operand::words(unit[i]));
        for (; block >= blocks; block -= blocks) ++part;
      }
    }
  }

  // Called by workers: z [parts][products][tiles][rows][kZStride] = the partial sums of A x of that
  // round.
  __device__ void multiply(int round) {
    if (kCuts) return multiply_cut(round);
    float acc[P][NT][4] = {};
    const bool multiplies = has_job && !kStreams;
    if constexpr (!kStreams)
      if (multiplies) multiply_job(acc, round);
    add_up(acc, multiplies);
  }

  // All rounds of a warp that only multiplies.
  template <class Read>
  __device__ void work(int rounds, const Read& read) {
    typename Streamed::Piece held[R > 0 ? R : 1];
#pragma unroll
    for (int i = 0; i < R; ++i) held[i] = Streamed::piece_of(plan, job, i, by_block(read));
    Streamed matrix(plan, shared, memory, job);
    matrix.start(rounds);
    const int each = plan.chunk_blocks();
    uint32_t lap = split / plan.stages, stage = split - lap * plan.stages;
    for (int round = 0; round < rounds; ++round) {
      this->signal(round);
      float acc[P][NT][4] = {};
      multiply_streamed(acc, held, matrix, each, lap, stage);
      add_up(acc, true);
    }
  }

  // sum[p] += the parts of product p in z, at the offset of an item.
  __device__ void add_z(float2 (&sum)[P], int at) const {
    switch (plan.parts) {
      case 1:
        return add_parts<1>(sum, at);
      case 2:
        return add_parts<2>(sum, at);
      case 4:
        return add_parts<4>(sum, at);
      case 8:
        return add_parts<8>(sum, at);
      default:
        return add_parts<16>(sum, at);
    }
  }

 private:
  static constexpr int kTileWords = Operand::kWords * 32;   // per tile of the matrix
  static constexpr int kRowBytes = kTile * int(sizeof(D));  // per row of a block of x

  char* const memory;  // the streamed parts of all members' matrices
  // This warp's job.
  const bool has_job;
  const int job;
  int split, product_stride, x_lane, z_part, z_mine;
  int owner;  // of a cut: the neighbour that has the job's units
  const uint4* a;

  __device__ float* z() const { return reinterpret_cast<float*>(shared + plan.z_at); }

  // `read` of load_matrix by tile and block of k.
  template <class Read>
  __device__ auto by_block(const Read& read) const {
    return [this, &read, by_slice = Quotient(plan.slice_blocks)](int tile, int block, int product,
                                                                 int lane, Four(&unit)[2]) {
      const int from = by_slice.of(block);
      read(tile * kTile + lane / 4 * 2 - cut * plan.units, product, from + cut * cut_members,
           block - from * plan.slice_blocks, lane % 4 * 4, unit);
    };
  }

  // The tiles of the matrix for a block of k, read ahead.
  struct Tiles {
    typename Operand::Words of[P];
  };
  static constexpr bool kAhead = P * NT * Operand::kWords <= 15;
  __device__ typename Operand::Words tile(int p, int block) const {
    return Operand::get(a + p * product_stride + block * kTileWords);
  }
  __device__ void load_tiles(Tiles& tiles, int block) const {
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (kAhead) tiles.of[p] = tile(p, block);
  }

  // acc += every step-th block from `block` on; `tiles` holds the tiles of the first one. The
  // operands of the next block are loaded as soon as those of this one have been multiplied. With
  // many sums there are no registers left for that, but then the products hide the reads.
  __device__ void multiply_blocks(float (&acc)[P][NT][4], Tiles& tiles, const char* x, int block,
                                  int end, int step, int block_bytes) const {
    const auto rows_of = [&](int n, int at) {
      return *reinterpret_cast<const Four*>(x + at * block_bytes + n * kRowTile * kRowBytes);
    };
    if (block >= end) return;
    Four rows[NT];
#pragma unroll
    for (int n = 0; n < NT; ++n) rows[n] = rows_of(n, block);
#pragma unroll 2
    for (int next = block + step;; block = next, next += step) {
      const bool more = next < end;
      typename Operand::X now_rows[NT];
#pragma unroll
      for (int n = 0; n < NT; ++n) now_rows[n] = rows[n];
#pragma unroll
      for (int p = 0; p < P; ++p) {
        const typename Operand::A now = kAhead ? tiles.of[p] : tile(p, block);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          Operand::multiply(acc[p][n], now, now_rows[n]);
          if (p == P - 1 && more) rows[n] = rows_of(n, next);
        }
        if (kAhead && more) tiles.of[p] = tile(p, next);
      }
      if (!more) break;
    }
  }

  // acc += this warp's part of A x.
  __device__ void multiply_job(float (&acc)[P][NT][4], int round) {
    const int block_bytes = plan.rows * kRowBytes, blocks = sources() * plan.slice_blocks;
    Tiles first;
    if (kGrid) {  // every splits-th chunk; a stage is filled for one split only (Plan::stages)
      const int each = plan.chunk_blocks();
      const uint32_t turn = uint32_t(round) * plan.chunks + split;
      uint32_t lap = turn / plan.stages, stage = turn - lap * plan.stages;
      for (int chunk = split; chunk < plan.chunks; chunk += plan.splits) {
        const int at = chunk * each;
        load_tiles(first, at);
        ptx::barrier_wait(full + stage, lap & 1);
        const char* x = shared + plan.x_at + (int(stage) * each - at) * block_bytes + x_lane;
        multiply_blocks(acc, first, x, at, min(at + each, blocks), 1, block_bytes);
        leave(lap, stage);
      }
    } else {  // every splits-th block
      const char* x = shared + plan.x_at + x_lane;
      load_tiles(first, split);
      if (X == Exchange::kCluster) {
        ptx::barrier_wait(full + (round & 1), (round >> 1) & 1);
        x += (round & 1) * team_bytes;
      }
      multiply_blocks(acc, first, x, split, blocks, plan.splits, block_bytes);
    }
  }

  // The warp has read the chunk in that stage, and goes on to its next one.
  __device__ void leave(uint32_t& lap, uint32_t& stage) const {
    __syncwarp();
    if (lane == 0) ptx::barrier_arrive(empty + stage);
    stage += plan.splits;
    for (; stage >= plan.stages; stage -= plan.stages) ++lap;
  }

  // The same with a streamed matrix, in the same order of chunks: first the pieces in registers.
  // `each`: blocks per chunk; lap and stage: of the warp's next chunk. With one product, two sums
  // alternate, because each waits for its last result.
  template <class Held>
  __device__ void multiply_streamed(float (&acc)[P][NT][4], const Held& held, Streamed& matrix,
                                    int each, uint32_t& lap, uint32_t& stage) const {
    using Piece = typename Streamed::Piece;
    struct Rows {
      typename Operand::X of[N][NT];
    };
    const int block_bytes = plan.rows * kRowBytes;
    float other[NT][4] = {};
    const char* x = nullptr;
    int left = 0;  // blocks of the chunk
    const auto next_rows = [&] {
      if (left == 0) {
        ptx::barrier_wait_in_block(full + stage, lap & 1);
        left = each;
        x = shared + plan.x_at + int(stage) * each * block_bytes + x_lane;
      }
      Rows rows;
#pragma unroll
      for (int n = 0; n < N; ++n, x += block_bytes)
#pragma unroll
        for (int i = 0; i < NT; ++i)
          rows.of[n][i] = *reinterpret_cast<const Four*>(x + i * kRowTile * kRowBytes);
      return rows;
    };
    const auto multiply_piece = [&](const Piece& piece, const Rows& rows) {
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
          for (int i = 0; i < NT; ++i)
            Operand::multiply(P == 1 && n % 2 ? other[i] : acc[p][i], piece.tile[n][p],
                              rows.of[n][i]);
      left -= N;
      if (left == 0) leave(lap, stage);
    };
    matrix.rewind();
#pragma unroll
    for (int i = 0; i < R; ++i) multiply_piece(held[i], next_rows());
    for (int i = plan.resident + plan.streamed; i > 0; --i) {
      const Rows rows = next_rows();
      multiply_piece(matrix.take(), rows);
    }
#pragma unroll
    for (int i = 0; i < NT; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[0][i][j] += other[i][j];
  }

  // multiply() if k is cut: a warp sends its sums into the z of the neighbour that has the units
  // (itself, at times), where `sums` counts the bytes. There are no other barriers between warps:
  //
  // - z is not overwritten too early. Sums of round r are sent after phase r of sums_read, when all
  //   warps of the cluster that have items have signalled round r, and so read the sums of r - 1.
  // - No warp misses a phase. A warp with items sees phase r of `sums` before it signals r + 1, and
  //   bytes of r + 1 are sent only after that. A warp with a job sees phase r of sums_read before
  //   it sends, and phase r + 1 needs the receiver's signal of r + 1, after it got the sums of r.
  // - x of round r is not overwritten, by that of r + 2, before all members have fetched it. A
  //   member signals r + 1 after its own warps have multiplied all chunks of r. When it has the
  //   sums of r + 1, all members have signalled r + 1.
  // - A warp arrives once per round at the producer's barrier. Before it signals r + 1, it has
  //   multiplied a chunk of r (every split has one), or it has the sums of r.
  __device__ void multiply_cut(int round) {
    if (has_job) {
      float acc[P][NT][4] = {};
      ptx::barrier_wait(sums_read, round & 1);
      multiply_job(acc, round);
      const uint32_t to = ptx::in_member(z() + z_mine, owner);
      const uint32_t arrived = ptx::in_member(sums, owner);
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          ptx::send(to + (n * kRowTile + r) * kZStride * 4,
                    uint2{__float_as_uint(acc[0][n][r]), __float_as_uint(acc[0][n][r + 2])},
                    arrived);
    }
    if (warp < plan.publishers()) ptx::barrier_wait(sums, round & 1);
  }

  // Adds the warps' sums up in the parts of z; `mine`: whether this one has any.
  __device__ void add_up(const float (&acc)[P][NT][4], bool mine) const {
    // Wait until the cell of the last round has read z and, in a grid, until all workers have read
    // x, which z overlays. kAlone has already passed a barrier since then.
    if (!kAlone) workers_sync();
    if (mine && split < plan.parts) put<false>(acc);
    workers_sync();
    for (int first = plan.parts; first < plan.splits; first += plan.parts) {
      if (mine && split >= first && split < first + plan.parts) put<true>(acc);
      workers_sync();
    }
  }

  // Writes this warp's sums into its part of z, or adds them to it.
  template <bool kAdd>
  __device__ void put(const float (&acc)[P][NT][4]) const {
    float* to = z() + z_mine;
    const auto at = [&](int p, int n, int r) {
      return reinterpret_cast<float2*>(to + p * z_part + (n * kRowTile + r) * kZStride);
    };
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float2 before[NT][2] = {};
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          if (kAdd) before[n][r] = *at(p, n, r);
#pragma unroll
      for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          *at(p, n, r) = {before[n][r].x + acc[p][n][r], before[n][r].y + acc[p][n][r + 2]};
    }
  }

  template <int M>
  __device__ void add_parts(float2 (&sum)[P], int at) const {
    const float* from = z() + at;
#pragma unroll
    for (int s = 0; s < M; ++s)
#pragma unroll
      for (int p = 0; p < P; ++p) {
        const float2 two = *reinterpret_cast<const float2*>(from + (s * P + p) * z_part);
        sum[p].x += two.x;
        sum[p].y += two.y;
      }
  }
};

}  // namespace tsm::team
