// A warp's part of a matrix that shared memory cannot hold. The first of its *pieces* are in the
// warp's registers, some stay in shared memory; the others are copied from global memory in every
// step, into a ring of slots that belongs to this warp alone. The matrix does not depend on x, so
// the copies of the next step are under way while the warp waits for x.
//
// A piece is N x P tiles: N blocks of k and P products (forward: kPieceBlocks blocks, all gates;
// backward: that many times the cell's gates, one product). It is so large because a warp's wait
// and request take as long as most of its work. Streamed pieces are spread evenly among the
// resident ones, so that the memory is never idle. If the L2 cache cannot hold all of them, some
// stay there from one step to the next; the others, evenly among them, are the first that it
// evicts. Otherwise each would evict the one that is needed soonest.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/operands.cuh"
#include "kernels/cuda/train/teams/plan.h"

namespace tsm::team {

// R: pieces in registers (held_pieces), which Member::work has and multiplies first.
template <class D, int P, int N, int R>
class StreamedMatrix {
 public:
  using Operand = OperandOf<D>;
  struct Piece {
    typename Operand::Words tile[N][P];
  };

  // `memory`: Plan::matrix_bytes() of global memory.
  __device__ StreamedMatrix(const Plan& plan, char* shared, char* memory, int job)
      : plan(plan),
        lane(threadIdx.x % 32),
        all(plan.resident + plan.streamed),
        resident(words(shared) + job * plan.resident * kWords + lane),
        slots(words(shared + plan.ring_at) + job * plan.slots * kWords + lane),
        full(ring_barriers(plan, shared) + job * plan.slots),
        streamed(of_job(plan, memory, job)) {}

  __device__ static uint64_t* ring_barriers(const Plan& plan, char* shared) {
    return reinterpret_cast<uint64_t*>(shared + plan.barriers_at) + 2 * plan.stages;
  }

  // Piece number `number` of a job. read(tile, block of k, product, lane, out) as in
  // Member::load_matrix.
  template <class Read>
  __device__ static Piece piece_of(const Plan& plan, int job, int number, const Read& read) {
    const int each = plan.chunk_blocks();
    const int tile = job / plan.splits, split = job - tile * plan.splits;
    const int turn = number * N / each, chunk = split + turn * plan.splits;
    const int block = chunk * each + number * N - turn * each;
    typename Operand::Four unit[N][P][2] = {};
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int p = 0; p < P; ++p) read(tile, block + n, p, int(threadIdx.x % 32), unit[n][p]);
    Piece piece;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int p = 0; p < P; ++p) piece.tile[n][p] = Operand::words(unit[n][p]);
    return piece;
  }

  // Called by all threads: writes the pieces of all jobs that are not in registers to their places.
  template <class Read>
  __device__ static void fill(const Plan& plan, char* shared, char* memory, const Read& read) {
    const int all = plan.resident + plan.streamed, lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < plan.jobs() * all; i += blockDim.x / 32) {
      const int job = i / all, number = i - job * all;
      const int before = number * plan.streamed / all;  // streamed pieces
      const bool streams = (number + 1) * plan.streamed / all > before;
      uint4* to = streams ? words(of_job(plan, memory, job)) + before * kWords
                          : words(shared) + (job * plan.resident + number - before) * kWords;
      const Piece piece = piece_of(plan, job, R + number, read);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int p = 0; p < P; ++p)
          Operand::put(to + (n * P + p) * kTileWords + lane, piece.tile[n][p]);
    }
  }

  // Called by the job's warp after a barrier that follows `fill`: `rounds` products will follow.
  __device__ void start(int rounds) {
    left = rounds * plan.streamed;
    kept = ptx::kept_in_cache(), not_kept = ptx::not_kept_in_cache();
    ptx::proxy_fence();  // the pieces were written with ordinary stores
    for (int i = 0; i < plan.slots; ++i) request(i);
  }

  // Starts a product, which takes all pieces but those in registers in turn.
  __device__ void rewind() { here = debt = 0; }

  __device__ Piece take() {
    const uint4* from = resident + here;
    debt += plan.streamed;
    const bool streams = debt >= all;  // the same as in `fill`
    if (streams) {
      debt -= all;
      ptx::barrier_wait_in_block(full + slot, parity);
      from = slots + slot * kWords;
    } else {
      here += kWords;
    }
    Piece piece;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int p = 0; p < P; ++p) piece.tile[n][p] = Operand::get(from + (n * P + p) * kTileWords);
    if (streams) {
      // Orders the reads of all lanes before the request of lane 0, and so before the copy's
      // writes.
      __syncwarp();
      request(slot);
      if (++slot == plan.slots) slot = 0, parity ^= 1;
    }
    return piece;
  }

 private:
  static constexpr int kTileWords = Operand::kWords * 32, kWords = N * P * kTileWords;

  const Plan& plan;
  const int lane, all;
  const uint4 *const resident, *const slots;
  uint64_t* const full;  // [slots]: a piece has arrived
  const char* const streamed;
  int left = 0;             // pieces to request until the last product
  int next = 0;             // the streamed piece that is requested next
  int kept_debt = 0;        // as `debt`, for the pieces that the cache keeps
  uint64_t kept, not_kept;  // cache policies
  int here = 0, debt = 0;   // of this product: words of resident pieces; see `fill`
  int slot = 0;             // that is read next
  uint32_t parity = 0;      // of the times that it was filled

  __device__ static uint4* words(char* p) { return reinterpret_cast<uint4*>(p); }
  __device__ static char* of_job(const Plan& plan, char* memory, int job) {
    return memory + (int64_t(blockIdx.x) * plan.jobs() + job) * plan.streamed * kWords * 16;
  }
  __device__ void request(int to) {
    if (left == 0) return;
    --left;
    kept_debt += plan.kept;
    const bool keeps = kept_debt >= plan.streamed;
    if (keeps) kept_debt -= plan.streamed;
    if (lane == 0) {
      ptx::barrier_expect(full + to, kWords * 16);
      ptx::copy_from_global(const_cast<uint4*>(slots + to * kWords),
                            streamed + int64_t(next) * kWords * 16, kWords * 16, full + to,
                            keeps ? kept : not_kept);
    }
    if (++next == plan.streamed) next = 0;
  }
};

}  // namespace tsm::team
