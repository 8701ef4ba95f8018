#include "kernels/cuda/train/plan.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tsm::team {
namespace {

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t round_up(int64_t n, int64_t to) { return divided_up(n, to) * to; }

constexpr int kMaxStages = 32;  // one per lane of a producer
constexpr int kMaxRows = 128;

// Distributes the work of a member over its warps, of which `producers` fetch x; returns false if
// there are too few.
bool assign_warps(Plan& p, const LayerShape& layer) {
  const Form& form = kForms[p.form];
  p.exchange = form.exchange;
  p.row_tiles = form.row_tiles;
  p.row_groups = int(divided_up(p.rows, kRowTile)) / p.row_tiles;
  if (round_up(p.rows, kRowTile) != p.z_rows()) return false;
  p.products = layer.backward ? 1 : layer.gates;
  p.slice_blocks = p.tiles() * (layer.backward ? layer.gates : 1);
  if (p.splits > p.cut_members() * p.slice_blocks) return false;  // some splits would be idle
  const int64_t items = divided_up(int64_t(p.rows) * p.units / 2, 32 * form.items);  // in warps
  const int64_t most = warps_of(form, p.number_bytes) - p.producers;
  if (std::max<int64_t>(items, p.jobs()) > most) return false;
  // Items go to the first warps and jobs to the last. If possible these are different warps, so
  // that the cell's loads and stores overlap with the product.
  p.workers = int(std::min(items + p.jobs(), most));
  return true;
}

// Bytes of one part of z.
int64_t z_bytes(const Plan& p) {
  return int64_t(p.products) * p.tiles() * p.z_rows() * kZStride * 4;
}

// Derives the rest of the plan from form, members, units, rows, splits, bulk, producers, marked,
// group, pieces and cut; returns false if it does not fit.
bool complete(Plan& p, const Device& device, const LayerShape& layer) {
  if (!assign_warps(p, layer)) return false;
  const Form& form = kForms[p.form];
  const bool grid = form.exchange == Exchange::kGrid;
  const int64_t slice = p.slice_bytes();
  const int64_t matrix =
      int64_t(p.units) * p.products * p.members * p.slice_blocks * kTile * p.number_bytes;
  const int64_t part = z_bytes(p);
  const int64_t barriers = 16 * kMaxStages + (form.cuts ? 16 : 0);
  // If k is cut, z has its own buffer, with sums from all neighbours.
  const int64_t sums = form.cuts ? p.cut * p.splits * part : 0;
  const int64_t room = device.shared_bytes - matrix - barriers - sums;
  if (room <= 0) return false;
  int64_t x = slice;
  p.chunks = p.stages = 1;
  if (form.exchange == Exchange::kCluster) x = 2 * slice * p.members, p.stages = 2;
  if (grid) {
    p.chunks = int(divided_up(p.cut_members(), p.group)) * p.pieces;
    if (form.cuts && p.chunks % p.splits != 0) return false;
    p.stages = int(std::min<int64_t>({room / p.chunk_bytes(), p.chunks, kMaxStages}));
    // A stage that is refilled within a step stays with its split: see Plan::stages.
    if (p.stages < p.chunks) p.stages -= p.stages % p.splits;
    if (p.stages < std::min(p.chunks, 3)) return false;
    x = p.stages * p.chunk_bytes();
  }
  if (form.cuts) {
    p.parts = p.cut * p.splits;
    p.x_at = int(matrix);
    p.z_at = int(matrix + x);
    p.barriers_at = int(p.z_at + sums);
    p.shared_bytes = int(p.barriers_at + barriers);
    return true;
  }
  // z has its own buffer, except in a grid, where it overlays x.
  p.parts = p.splits;
  while (p.parts > 1 && (grid ? 0 : x) + p.parts * part > room) p.parts /= 2;
  const int64_t z = p.parts * part;
  const int64_t bytes = matrix + (grid ? std::max(x, z) : x + z);
  if (bytes > device.shared_bytes - 16 * kMaxStages) return false;
  p.x_at = int(matrix);
  p.z_at = grid ? p.x_at : int(matrix + x);
  p.barriers_at = int(bytes);
  p.shared_bytes = int(bytes + 16 * kMaxStages);
  return true;
}

// The same for a matrix that is streamed, from form, members, units, rows, splits, producers,
// group, stages and slots. All jobs have the same number of pieces: chunks are a multiple of
// splits.
bool complete_streamed(Plan& p, const Device& device, const LayerShape& layer) {
  if (!assign_warps(p, layer) || p.row_groups != 1) return false;
  p.pieces = 1;
  p.chunks = p.members / p.group;
  const int64_t x = p.stages * p.chunk_bytes();
  // A further part of z saves a pass over it, but takes memory from the matrix.
  for (p.parts = p.splits; p.parts > 1 && p.parts * z_bytes(p) > std::max<int64_t>(x, 16 << 10);)
    p.parts /= 2;
  const int64_t x_and_z = round_up(std::max(x, p.parts * z_bytes(p)), 16);  // z overlays x
  const int64_t barriers = 16 * p.stages + 8 * p.jobs() * p.slots;
  const int64_t all = p.chunks / p.splits * (p.chunk_blocks() / p.piece_blocks());
  const int64_t room = (device.shared_bytes - x_and_z - barriers) / p.jobs() / p.piece_bytes();
  if (room < p.slots || room >= all) return false;  // too little, or enough for the whole matrix
  p.resident = int(room) - p.slots;
  p.streamed = int(all) - p.resident;
  p.ring_at = int(p.jobs() * p.resident * p.piece_bytes());
  p.x_at = p.z_at = int(p.jobs() * room * p.piece_bytes());
  p.barriers_at = int(p.x_at + x_and_z);
  p.shared_bytes = int(p.barriers_at + barriers);
  return true;
}

// The tiles of a warp that a kRegisters plan keeps in shared memory.
int shared_tiles(const Plan& p, const LayerShape& layer) {
  const Form& form = kForms[p.form];
  return layer.gates * form.warps -
         register_tiles(form, layer.gates, layer.backward, layer.number_bytes);
}

// The same for a matrix in registers, from form and units; returns false if it is too large.
bool complete_registers(Plan& p, const Device& device, const LayerShape& layer) {
  const Form& form = kForms[p.form];
  if (layer.B == 0 || p.tiles() > form.warps) return false;
  if (register_tiles(form, layer.gates, layer.backward, layer.number_bytes) == 0) return false;
  p.exchange = form.exchange;
  p.members = 1;
  p.rows = kRegisterRows;
  p.teams = int(divided_up(layer.B, p.rows));
  p.workers = p.tiles();
  p.products = layer.backward ? 1 : layer.gates;
  p.slice_blocks = form.warps * (layer.backward ? layer.gates : 1);  // zeros beyond H
  p.row_tiles = p.row_groups = p.splits = p.parts = p.group = p.pieces = p.chunks = p.stages = 1;
  p.shared_bytes = 2 * register_x_bytes(p.slice_blocks, p.number_bytes);  // both buffers
  p.shared_bytes += p.workers * shared_tiles(p, layer) * kTile * kTile * p.number_bytes;
  return p.shared_bytes <= device.shared_bytes;
}

// Cycles of a multiprocessor for one instruction of its tensor cores (m16n8k16). Measured on 9.0;
// for others it follows from their data sheets.
double tensor_cycles(const Device& device) {
  const bool half = device.major >= 12 || (device.major == 8 && device.minor > 0);
  return half ? 4 : 2;
}

// Cycles of the product if x arrives in chunks: those of the busiest warp, or the time to use and
// refill the stages, whichever is longer.
double grid_job(const Plan& p, double chunk) {
  const double warp = double(divided_up(p.chunks, p.splits)) * (chunk + 158);
  const double stages = double(p.chunks) / p.stages * (chunk + 608);
  return p.chunks > p.stages ? std::max(warp, stages) + .04 * warp : warp;
}

// Bytes of a matrix that stay in the L2 cache of an H200 from one step to the next: of one of up to
// kCached all; of a larger one kKept, if the others are read with evict_first.
constexpr double kCached = 45e6, kKept = 38e6;

// Estimated cycles per step if the matrix is streamed: a warp's pieces, one after the other, or the
// copies; z, the cell and the exchange. Copies from memory and the exchange of x (`path`) hardly
// overlap. Fitted to 56 plans on an H200, in which the cache kept all or nothing; where it keeps a
// part, 12 to 15% too low (lstm, 1 x 3072). The slots are filled while the warps wait for x, which
// saves little: a step reads many times their size.
double stream_cycles(const Plan& p, const LayerShape& layer) {
  const double all = double(p.matrix_bytes()), member = all / p.members / p.teams;
  const double ring = double(p.jobs()) * p.slots * double(p.piece_bytes());
  const double x = double(p.slice_bytes()) * p.members;
  const double path = std::max(x / 40, x * p.members * p.teams / 2600);
  const double pieces = (layer.backward ? 600.0 : 500.0) * (p.streamed + p.resident);
  const double from_memory = all * (p.streamed - p.kept) / p.streamed;
  const double read = std::max(all / 3300, from_memory / (layer.backward ? 1800 : 2050));
  const double copies = all < kCached ? all / 3300 : read + path;
  const double z =
      (1.5 * p.parts + 2.5 * (p.splits - p.parts)) * p.products * p.units * p.z_rows() * 4 / 128 +
      100.0 * (p.splits / p.parts - 1) + 8.0 * p.workers;
  const double items = double(p.units) * p.rows;
  const double cell = layer.backward ? items * 55 / 128 + 300 : items * 80 / 128 + 600;
  return std::max({pieces, path, copies, member / ring * 1800}) + z + cell + 3500 +
         path / p.chunks + 40 * p.chunks;
}

// Estimated cycles per step: the product (the busiest warp, the throughput of tensor cores and
// shared memory, the bandwidth of the exchange), z, the cell, and the latency of the exchange,
// during which a part of backward's cell runs. Fitted to 2,971 plans of plstm and lstm in bfloat16
// on an H200: the chosen ones take 1% longer than the fastest, on average.
double cycles(const Plan& p, const LayerShape& layer, const Device& device) {
  const double tensor = tensor_cycles(device);
  const bool grid = p.exchange == Exchange::kGrid;
  const double depth = double(p.cut_members()) * p.slice_blocks;  // in blocks of k
  const bool exact = p.number_bytes == 4;  // six products instead of one, of split numbers
  const double passes = exact ? 6 : 1, split = exact ? 10 : 0;
  const double block = (grid ? 23.4 : 55.4) +
                       (grid ? 3.66 : 4.39) * tensor * passes * p.products * p.row_tiles +
                       split * (4 * p.products + 2 * p.row_tiles);
  const double job = grid ? grid_job(p, p.chunk_blocks() * block) : depth / p.splits * block;
  const int tiles = p.tiles() * p.cut;  // that are multiplied
  const double mma = tiles * p.products * depth * p.z_rows() / kRowTile * tensor * passes;
  const double operands = tiles * depth * (p.products * p.row_groups + p.z_rows() / 16.0);
  const double reads = operands * std::max(2.0 * p.number_bytes, split);
  const int added = std::max(0, p.splits - p.parts);  // to parts of z that are there
  const double part = p.cut > 1 ? 12 : 3.42;          // sums of a cut are sent
  const double z = (part * p.parts + 2.8 * added) * p.products * p.units * p.z_rows() * 4 / 128 +
                   517.0 * added / p.parts + 6.4 * p.workers + (p.cut > 1 ? 728 : 0);
  double cell = double(p.units) * p.rows * (layer.backward ? 232 : 161) / 128 + 674;
  if (exact) cell *= 2;
  if (layer.backward && p.exchange != Exchange::kAlone) cell *= .81;
  const double x = double(p.slice_bytes()) * p.cut_members();
  double latency = 342, path = 0;
  if (p.exchange == Exchange::kCluster)
    latency = 626 + x / 22.4 + 9.24 * p.members * (layer.backward ? layer.gates : 1);
  if (grid) {
    const double rate = p.bulk     ? 346
                        : p.marked ? 6.48 * p.producers
                                   : std::min(30.5, 14.7 * p.producers);
    path = std::max(x / rate, x * p.members * p.teams / (p.marked ? 4130 : 4480));
    const double each = p.bulk     ? (p.pieces > 1 ? 97 : 29)
                        : p.marked ? 731.0 / p.producers
                                   : 414.0 / p.producers;
    // Until the first chunk arrives; pieces of a group arrive together.
    latency = (p.bulk ? 3870 : p.marked ? 2200 : 2570) + path / p.chunks + each * p.chunks;
  }
  const double longest = std::max({job, mma, reads, path});
  return longest + (grid ? .37 * (job + reads) : 0) + z + cell + latency;  // overlap in part
}

// The same for a matrix in registers, over all rounds: tensor cores (in float, the ordinary cores),
// each serving a quarter of the warps, reading tiles and, in float, x from shared memory, and a
// chain of latencies. Several blocks with few warps share a multiprocessor. Not fitted in float:
// plstm's forward steps take 1.5 to 2.1 times as long.
double register_cycles(const Plan& p, const LayerShape& layer, const Device& device) {
  const bool exact = p.number_bytes == 4;
  const double tiles = double(kForms[p.form].warps) * layer.gates;  // of a warp
  const int64_t beside = std::max(1, 8 / p.workers), rounds = divided_up(p.teams, device.blocks);
  const double sharing = double(exact ? std::min(beside, rounds) : 1);
  const double each = exact ? 16 * sharing : 3.25 * tensor_cycles(device);
  const double products = each * tiles * double(divided_up(p.workers, 4));
  double reads = 2.0 * p.number_bytes * p.workers * shared_tiles(p, layer);
  if (exact) reads = (reads + (layer.backward ? 2 : 4) * p.slice_blocks * p.workers) * sharing;
  const double chain = 800 + (layer.backward ? (exact ? 250 : 150) : 0);
  return (std::max(products, reads) + std::min(products, reads) / 3 + chain) *
         double(divided_up(p.teams, device.blocks * beside));
}

// The number of rounds that the device needs for all teams.
double turns(const Plan& p, const Device& device, int64_t teams) {
  if (p.exchange == Exchange::kGrid) return double(divided_up(teams, p.teams));
  const int64_t beside = std::min<int64_t>(device.shared_bytes / p.shared_bytes,
                                           warps_of(kForms[p.form], p.number_bytes) / p.workers);
  // Large clusters do not fill the device, because their members must be in one group of
  // multiprocessors.
  const bool large = p.exchange == Exchange::kCluster && p.members > 2;
  const int64_t blocks = large ? device.blocks * 7 / 8 : device.blocks;
  if (beside <= 1) return double(divided_up(teams, std::max<int64_t>(1, blocks / p.members)));
  // Several blocks share a multiprocessor.
  return std::max(1.0, double(teams) * p.members / double(blocks));
}

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

constexpr double kMicrosecond = 1980;  // in cycles

// Estimated cycles per step without teams: two launches, the product (operations, or reading U),
// and the memory that the cell and the product's result take. Fitted to 47 shapes on an H200 (132
// multiprocessors), most of them within 15%; before 9.0, tensor cores have less than half of its
// rate in large products.
double step_cycles(const LayerShape& layer, const Device& device) {
  const double size = device.blocks / 132.0;
  const double rate = size * (device.major == 8 ? 0.45 : 1) * 2 / tensor_cycles(device);
  const double items = double(layer.B) * double(layer.H);
  const double matrix = layer.gates * double(layer.H) * double(layer.H);
  const bool exact = layer.number_bytes == 4;
  const double stored = matrix * layer.number_bytes;
  const double product =
      std::max(2 * double(layer.B) * matrix / (exact ? 45e6 * size : 860e6 * rate),
               stored / ((stored < kCached ? 6e6 : 3.8e6) * size));
  const double gates = double(layer.gates * layer.number_bytes);
  const double bytes = layer.backward ? 2 * gates + 30 : 3 * gates + 20;
  return ((layer.backward ? 5.9 : 4.4) + product + items * bytes / (4.4e6 * size)) * kMicrosecond;
}

// Calls take(plan, estimate) for every plan that fits.
template <class Take>
void each_plan(const Device& device, const LayerShape& layer, const Take& take) {
  if (device.major < 8 || layer.B == 0) return;
  // A step takes the host two launches, which a CUDA graph hides: it must be clearly faster.
  if (device.products) take(steps_plan(layer), 1.1 * step_cycles(layer, device));
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

double estimate(const Device& device, const LayerShape& layer, const Plan& plan) {
  if (plan.exchange == Exchange::kSteps) return step_cycles(layer, device);
  if (plan.exchange == Exchange::kRegisters) return register_cycles(plan, layer, device);
  const double step = plan.streamed > 0 ? stream_cycles(plan, layer) : cycles(plan, layer, device);
  return step * turns(plan, device, divided_up(layer.B, plan.rows));
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
