// A thread block's part in its team (plan.h): the matrix in shared memory, the product, and the
// exchange of x (h, or dz in backward) between members.
//
// The first warps, the workers, multiply and run the cell. If x goes through L2, further warps, the
// producers, fetch it, so that the workers never wait for a copy that could have started earlier.
// With bulk copies one is enough; without, each copies its share of the chunks.
//
// The product is z^T [units, rows] = A [units, K] x^T [K, rows] on tensor cores, one *job*
// (unit tile, rows, part of k) per warp. Within a block of k, lane q of each quad holds
// k = 4q .. 4q+3; within a unit tile, a lane holds the neighbours 2i and 2i+1. So every access to
// shared memory is contiguous.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/streamed_matrix.cuh"

namespace tsm::team {

enum Barrier { kWorkersBarrier = 1, kSliceWritten = 2 };

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
// (streamed_matrix.cuh), 0 if all of it stays in shared memory. C: whether neighbours cut k
// (Plan::cut).
template <class D, Exchange X, int P, int NT, int N = 0, bool C = false>
class Member {
 public:
  using Operand = OperandOf<D>;
  using Two = typename Operand::Two;
  using Four = typename Operand::Four;
  static constexpr bool kAlone = X == Exchange::kAlone, kGrid = X == Exchange::kGrid;
  static constexpr bool kStreams = N > 0, kCuts = C;
  using Streamed = StreamedMatrix<D, P, kStreams ? N : 1>;
  const int team, rank, first_unit;

  template <class Launch>
  __device__ Member(const Launch& launch, void* shared_memory)
      : team(blockIdx.x / launch.plan.members),
        rank(blockIdx.x % launch.plan.members),
        first_unit(rank * launch.plan.units),
        plan(launch.plan),
        shared(static_cast<char*>(shared_memory)),
        lane(threadIdx.x % 32),
        warp(threadIdx.x / 32),
        slice_bytes(int(plan.slice_bytes())),
        team_bytes(slice_bytes * plan.members),
        full(reinterpret_cast<uint64_t*>(shared + plan.barriers_at)),
        empty(full + plan.stages),
        sums(empty + plan.stages),
        sums_read(sums + 1),
        cut(kCuts ? rank % plan.cut : 0),
        cut_members(kCuts ? plan.cut_members() : 0),
        exchange(launch.exchange + int64_t(plan.sides()) * team_bytes * team),
        counters(launch.counters + int64_t(team) * cuts() * plan.groups() * plan.counter_words()),
        memory(launch.matrix),
        has_job(warp >= plan.workers - plan.jobs() && warp < plan.workers),
        job(has_job ? warp - (plan.workers - plan.jobs()) : 0),
        matrix(plan, shared, memory, job) {
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

  __device__ bool is_producer() const { return kGrid && warp >= plan.workers; }

  // After this, members may exchange data. `rounds` products will follow.
  __device__ void start(int rounds) {
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
    if (kStreams && has_job) matrix.start(rounds);
  }
  // No member exits while another may still write into its shared memory.
  __device__ void finish() const {
    if (X == Exchange::kCluster || kCuts) ptx::cluster_sync();
  }

  // Called by workers: publishes two neighbouring numbers in each of the M parts of this member's
  // slice. `at` is their offset in a part, in bytes.
  template <int M>
  __device__ void publish(int round, int at, const Two (&two)[M]) const {
    const int part = slice_bytes / M, side = (round & (kGrid ? plan.sides() - 1 : 1)) * team_bytes;
    const int mine = rank * slice_bytes + at;
    if (X == Exchange::kCluster) {
      const char* here = shared + plan.x_at + side + mine;
      const uint64_t* barrier = full + (round & 1);
#pragma unroll 4
      for (int m = 0; m < plan.members; ++m) {
        const uint32_t to = ptx::in_member(here, m), arrived = ptx::in_member(barrier, m);
#pragma unroll
        for (int i = 0; i < M; ++i) ptx::send(to + i * part, two[i], arrived);
      }
    } else if (marked()) {
      char* later = exchange + ((round + 2) & 3) * team_bytes + mine;
#pragma unroll
      for (int i = 0; i < M; ++i)
        ptx::store_relaxed(exchange + side + mine + i * part, word(two[i]));
#pragma unroll
      for (int i = 0; i < M; ++i) ptx::store_relaxed(later + i * part, kUnwritten);
    } else {
      char* to = kAlone ? shared + plan.x_at + at : exchange + side + mine;
#pragma unroll
      for (int i = 0; i < M; ++i) *reinterpret_cast<Two*>(to + i * part) = two[i];
    }
  }
  // Called by workers when their part of the slice is written. In a grid with counters, each warp
  // that has a part counts for itself, so that the release does not wait for other stores.
  __device__ void signal(int round) const {
    if (kAlone) {
      workers_sync();
    } else if (kGrid) {
      __syncwarp();
      if (marked()) {
        ptx::arrive(kSliceWritten, plan.threads());
        if (warp < plan.publishers()) ptx::acquire();  // see `marked`
        return;
      }
      if (lane == 0 && warp < plan.publishers())
        ptx::add_release(counter_of(kCuts ? own_group : rank / plan.group));
      ptx::arrive(kSliceWritten, plan.threads());
      if (kCuts) {
        if (threadIdx.x == 0)
          ptx::barrier_expect(sums, plan.parts * plan.units * plan.z_rows() * 4);
        if (warp < plan.publishers() && lane < plan.cut)  // z has been read
          ptx::barrier_arrive_in_member(ptx::in_member(sums_read, lane));
      }
    } else if (threadIdx.x == 0) {
      ptx::barrier_expect(full + (round & 1), uint32_t(team_bytes));
    }
  }

  // Called by producers: fetches the slices of a round as they are published. Bulk copies are
  // started by one lane per chunk; without them, all lanes copy one chunk after the other. A stage
  // is always filled by the same producer (Plan::producers), which has seen when it was empty.
  __device__ void load_chunks(int round) const {
    ptx::sync(kSliceWritten, plan.threads());  // the workers have also read z
    const char* from = exchange + int64_t(round & (plan.sides() - 1)) * team_bytes;
    if (kCuts) from += cut * cut_members * slice_bytes;
    const int first_group = kCuts ? cut * plan.groups() : 0;
    const int chunk_bytes = int(plan.chunk_bytes()), producers = plan.producers;
    const int mine = plan.first_chunk(warp - plan.workers, uint32_t(round));
    const int count_mine = (plan.chunks - mine + producers - 1) / producers;
    if (marked()) {
      for (int chunk = mine; chunk < plan.chunks; chunk += producers) {
        const uint32_t turn = uint32_t(round) * plan.chunks + chunk;
        const int at = chunk * chunk_bytes;
        copy_marked(turn % plan.stages, turn / plan.stages, from + at,
                    min(chunk_bytes, team_bytes - at));
      }
      ptx::acquire();
      __syncwarp();
      return;
    }
    for (int first = 0; first < count_mine; first += 32) {  // one lane per chunk
      const int chunk = mine + (first + lane) * producers, end = min(32, count_mine - first);
      const int group = chunk / plan.pieces;
      const int members = min(plan.group, sources() - group * plan.group);
      const int bytes = members * slice_bytes / plan.pieces;
      const uint32_t expected = uint32_t(members) * plan.publishers() * uint32_t(round + 1);
      const uint32_t turn = uint32_t(round) * plan.chunks + chunk;
      const uint32_t stage = turn % plan.stages, lap = turn / plan.stages;
      bool there = false;
      for (int next = 0; next < end;) {
        if (!there && lane < end &&
            ptx::peek_acquire(counter_of(first_group + group)) >= expected) {
          there = true;
          if (bulk()) ptx::proxy_fence();  // x and z were written with ordinary stores
        }
        const uint32_t missing = ~__ballot_sync(~0u, there) >> next;
        // The number of consecutive chunks that have arrived; each has its own stage.
        const int count = min(missing ? __ffs(missing) - 1 : 32 - next, plan.stages);
        if (bulk()) {
          if (lane >= next && lane < next + count) {
            if (lap > 0) ptx::barrier_wait(empty + stage, (lap - 1) & 1);
            ptx::barrier_expect(full + stage, bytes);
            ptx::copy_from_global(shared + plan.x_at + stage * chunk_bytes,
                                  from + int64_t(chunk) * chunk_bytes, bytes, full + stage);
          }
        } else {
          __syncwarp();  // all lanes may read what one has seen to be there
          for (int i = next; i < next + count; ++i)
            copy_chunk(__shfl_sync(~0u, stage, i), __shfl_sync(~0u, lap, i),
                       from + int64_t(__shfl_sync(~0u, chunk, i)) * chunk_bytes,
                       __shfl_sync(~0u, bytes, i));
        }
        next += count;
        __syncwarp();
      }
    }
  }

  // Fills the matrix: read(unit of the member, product, member of k, block of its slice, k in the
  // block, out) returns four consecutive k of two neighbouring units in `out`. If k is cut, units
  // of other members of the cluster lie before and after the member's own.
  template <class Read>
  __device__ void load_matrix(const Read& read) const {
    const Quotient by_slice(plan.slice_blocks);
    const auto of_block = [&](int tile, int block, int product, int lane, Four(&unit)[2]) {
      const int from = by_slice.of(block);
      read(tile * kTile + lane / 4 * 2 - cut * plan.units, product, from + cut * cut_members,
           block - from * plan.slice_blocks, lane % 4 * 4, unit);
    };
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
          if (at[i] >= 0) Operand::put(to + at[i] * kTileWords, unit[i]);
        for (; block >= blocks; block -= blocks) ++part;
      }
    }
  }

  // Called by workers: z [parts][products][tiles][rows][kZStride] = the partial sums of A x of that
  // round.
  __device__ void multiply(int round) {
    if (kCuts) return multiply_cut(round);
    float acc[P][NT][4] = {};
    if (has_job) multiply_job(acc, round);
    // Wait until the cell of the last round has read z and, in a grid, until all workers have read
    // x, which z overlays. kAlone has already passed a barrier since then.
    if (!kAlone) workers_sync();
    if (has_job && split < plan.parts) put<false>(acc);
    workers_sync();
    for (int first = plan.parts; first < plan.splits; first += plan.parts) {
      if (has_job && split >= first && split < first + plan.parts) put<true>(acc);
      workers_sync();
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

  const Plan& plan;
  char* const shared;
  const int lane, warp, slice_bytes, team_bytes;
  uint64_t* const full;       // [stages]: a chunk has arrived
  uint64_t* const empty;      // [stages]: all workers of its split have read it
  uint64_t* const sums;       // of a cut: the sums of a round are in z
  uint64_t* const sums_read;  // of a cut: all neighbours have read those of the last round
  const int cut;              // this member's, 0 if k is not cut
  const int cut_members;      // whose slices are a cut, 0 if k is not cut
  char* const exchange;       // [Plan::sides()][members]: slices of this team
  uint32_t* const counters;   // [groups]: warps that have published their part, over all rounds
  char* const memory;         // the streamed parts of all members' matrices
  // This warp's job.
  const bool has_job;
  const int job;
  Streamed matrix;  // used if kStreams
  int split, product_stride, x_lane, z_part, z_mine;
  int owner, own_group;  // of a cut: the neighbour that has the job's units; of this member's slice
  const uint4* a;

  __device__ int cuts() const { return kCuts ? plan.cut : 1; }
  __device__ int sources() const { return kCuts ? cut_members : plan.members; }  // of x, as read
  __device__ bool bulk() const { return ptx::kHopper && (kCuts || plan.bulk); }

  // Words of x that tell by themselves whether they have been written: there are no counters, and
  // no member waits for its stores before it announces them. `kUnwritten` is no pair of numbers
  // (NaN is stored as 0x7fff). x has four copies (Plan::sides): with round r, a thread also resets
  // its words of round r + 2, in the copy of r - 2, which all members have read. Its fence after
  // that, and the producers' after reading r + 1, order the reset before the first look at r + 2.
  static constexpr uint32_t kUnwritten = 0xffffffffu;
  __device__ bool marked() const {
    return kGrid && !kStreams && !kCuts && sizeof(D) == 2 && plan.marked;
  }
  __device__ static uint32_t word(uint32_t two) { return two; }
  __device__ static uint32_t word(uint2 two) { return two.x; }  // compiles; float x is not marked

  __device__ void copy_marked(uint32_t stage, uint32_t lap, const char* from, int bytes) const {
    constexpr int kBatch = 16;  // words of 16 bytes per lane that are under way at a time
    if (lap > 0) ptx::barrier_wait(empty + stage, (lap - 1) & 1);
    char* to = shared + plan.x_at + int(stage) * int(plan.chunk_bytes());
    for (int first = lane * 16; first < bytes; first += kBatch * 32 * 16) {
      const int count = (bytes - first + 32 * 16 - 1) / (32 * 16);
      uint32_t missing = count < kBatch ? (1u << count) - 1 : (1u << kBatch) - 1;
      uint4 four[kBatch] = {};
      while (missing) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          if (missing >> i & 1) four[i] = ptx::peek_four(from + first + i * 32 * 16);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const uint4& f = four[i];
          if ((missing >> i & 1) && f.x != kUnwritten && f.y != kUnwritten && f.z != kUnwritten &&
              f.w != kUnwritten) {
            *reinterpret_cast<uint4*>(to + first + i * 32 * 16) = f;
            missing &= ~(1u << i);
          }
        }
      }
    }
    ptx::barrier_arrive(full + stage);
  }

  __device__ uint32_t* counter_of(int group) const {
    return counters + group * plan.counter_words();
  }

  // Copies a chunk into a stage, by all lanes of a producer: each has every 32nd word of 16
  // bytes.
  __device__ void copy_chunk(uint32_t stage, uint32_t lap, const char* from, int bytes) const {
    if (lap > 0) ptx::barrier_wait(empty + stage, (lap - 1) & 1);
    const uint32_t to = ptx::shared_address(shared + plan.x_at + stage * int(plan.chunk_bytes()));
#pragma unroll 8
    for (int at = lane * 16; at < bytes; at += 32 * 16) cuda::copy_async(to + at, from + at);
    ptx::barrier_arrive_after_copies(full + stage);
  }

  __device__ float* z() const { return reinterpret_cast<float*>(shared + plan.z_at); }
  __device__ void workers_sync() const { ptx::sync(kWorkersBarrier, plan.worker_threads()); }

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
    if constexpr (kStreams) {
      multiply_streamed(acc, round);
    } else {
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
          __syncwarp();
          if (lane == 0) ptx::barrier_arrive(empty + stage);
          stage += plan.splits;
          for (; stage >= plan.stages; stage -= plan.stages) ++lap;
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
  }

  // The same, in the same order of chunks. With one product, two sums alternate, because each waits
  // for its last result.
  __device__ void multiply_streamed(float (&acc)[P][NT][4], int round) {
    const int each = plan.chunk_blocks(), block_bytes = plan.rows * kRowBytes;
    const uint32_t turn = uint32_t(round) * plan.chunks + split;
    uint32_t lap = turn / plan.stages, stage = turn - lap * plan.stages;
    typename Streamed::Piece next;
    float other[NT][4] = {};
    matrix.rewind();
    matrix.take(next);
    for (int chunk = split; chunk < plan.chunks; chunk += plan.splits) {
      ptx::barrier_wait(full + stage, lap & 1);
      const char* x = shared + plan.x_at + int(stage) * each * block_bytes + x_lane;
      for (int block = 0; block < each; block += N) {
        typename Operand::X rows[N][NT];
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int i = 0; i < NT; ++i)
            rows[n][i] = *reinterpret_cast<const Four*>(x + (block + n) * block_bytes +
                                                        i * kRowTile * kRowBytes);
        const typename Streamed::Piece now = next;
        if (block + N < each || chunk + plan.splits < plan.chunks) matrix.take(next);
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int p = 0; p < P; ++p)
#pragma unroll
            for (int i = 0; i < NT; ++i)
              Operand::multiply(P == 1 && n % 2 ? other[i] : acc[p][i], now.tile[n][p], rows[n][i]);
      }
      __syncwarp();
      if (lane == 0) ptx::barrier_arrive(empty + stage);
      stage += plan.splits;
      for (; stage >= plan.stages; stage -= plan.stages) ++lap;
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
