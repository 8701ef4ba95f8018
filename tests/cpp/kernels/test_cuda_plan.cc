// A plan covers its layer, fits the device, and its regions of shared memory do not overlap.
#include <algorithm>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/train/teams/plan.h"
#include "support/check.h"

using namespace tsm::team;

namespace {

const Device kHopper{132, 232448, 9, 16};

// A worker that waits for a chunk only knows the parity of the stage's fill count. So the previous
// fill must already be complete: either it belongs to an earlier step, or the worker has read it
// itself.
void check_stages(const Plan& p) {
  struct Filling {
    int step, split;
  };
  std::vector<Filling> last(size_t(p.stages), {-1, 0});
  int turn = 0;
  for (int step = 0; step < 4; ++step)
    for (int chunk = 0; chunk < p.chunks; ++chunk, ++turn) {
      Filling& before = last[size_t(turn % p.stages)];
      const Filling now{step, chunk % p.splits};
      CHECK((before.step < now.step || before.split == now.split));
      before = now;
    }
  // Every chunk has one producer, and every stage always the same.
  for (uint32_t step = 0; step < 5; ++step) {
    int fetched = 0;
    for (int producer = 0; producer < p.producers; ++producer)
      for (int chunk = p.first_chunk(producer, step); chunk < p.chunks; chunk += p.producers) {
        const int stage = (int(step) * p.chunks + chunk) % p.stages;
        CHECK((chunk >= 0 && stage % p.producers == producer));
        ++fetched;
      }
    CHECK(fetched == p.chunks);
  }
}

// Each warp has a tile of units, the lanes cover all units of all rows, and both buffers of x fit.
void check_registers(const Plan& p, const LayerShape& layer) {
  const Form& form = kForms[p.form];
  CHECK((p.members == 1 && p.number_bytes == layer.number_bytes));
  CHECK(is_compiled(form, p.number_bytes));
  CHECK((p.units >= layer.H && p.units - kTile < layer.H));
  CHECK((p.workers == p.tiles() && p.workers <= form.warps));
  CHECK(p.rows * p.units == p.worker_threads());
  CHECK((int64_t(p.teams) * p.rows >= layer.B && int64_t(p.teams - 1) * p.rows < layer.B));
  const int k = form.warps * (layer.backward ? layer.gates : 1) * kTile;
  const int held = register_tiles(form, layer.gates, layer.backward, p.number_bytes);
  CHECK((held > 0 && held * 2 * p.number_bytes < (form.warps > 8 ? 168 : 255)));
  const int tiles = p.workers * (layer.gates * form.warps - held) * kTile * kTile * p.number_bytes;
  CHECK(p.shared_bytes >= 2 * p.rows * k * p.number_bytes + tiles);
}

// The jobs' pieces are the whole matrix, one launch takes all rows, and the regions of shared
// memory are in this order: resident pieces, slots, x (which z overlays), barriers.
void check_streamed(const Plan& p, const LayerShape& layer) {
  CHECK((kForms[p.form].streams && p.row_groups == 1 && p.pieces == 1));
  CHECK((p.members % p.group == 0 && p.chunks % p.splits == 0));
  CHECK(int64_t(p.members - p.group * p.splits) * p.units < layer.H);
  CHECK((int64_t(p.teams) * p.rows >= layer.B && p.members * p.teams <= kHopper.blocks));
  const int pieces = p.held + p.resident + p.streamed;
  const int blocks = pieces * p.piece_blocks();  // of k of a job
  CHECK(blocks * p.splits == p.members * p.slice_blocks);
  CHECK(p.chunk_blocks() % p.piece_blocks() == 0);
  CHECK((p.streamed > 0 && p.resident >= 0 && p.slots >= 2 && p.stages % p.splits == 0));
  CHECK(p.held == held_pieces(kForms[p.form], layer.gates));
  CHECK((p.item_warps() + p.jobs() == p.workers && p.publishers() == p.item_warps()));
  CHECK(p.rows * p.units / 2 <= p.item_warps() * 32 * kForms[p.form].items);
  CHECK((p.kept >= 0 && p.kept <= p.streamed));
  CHECK(p.ring_at == p.jobs() * p.resident * p.piece_bytes());
  CHECK(p.x_at == p.ring_at + p.jobs() * p.slots * p.piece_bytes());
  CHECK(p.barriers_at + 16 * p.stages + 8 * p.jobs() * p.slots <= p.shared_bytes);
  CHECK((p.ring_at % 16 == 0 && p.x_at % 16 == 0 && p.barriers_at % 8 == 0));
  // A warp's pieces are the blocks of its chunks, in turn, and `fill` and `take` agree about where
  // each is that is not in registers.
  std::vector<int> taken(size_t(p.members) * p.slice_blocks);
  const int rest = p.resident + p.streamed;
  for (int split = 0; split < p.splits; ++split)
    for (int piece = 0, debt = 0; piece < pieces; ++piece) {
      const int turn = piece * p.piece_blocks() / p.chunk_blocks();
      const int block = (split + turn * p.splits) * p.chunk_blocks() + piece * p.piece_blocks() -
                        turn * p.chunk_blocks();
      for (int n = 0; n < p.piece_blocks(); ++n) ++taken[size_t(block + n)];
      const int number = piece - p.held;
      if (number < 0) continue;
      debt += p.streamed;
      CHECK((debt >= rest) == ((number + 1) * p.streamed / rest > number * p.streamed / rest));
      if (debt >= rest) debt -= rest;
    }
  CHECK(std::all_of(taken.begin(), taken.end(), [](int n) { return n == 1; }));
}

// The neighbours of a cluster multiply each block of k with each of their unit tiles once, and each
// place of the owner's z gets one sum. Stages stay with a split, and z overlays nothing.
void check_cut(const Plan& p, const LayerShape& layer, const Device& device) {
  CHECK((device.hopper() && layer.backward && p.bulk && p.products == 1));
  CHECK((p.cut <= device.largest_cut && p.members % p.cut == 0));
  CHECK((p.parts == p.cut * p.splits && p.parts <= 16 && p.chunks % p.splits == 0));
  CHECK(p.x_at + p.stages * p.chunk_bytes() <= p.z_at);
  CHECK(p.barriers_at + 16 * p.stages + 16 <= p.shared_bytes);
  const int blocks = p.cut_members() * p.slice_blocks, all = p.members * p.slice_blocks;
  std::vector<int> multiplied(size_t(p.tiles()) * p.cut * p.row_groups * all);
  std::vector<int> sent(size_t(p.cut) * p.parts * p.tiles() * p.row_groups);
  for (int cut = 0; cut < p.cut; ++cut)
    for (int job = 0; job < p.jobs(); ++job) {
      const int split = job % p.splits, rest = job / p.splits;
      const int tile = rest / p.row_groups, rows = rest % p.row_groups;
      const int owner = tile / p.tiles(), part = cut * p.splits + split;
      const int place = (owner * p.parts + part) * p.tiles() + tile % p.tiles();
      ++sent[size_t(place) * p.row_groups + rows];
      for (int chunk = split; chunk < p.chunks; chunk += p.splits)
        for (int i = chunk * p.chunk_blocks(); i < (chunk + 1) * p.chunk_blocks(); ++i)
          if (i < blocks) ++multiplied[size_t(rest) * all + cut * blocks + i];
    }
  CHECK(std::all_of(multiplied.begin(), multiplied.end(), [](int n) { return n == 1; }));
  CHECK(std::all_of(sent.begin(), sent.end(), [](int n) { return n == 1; }));
}

void check(const Plan& p, const LayerShape& layer, const Device& device = kHopper) {
  const Form& form = kForms[p.form];
  CHECK(p.exchange == form.exchange);
  if (p.exchange == Exchange::kRegisters) return check_registers(p, layer);
  CHECK(p.row_tiles == form.row_tiles);
  CHECK(int64_t(p.members) * p.units >= layer.H);
  // Small batches have no padded rows of x.
  CHECK((p.rows == p.z_rows() || (p.rows == layer.B && p.z_rows() == kRowTile)));
  CHECK(form.streams == (p.streamed > 0));
  if (form.streams)
    check_streamed(p, layer);
  else
    CHECK(int64_t(p.members - p.cut) * p.units < layer.H);  // nobody is idle
  CHECK(form.cuts == (p.cut > 1));
  if (form.cuts) check_cut(p, layer, device);
  CHECK(p.jobs() <= p.workers);
  CHECK(int64_t(p.workers) * 32 * form.items >= int64_t(p.rows) * p.units / 2);
  CHECK(p.shared_bytes <= device.shared_bytes);
  CHECK((p.number_bytes == layer.number_bytes && is_compiled(form, p.number_bytes)));
  const int64_t matrix =
      int64_t(p.units) * p.products * p.members * p.slice_blocks * kTile * p.number_bytes;
  CHECK((p.parts >= 1 && (p.splits % p.parts == 0 || form.cuts)));
  const int64_t z =
      int64_t(p.parts) * p.products * p.tiles() * p.z_rows() * kZStride * sizeof(float);
  CHECK(((p.x_at >= matrix || form.streams) && p.z_at + z <= p.barriers_at));
  if (p.exchange == Exchange::kGrid) {
    CHECK(p.members * p.teams <= device.blocks);
    CHECK(p.threads() <= 32 * warps_of(form, p.number_bytes));
    CHECK((!p.bulk || (device.hopper() && !p.marked)));
    CHECK((!p.marked || (p.number_bytes == 2 && p.streamed == 0)));
    CHECK((p.producers == 1 || (!p.bulk && (p.producers == 2 || p.producers == 4))));
    CHECK(p.chunk_bytes() % 16 == 0);  // of one copy without bulk copies
    CHECK(p.groups() * p.pieces == p.chunks);
    const int sources = p.cut_members();
    CHECK((p.groups() * p.group >= sources && (p.groups() - 1) * p.group < sources));
    // Pieces are whole blocks of k, and no group is shorter than its pieces assume.
    CHECK(p.chunk_blocks() * p.pieces == p.group * p.slice_blocks);
    CHECK((p.pieces == 1 || sources % p.group == 0));
    CHECK(p.x_at + p.stages * p.chunk_bytes() <= p.barriers_at);
    CHECK((p.stages >= 1 && p.stages <= 32));  // one per lane of a producer
    check_stages(p);
  } else {
    CHECK((int64_t(p.teams) * p.rows >= layer.B && p.workers <= warps_of(form, p.number_bytes)));
    const int64_t sides = p.exchange == Exchange::kCluster ? 2 * p.members : 1;
    CHECK(p.x_at + sides * p.slice_bytes() <= p.z_at);
    CHECK(((p.exchange == Exchange::kAlone) == (p.members == 1) && p.members <= 16));
    CHECK((p.exchange == Exchange::kAlone || device.hopper()));
  }
}

bool on_chip(const LayerShape& layer) {
  LayerShape back = layer;
  back.backward = true;
  return plan_for(kHopper, layer).members > 0 && plan_for(kHopper, back).members > 0;
}
bool is_limit(int64_t H, int64_t B, int gates, int bytes) {
  return on_chip({B, H, gates, false, bytes}) && !on_chip({B, H + 8, gates, false, bytes});
}

}  // namespace

TEST_CASE("plans for an H200") {
  int made = 0;
  for (const int bytes : {2, 4})
    for (int64_t H : {8, 48, 128, 160, 256, 400, 512, 832, 1024, 1152, 1536, 2048, 2304, 4096})
      for (int64_t B : {1, 3, 20, 100, 128, 1000, 100000})
        for (int gates = 2; gates <= 5; ++gates)
          for (const bool backward : {false, true}) {
            const LayerShape layer{B, H, gates, backward, bytes};
            const Plan plan = plan_for(kHopper, layer);
            if (plan.members == 0) {
              // All of the papers' sizes fit in bfloat16, and the smaller ones fit in float. With
              // few rows, U is streamed.
              CHECK((bytes == 2 ? H > 1152 && B > 16 : H > 512 || B > 128));
              continue;
            }
            check(plan, layer);
            ++made;
          }
  CHECK(plan_for(kHopper, {17, 8192, 3, false, 2}).members == 0);
  CHECK(plan_for(kHopper, {0, 128, 3, false, 2}).members == 0);  // nothing to do
  const Device turing{40, 65536, 7, 1, true};                    // lacks instructions of 8.0
  CHECK(plan_for(turing, {8, 128, 3, false, 2}).members == 0);

  // The widest layers that fit, without streaming.
  const int64_t limits[] = {2112, 2112, 1792, 1424};
  for (int gates = 2; gates <= 5; ++gates) CHECK(is_limit(limits[gates - 2], 128, gates, 2));

  // With five gates, a stage holds only parts of slices, but all rows of them.
  Device few = kHopper;
  few.largest_cut = 1;
  const Plan parts = plan_for(few, {80, 1152, 5, true, 2});
  CHECK((parts.pieces > 1 && parts.rows == 80));

  // Lower-ranked plans, which are used only for measurements, are also valid.
  for (const LayerShape& layer :
       {LayerShape{100, 512, 3, true, 4}, LayerShape{128, 832, 3, false, 4},
        LayerShape{128, 832, 3, true, 2}, LayerShape{80, 1152, 3, true, 2},
        LayerShape{80, 1152, 5, true, 2}, LayerShape{17, 48, 3, false, 2},
        LayerShape{9, 128, 3, true, 2}, LayerShape{1, 2048, 4, false, 2},
        LayerShape{17, 64, 5, true, 4}, LayerShape{9, 128, 4, false, 4},
        LayerShape{16, 3072, 4, true, 2}, LayerShape{5, 2200, 3, true, 2}}) {
    Plan plan = plan_ranked(kHopper, layer, 0);
    CHECK(estimate(kHopper, layer, plan) == estimate(kHopper, layer, plan_for(kHopper, layer)));
    double before = 0;
    for (int rank = 0; plan.members > 0 && rank < 40; plan = plan_ranked(kHopper, layer, ++rank)) {
      check(plan, layer);
      const double now = estimate(kHopper, layer, plan);
      CHECK(now >= before);
      before = now;
    }
  }

  // Streamed plans: with 8 rows and more, one or several teams, and little or much on the chip.
  std::set<std::tuple<int, bool, bool, bool>> streamed;
  for (const LayerShape& layer :
       {LayerShape{1, 3072, 2, false, 2}, LayerShape{1, 3072, 5, true, 2},
        LayerShape{9, 2112, 3, false, 2}, LayerShape{16, 1504, 4, false, 2},
        LayerShape{16, 2048, 3, true, 2}, LayerShape{16, 4096, 4, false, 2}})
    for (int rank = 0; rank < 2000; rank += 1 + rank / 10) {
      const Plan plan = plan_ranked(kHopper, layer, rank);
      if (plan.members == 0) break;
      if (plan.streamed == 0) continue;
      check(plan, layer);
      streamed.insert({plan.form, plan.teams > 1, plan.streamed == 1, plan.resident == 0});
    }
  const auto found = [&](const auto& is) {
    return std::any_of(streamed.begin(), streamed.end(), is);
  };
  CHECK(std::get<0>(*streamed.begin()) < std::get<0>(*streamed.rbegin()));
  CHECK(found([](const auto& plan) { return std::get<1>(plan); }));
  CHECK(found([](const auto& plan) { return std::get<2>(plan); }));
  CHECK(found([](const auto& plan) { return std::get<3>(plan); }));

  // Grids whose neighbours cut k: there are some for every cut, with all of their forms.
  std::set<std::pair<int, int>> cuts;  // cut, form
  for (const LayerShape& layer :
       {LayerShape{20, 1152, 3, true, 2}, LayerShape{20, 1152, 4, true, 2},
        LayerShape{16, 2048, 3, true, 2}, LayerShape{128, 832, 3, true, 2},
        LayerShape{100, 512, 4, true, 2}, LayerShape{33, 152, 5, true, 2},
        LayerShape{17, 16, 2, true, 2}})
    for (int rank = 0; rank < 3000; rank += 1 + rank / 20) {
      const Plan plan = plan_ranked(kHopper, layer, rank);
      if (plan.members == 0) break;
      if (plan.cut == 1) continue;
      check(plan, layer);
      cuts.insert({plan.cut, plan.form});
    }
  CHECK(cuts.size() == 6);
  for (const LayerShape& layer :
       {LayerShape{20, 1152, 3, false, 2}, LayerShape{20, 384, 3, true, 4}})
    for (int rank = 0; rank < 40; ++rank) CHECK(plan_ranked(kHopper, layer, rank).cut == 1);
  // A device without clusters of 4, or without any, gets another plan.
  for (few.largest_cut = 4; few.largest_cut > 0; --few.largest_cut)
    check(plan_for(few, {20, 1152, 4, true, 2}), {20, 1152, 4, true, 2}, few);

  // Small layers with common batch sizes stay in registers. Larger ones would spill.
  for (const bool backward : {false, true}) {
    CHECK(plan_for(kHopper, {128, 128, 3, backward, 2}).exchange == Exchange::kRegisters);
    CHECK(plan_for(kHopper, {1, 96, 5, backward, 2}).exchange == Exchange::kRegisters);
    for (const int64_t B : {1, 16, 64, 256, 1024})
      CHECK(plan_for(kHopper, {B, 64, 3, backward, 4}).exchange == Exchange::kRegisters);
    CHECK(plan_for(kHopper, {128, 128, 3, backward, 4}).exchange == Exchange::kRegisters);
    CHECK(plan_for(kHopper, {128, 136, 3, backward, 4}).exchange != Exchange::kRegisters);
    // A layer of up to 64 units does not multiply the zeros of one of 128.
    for (const int bytes : {2, 4}) {
      const Plan small = plan_for(kHopper, {16, 64, 3, backward, bytes});
      CHECK(small.slice_blocks == 4 * (backward ? 3 : 1));
    }
    CHECK(plan_for(kHopper, {128, 160, 3, backward, 2}).exchange == Exchange::kRegisters);
    CHECK(plan_for(kHopper, {128, 160, 4, backward, 2}).exchange == Exchange::kRegisters);
    CHECK(plan_for(kHopper, {128, 168, 3, backward, 2}).exchange != Exchange::kRegisters);
  }

  // With a library for products, steps are one more plan: the best for many rows and units.
  const Device with_products{132, 232448, 9, 16, true};
  for (const bool backward : {false, true})
    for (const int bytes : {2, 4}) {
      const auto way = [&](int64_t B, int64_t H) {
        return plan_for(with_products, {B, H, 3, backward, bytes}).exchange;
      };
      CHECK(way(1024, 2048) == Exchange::kSteps);
      CHECK(way(17, 8192) == Exchange::kSteps);
      CHECK(way(128, 128) != Exchange::kSteps);
      CHECK(way(20, 512) != Exchange::kSteps);
    }
  // U of few rows is streamed where it does not fit.
  for (const bool backward : {false, true}) {
    CHECK(plan_for(with_products, {1, 1536, 4, backward, 2}).streamed == 0);
    for (const int64_t H : {2048, 3072, 4096})
      CHECK(plan_for(with_products, {1, H, 4, backward, 2}).streamed > 0);
    CHECK(plan_for(with_products, {16, 2048, 4, backward, 2}).streamed > 0);
    // The cache keeps all that is streamed, or a part.
    const Plan all = plan_for(with_products, {1, 2048, 4, backward, 2});
    const Plan part = plan_for(with_products, {1, 3072, 4, backward, 2});
    CHECK((all.kept == all.streamed && part.kept > 0 && part.kept < part.streamed));
  }
  CHECK(plan_for(with_products, {20, 1152, 3, true, 2}).exchange == Exchange::kGrid);  // word PTB
  CHECK(plan_for(with_products, {0, 128, 3, false, 2}).members == 0);

  // A device without large clusters gets another plan.
  const LayerShape wide{100, 512, 3, false, 2};
  CHECK(plan_for(kHopper, wide).exchange == Exchange::kCluster);
  CHECK(plan_for(kHopper, wide).members == 16);
  const Plan other = plan_for({132, 232448, 9, 8}, wide);
  check(other, wide);
  CHECK((other.exchange == Exchange::kGrid || other.members <= 8));
  CHECK(made > 400);
}

TEST_CASE("plans for parts of an H200") {  // as MPS or MIG divide it
  for (const int blocks : {16, 33, 48, 60, 66, 74, 82, 100, 120}) {
    Device device = kHopper;
    device.blocks = blocks;
    int grids = 0;
    for (const int bytes : {2, 4})
      for (int64_t H : {8, 160, 256, 400, 512, 832, 1152})
        for (int64_t B : {1, 10, 20, 100})
          for (int gates = 2; gates <= 5; ++gates)
            for (const bool backward : {false, true})
              for (device.largest_cut = 4; device.largest_cut > 0; device.largest_cut -= 3) {
                const LayerShape layer{B, H, gates, backward, bytes};
                const Plan plan = plan_for(device, layer);
                if (plan.members == 0) continue;
                check(plan, layer, device);
                grids += plan.exchange == Exchange::kGrid;
              }
    CHECK(grids > 20);
  }
}

TEST_CASE("plans for other devices") {
  // A100, A10, L40S, L4, B200, RTX 5090; the last has fewer multiprocessors and more memory.
  const char* const devices[] = {"8.0,108,163",  "8.6,72,99",   "8.9,142,99", "8.9,58,99",
                                 "10.0,148,227", "12.0,170,99", "8.0,20,999"};
  for (const char* const like : devices) {
    const Device device = pretended(kHopper, like);
    CHECK((!device.hopper() && device.blocks <= kHopper.blocks));
    CHECK(device.shared_bytes <= kHopper.shared_bytes);
    CHECK(path_in_words(device) == "teams through L2, without clusters");
    int grids = 0;
    for (const int bytes : {2, 4})
      for (int64_t H : {8, 160, 512, 1152})
        for (int64_t B : {1, 20, 100})
          for (const int gates : {2, 3, 5})
            for (const bool backward : {false, true}) {
              const LayerShape layer{B, H, gates, backward, bytes};
              const Plan plan = plan_for(device, layer);
              if (plan.members == 0) {
                CHECK((H > 256 || bytes == 4));
                continue;
              }
              check(plan, layer, device);
              grids += plan.exchange == Exchange::kGrid;
            }
    CHECK(grids > 5);
    // The papers' small layers stay in registers.
    CHECK(plan_for(device, {40, 160, 3, true, 2}).exchange == Exchange::kRegisters);
  }
  const Device hopper = pretended(kHopper, "9.0,66,100");
  CHECK((hopper.hopper() && hopper.blocks == 66 && hopper.shared_bytes == 102400));
  CHECK(path_in_words(hopper) == "teams with clusters and bulk copies");

  for (const char* const wrong : {"", "8", "A100", "8.0,", "8.0,0", "8.0,108,x", "8.0,108,-1",
                                  "8.0,108,163,1", "8.06", "-8.0", "7.5"})
    CHECK_THROWS_AS(pretended(kHopper, wrong), tsm::Error);
  CHECK_THROWS_AS(pretended({108, 166912, 8, 1}, "9.0"), tsm::Error);
}
