// A thread block's part in its team (plan.h): where it is, and the exchange of x (h, or dz in
// backward) between members.
//
// The first warps, the workers, multiply and run the cell (team_member.cuh; if the matrix is
// streamed, each does one of the two). If x goes through L2,
// further warps, the producers, fetch it, so that the workers never wait for a copy that could have
// started earlier. With bulk copies one is enough; without, each copies its share of the chunks.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/operands.cuh"
#include "kernels/cuda/train/teams/plan.h"

namespace tsm::team {

enum Barrier { kWorkersBarrier = 1, kSliceWritten = 2 };

// D: type of x. X: how it is exchanged. S: whether the matrix is streamed. C: whether neighbours
// cut k (Plan::cut).
template <class D, Exchange X, bool S, bool C>
class TeamExchange {
 public:
  using Two = typename OperandOf<D>::Two;
  static constexpr bool kAlone = X == Exchange::kAlone, kGrid = X == Exchange::kGrid;
  static constexpr bool kStreams = S, kCuts = C;
  const int team, rank, first_unit;

  template <class Launch>
  __device__ TeamExchange(const Launch& launch, void* shared_memory)
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
        counters(launch.counters + int64_t(team) * cuts() * plan.groups() * plan.counter_words()) {}

  __device__ bool is_producer() const { return kGrid && warp >= plan.workers; }

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
  // Called by all workers when their part of the slice, if they have one, is written. In a grid
  // with counters, each warp that has a part counts for itself, so that the release does not wait
  // for other stores.
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

 protected:
  const Plan& plan;
  char* const shared;
  const int lane, warp, slice_bytes, team_bytes;
  uint64_t* const full;       // [stages]: a chunk has arrived
  uint64_t* const empty;      // [stages]: all workers of its split have read it
  uint64_t* const sums;       // of a cut: the sums of a round are in z
  uint64_t* const sums_read;  // of a cut: all neighbours have read those of the last round
  const int cut;              // this member's, 0 if k is not cut
  const int cut_members;      // whose slices are a cut, 0 if k is not cut
  int own_group;              // of a cut: of this member's slice; set by the Member

  __device__ int cuts() const { return kCuts ? plan.cut : 1; }
  __device__ int sources() const { return kCuts ? cut_members : plan.members; }  // of x, as read
  __device__ bool bulk() const { return ptx::kHopper && (kCuts || plan.bulk); }
  __device__ void workers_sync() const { ptx::sync(kWorkersBarrier, plan.worker_threads()); }

 private:
  char* const exchange;      // [Plan::sides()][members]: slices of this team
  uint32_t* const counters;  // [groups]: warps that have published their part, over all rounds

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
};

}  // namespace tsm::team
