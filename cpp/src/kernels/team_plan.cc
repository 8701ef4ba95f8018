#include "kernels/team_plan.h"

#include <algorithm>

namespace tsm::team {
namespace {

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t round_up(int64_t n, int64_t to) { return divided_up(n, to) * to; }

constexpr int kChunkBytes = 16 << 10;  // that arrive together through L2, about
constexpr int kMaxStages = 32;         // one a lane of the courier
constexpr int kMaxRows = 128;
constexpr int kRegisters = 65536, kThreadRegisters = 128;  // of a multiprocessor, of a thread

// Fills in what follows from form, members, units, rows and splits; false where it does not fit.
bool complete(Plan& p, const Device& device, const Layer& layer) {
  const Form& form = kForms[p.form];
  const bool grid = form.exchange == Exchange::kGrid;
  p.exchange = form.exchange;
  p.row_tiles = form.row_tiles;
  p.row_groups = p.rows / kRowTile / p.row_tiles;
  if (p.rows != p.row_groups * p.row_tiles * kRowTile) return false;
  p.products = layer.backward ? 1 : layer.gates;
  p.slice_blocks = p.tiles() * (layer.backward ? layer.gates : 1);
  const int64_t items = divided_up(int64_t(p.rows) * p.units / 2, 32 * form.items);  // in warps
  p.workers = int(std::max<int64_t>(items, p.jobs()));
  if (p.workers > kWarps - grid) return false;  // in a grid, a courier besides

  const int64_t slice = p.slice_bytes();
  const int64_t matrix = int64_t(p.units) * p.products * p.members * p.slice_blocks * kTile * 2;
  const int64_t z = int64_t(p.splits) * p.products * p.tiles() * p.rows * kZStride * 4;
  const int64_t room = device.shared_bytes - matrix - 16 * kMaxStages;
  int64_t x = slice;
  p.group = p.members;
  p.chunks = p.stages = 1;
  if (form.exchange == Exchange::kCluster) x = 2 * slice * p.members, p.stages = 2;
  if (grid) {
    const int64_t pieces = divided_up(slice * p.members, kChunkBytes);
    p.group = int(divided_up(p.members, pieces));
    p.chunks = int(divided_up(p.members, p.group));
    p.stages = int(std::min<int64_t>({room / (slice * p.group), p.chunks, kMaxStages}));
    if (p.stages < std::min(p.chunks, 3)) return false;
    x = std::max(p.stages * slice * p.group, z);  // z lies where x was
  }
  const int64_t bytes = matrix + x + (grid ? 0 : z);
  if (bytes > device.shared_bytes - 16 * kMaxStages) return false;
  p.x_at = int(matrix);
  p.z_at = grid ? p.x_at : int(matrix + x);
  p.barriers_at = int(bytes);
  p.shared_bytes = int(bytes + 16 * kMaxStages);
  return true;
}

// Cycles a step, counted roughly: the longest warp's product, what tensor cores and shared memory
// can do at most, the cell, and how long x is on its way.
double cycles(const Plan& p, const Layer& layer) {
  const double depth = double(p.members) * p.slice_blocks;  // in blocks of k
  const double job = depth / p.splits * (45 + 8.0 * p.products * p.row_tiles);
  const double mma = p.tiles() * p.products * depth * p.rows / kRowTile * 2;
  const double reads = p.tiles() * depth * (4.0 * p.products * p.row_groups + p.rows / 4.0);
  const double z = 1.5 * p.splits * p.products * p.units * p.rows * 4 / 128;
  const double cell = double(p.units) * p.rows * (layer.backward ? 110 : 80) / 128 + 600;
  const double x = double(p.slice_bytes()) * p.members;
  double way = 150;
  if (p.exchange == Exchange::kCluster) way = 1000 + x / 24;
  if (p.exchange == Exchange::kGrid)
    way = 2800 + std::max(x / 24, x * p.members * p.teams / 2600) + 300.0 * (p.chunks - p.stages);
  return std::max({job, mma, reads}) + z + cell + way;
}

// How often the device has to run the steps until all teams have had their turn.
double turns(const Plan& p, const Device& device, int64_t teams) {
  if (p.exchange == Exchange::kGrid) return double(divided_up(teams, p.teams));
  const int64_t beside = std::min<int64_t>(device.shared_bytes / p.shared_bytes,
                                           kRegisters / (p.worker_threads() * kThreadRegisters));
  // Clusters of many blocks do not fill the device: their members share a processor group.
  const int64_t blocks = p.exchange == Exchange::kCluster ? device.blocks * 7 / 8 : device.blocks;
  if (beside <= 1) return double(divided_up(teams, std::max<int64_t>(1, blocks / p.members)));
  return std::max(1.0, double(teams) * p.members / double(device.blocks));  // side by side
}

}  // namespace

Plan plan_for(const Device& device, const Layer& layer) {
  Plan best{};
  double least = 0;
  if (device.major < 9) return best;
  const int64_t tiles = divided_up(layer.H, kTile);
  for (int64_t of_member = 1; of_member <= tiles; ++of_member) {
    const int64_t members = divided_up(tiles, of_member);
    if (members > device.blocks || divided_up(tiles, members) != of_member) continue;
    for (int form = 0; form < kFormCount; ++form) {
      const Exchange exchange = kForms[form].exchange;
      if ((exchange == Exchange::kAlone) != (members == 1)) continue;
      if (exchange == Exchange::kCluster && members > 8 && members != 16) continue;
      for (int64_t rows = kRowTile;
           rows <= std::min<int64_t>(round_up(layer.B, kRowTile), kMaxRows); rows += kRowTile)
        for (int splits = 1; splits <= kWarps; splits *= 2) {
          Plan p{};
          p.form = form;
          p.members = int(members);
          p.units = int(of_member) * kTile;
          p.rows = int(rows);
          p.splits = splits;
          // Only blocks that exchange through L2 must all run at once.
          const int64_t teams = divided_up(layer.B, rows);
          const bool grid = kForms[form].exchange == Exchange::kGrid;
          p.teams = int(grid ? std::min(teams, device.blocks / members) : teams);
          if (!complete(p, device, layer)) continue;
          const double estimate = cycles(p, layer) * turns(p, device, teams);
          if (best.members == 0 || estimate < least) best = p, least = estimate;
        }
    }
  }
  return best;
}

}  // namespace tsm::team
