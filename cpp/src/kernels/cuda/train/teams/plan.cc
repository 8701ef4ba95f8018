#include "kernels/cuda/train/teams/plan.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/train/teams/planning.h"

namespace tsm::team {
namespace {

constexpr int kMaxRows = 128;

// A way to split x into chunks.
struct Chunking {
  int group, pieces;
};

// Chunks of whole slices, for group sizes that give every split (nearly) the same number of chunks.
std::vector<Chunking> whole_slices(int members, int splits) {
  std::vector<Chunking> found{{members, 1}};
  for (int chunks = splits; found.back().group > 1; chunks += splits) {
    const int group = int(divided_up(members, chunks));
    if (group < found.back().group) found.push_back({group, 1});
  }
  return found;
}

// Chunks of `blocks` blocks of k, smaller than a slice; a group has as many members as it takes to
// make whole chunks.
std::vector<Chunking> parts_of_slices(int members, int slice_blocks) {
  std::vector<Chunking> found;
  for (int blocks = slice_blocks - 1; blocks > 0; --blocks) {
    const int group = blocks / std::gcd(blocks, slice_blocks);
    if (members % group == 0) found.push_back({group, group * slice_blocks / blocks});
  }
  return found;
}

// The ways in which a grid's producers fetch x.
struct Fetch {
  bool bulk;
  int producers;
  bool marked;
};
constexpr Fetch kFetches[] = {{true, 1, false},  {false, 1, false}, {false, 2, false},
                              {false, 4, false}, {false, 1, true},  {false, 2, true},
                              {false, 4, true}};

// Calls take(plan) for the streamed plans of that many members, or some more that have no units, so
// that all warps take the same number of chunks.
template <class Take>
void each_streamed(const Device& device, const LayerShape& layer, Plan p, const Take& take) {
  const int needed = p.members;
  for (p.group = 1; p.group <= 16; p.group *= 2) {
    p.members = int(round_up(needed, p.group * p.splits));
    p.teams = int(divided_up(layer.B, p.rows));
    if (p.members * p.teams > device.blocks) continue;  // a second launch would read it all again
    const int chunks = p.members / p.group;
    for (int laps = 1; laps <= chunks / p.splits; laps *= 2) {
      p.stages = chunks / p.splits / laps * p.splits;
      if (p.stages > kMaxStages) p.stages = kMaxStages / p.splits * p.splits;
      for (p.slots = 2; p.slots <= 24; p.slots += p.slots < 8 ? 1 : 4) {
        if (!complete_streamed(p, device, layer)) continue;
        const double all = double(p.matrix_bytes());
        p.kept = all < kCached ? p.streamed : int(kKept / all * p.streamed);
        take(p);
        if (all < kCached) continue;
        p.kept = 0;
        take(p);
      }
    }
  }
}

// Calls take(plan) for the plans of a grid whose neighbours cut k. Some of the last members may
// have no units, so that all clusters are whole.
template <class Take>
void each_cut(const Device& device, const LayerShape& layer, const Take& take) {
  if (!device.hopper() || !layer.backward || layer.number_bytes != 2) return;
  const int64_t tiles = divided_up(layer.H, kTile);
  Plan p{};
  p.number_bytes = layer.number_bytes;
  p.bulk = true, p.producers = 1;
  for (p.cut = 2; p.cut <= device.largest_cut; p.cut *= 2) {
    // A cluster is in one group of multiprocessors: if an H200's have 16 and 18, 32 clusters of 4
    // run at once. Where fewer do, the plan is refused, and one with a smaller cut is made.
    const int64_t blocks = p.cut > 2 ? device.blocks * 32 / 33 : device.blocks;
    for (int64_t of_member = 1; of_member <= tiles; ++of_member) {
      const int64_t members = round_up(divided_up(tiles, of_member), p.cut);
      if (members > blocks || divided_up(tiles, members) != of_member) continue;
      p.members = int(members);
      p.units = int(of_member) * kTile;
      for (p.form = 0; p.form < kFormCount; ++p.form) {
        if (!kForms[p.form].cuts) continue;
        for (p.rows = 2 * kRowTile; p.rows < std::min<int64_t>(layer.B + kRowTile, kMaxRows + 1);
             p.rows += kRowTile)
          for (p.splits = 1; p.splits * p.cut <= kWarps; p.splits *= 2) {
            p.teams = int(std::min(divided_up(layer.B, p.rows), blocks / members));
            const auto try_all = [&](const std::vector<Chunking>& ways) {
              bool fits = false;
              for (const Chunking& way : ways) {
                p.group = way.group, p.pieces = way.pieces;
                if (!complete(p, device, layer)) continue;
                take(p);
                fits = true;
              }
              return fits;
            };
            if (!try_all(whole_slices(p.cut_members(), p.splits)))
              try_all(parts_of_slices(p.cut_members(), p.tiles() * layer.gates));
          }
      }
    }
  }
}

// Calls take(plan, estimate) for every plan that fits.
template <class Take>
void each_plan(const Device& device, const LayerShape& layer, const Take& take) {
  if (device.major < 8 || layer.B == 0) return;
  // A step takes the host two launches, which a CUDA graph hides: it must be clearly faster.
  if (device.products) {
    const Plan steps = steps_plan(layer);
    take(steps, 1.1 * estimate(device, layer, steps));
  }
  const int64_t tiles = divided_up(layer.H, kTile);
  for (int form = 0; form < kFormCount; ++form) {
    if (!is_compiled(kForms[form], layer.number_bytes)) continue;
    Plan p{};
    p.form = form;
    p.number_bytes = layer.number_bytes;
    p.units = int(tiles) * kTile;
    if (kForms[form].exchange == Exchange::kRegisters && complete_registers(p, device, layer))
      take(p, estimate(device, layer, p));
  }
  each_cut(device, layer, [&](const Plan& p) { take(p, estimate(device, layer, p)); });
  for (int64_t of_member = 1; of_member <= tiles; ++of_member) {
    const int64_t members = divided_up(tiles, of_member);
    if (members > device.blocks || divided_up(tiles, members) != of_member) continue;
    const int slice_blocks = int(of_member) * (layer.backward ? layer.gates : 1);
    for (int form = 0; form < kFormCount; ++form) {
      const Exchange exchange = kForms[form].exchange;
      if (exchange == Exchange::kRegisters || kForms[form].cuts) continue;
      if (!is_compiled(kForms[form], layer.number_bytes)) continue;
      if ((exchange == Exchange::kAlone) != (members == 1)) continue;
      if (exchange == Exchange::kCluster &&
          (!device.hopper() || members > device.largest_cluster || (members > 8 && members != 16)))
        continue;
      const int64_t fewest = std::min<int64_t>(layer.B, kRowTile);
      for (int64_t rows = fewest; rows < std::min<int64_t>(layer.B + kRowTile, kMaxRows + 1);
           rows += kRowTile)
        for (int splits = 1; splits <= kWarps; splits *= 2) {
          Plan p{};
          p.form = form;
          p.number_bytes = layer.number_bytes;
          p.members = int(members);
          p.units = int(of_member) * kTile;
          p.rows = int(rows);
          p.splits = splits;
          // Only blocks that exchange through L2 must all run at once.
          const int64_t teams = divided_up(layer.B, rows);
          const bool grid = exchange == Exchange::kGrid;
          p.teams = int(grid ? std::min(teams, device.blocks / members) : teams);
          if (kForms[form].streams) {
            p.bulk = true, p.producers = 1;
            if (device.hopper() && 2 * members >= device.blocks)
              each_streamed(device, layer, p,
                            [&](const Plan& one) { take(one, estimate(device, layer, one)); });
            continue;
          }
          const auto try_all = [&](const std::vector<Chunking>& ways) {
            bool fits = false;
            for (const Chunking& way : ways) {
              p.group = way.group, p.pieces = way.pieces;
              if (!complete(p, device, layer)) continue;
              take(p, estimate(device, layer, p));
              fits = true;
            }
            return fits;
          };
          if (!grid) try_all({{p.members, 1}});
          for (const Fetch& fetch : kFetches) {
            if (!grid || (fetch.bulk && !device.hopper()) || fetch.producers > splits) continue;
            // On 9.0, the other ways have been measured in bfloat16 only.
            const bool in_float = !fetch.marked && fetch.bulk == device.hopper();
            if (p.number_bytes != 2 && !in_float) continue;
            p.bulk = fetch.bulk, p.producers = fetch.producers, p.marked = fetch.marked;
            if (!try_all(whole_slices(p.members, splits)))
              try_all(parts_of_slices(p.members, slice_blocks));
          }
        }
    }
  }
}

}  // namespace

Device pretended(Device device, const std::string& like) {
  int major = 0, minor = 0, blocks = device.blocks, end = 0;
  int kilobytes = int(device.shared_bytes >> 10);
  const int found = std::sscanf(like.c_str(), "%2d.%1d%n,%4d%n,%4d%n", &major, &minor, &end,
                                &blocks, &end, &kilobytes, &end);
  require(found >= 2 && size_t(end) == like.size() && major >= 8 && minor >= 0 && blocks > 0 &&
              kilobytes > 0,
          "the pretended device is '" + like +
              "'; accepted: capability[,multiprocessors[,KB of shared memory]], such as 8.6,84,99, "
              "from 8.0 on");
  require(major != 9 || device.hopper(),
          "only a device of compute capability 9.0 can pretend to be one");
  device.major = major;
  device.minor = minor;
  device.blocks = std::min(device.blocks, blocks);
  device.shared_bytes = std::min<int64_t>(device.shared_bytes, int64_t(kilobytes) << 10);
  return device;
}

std::string path_in_words(const Device& device) {
  return device.hopper() ? "teams with clusters and bulk copies"
                         : "teams through L2, without clusters";
}

Plan steps_plan(const LayerShape& layer) {
  Plan p{};
  p.exchange = Exchange::kSteps;
  p.members = p.teams = 1;
  p.rows = int(layer.B);
  p.units = int(layer.H);
  p.number_bytes = layer.number_bytes;
  return p;
}

Plan plan_for(const Device& device, const LayerShape& layer) {
  Plan best{};
  double least = 0;
  each_plan(device, layer, [&](const Plan& plan, double estimate) {
    if (best.members == 0 || estimate < least) best = plan, least = estimate;
  });
  return best;
}

Plan plan_ranked(const Device& device, const LayerShape& layer, int rank) {
  std::vector<std::pair<double, Plan>> all;
  each_plan(device, layer,
            [&](const Plan& plan, double estimate) { all.emplace_back(estimate, plan); });
  if (rank < 0 || size_t(rank) >= all.size()) return {};
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return all[size_t(rank)].second;
}

}  // namespace tsm::team
