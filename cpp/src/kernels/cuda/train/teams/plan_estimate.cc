// How many cycles a step of a plan takes.
#include <algorithm>

#include "kernels/cuda/train/teams/planning.h"

namespace tsm::team {
namespace {

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

// Estimated cycles per step if the matrix is streamed: a warp's pieces, one after the other, which
// overlap in part with the copies, those of U and then of x; z, the cell and the exchange. Fitted
// to 47 plans of plstm and lstm on an H200, most of them within 5%. The slots are filled while the
// warps wait for x, which saves little: a step reads many times their size.
double stream_cycles(const Plan& p, const LayerShape& layer) {
  const double all = double(p.matrix_bytes()), member = all / p.members / p.teams;
  const double ring = double(p.jobs()) * p.slots * double(p.piece_bytes());
  const double x = double(p.slice_bytes()) * p.members;
  const double path = std::max(x / 40, x * p.members * p.teams / 2600);
  const double pieces = 660.0 * (p.streamed + p.resident) + 280.0 * p.held;
  const double from_memory = all * (p.streamed - p.kept) / p.streamed;
  const double copies =
      std::max({all / 3080 + path, from_memory / 1580 + path, member / ring * 1970});
  const double z =
      (1.5 * p.parts + 2.5 * (p.splits - p.parts)) * p.products * p.units * p.z_rows() * 4 / 128 +
      100.0 * (p.splits / p.parts - 1) + 8.0 * p.workers;
  const double items = double(p.units) * p.rows;
  const double cell = layer.backward ? items * 10 / 128 + 490 : items * 250 / 128 + 180;
  return std::max(pieces, copies) + .15 * std::min(pieces, copies) + z + cell + 3380 +
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

}  // namespace

double estimate(const Device& device, const LayerShape& layer, const Plan& plan) {
  if (plan.exchange == Exchange::kSteps) return step_cycles(layer, device);
  if (plan.exchange == Exchange::kRegisters) return register_cycles(plan, layer, device);
  const double step = plan.streamed > 0 ? stream_cycles(plan, layer) : cycles(plan, layer, device);
  return step * turns(plan, device, divided_up(layer.B, plan.rows));
}

}  // namespace tsm::team
