// How the work and the shared memory of a block are divided.
#include <algorithm>

#include "kernels/cuda/train/teams/planning.h"

namespace tsm::team {
namespace {

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
  // that the cell's loads and stores overlap with the product. With a streamed matrix they must be:
  // the registers of a warp with a job hold pieces.
  if (form.streams && items + p.jobs() > most) return false;
  p.workers = int(std::min(items + p.jobs(), most));
  return true;
}

// Bytes of one part of z.
int64_t z_bytes(const Plan& p) {
  return int64_t(p.products) * p.tiles() * p.z_rows() * kZStride * 4;
}

}  // namespace

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
  if (p.chunk_blocks() % p.piece_blocks() != 0) return false;
  const int64_t all = p.chunks / p.splits * (p.chunk_blocks() / p.piece_blocks());
  const int64_t room = (device.shared_bytes - x_and_z - barriers) / p.jobs() / p.piece_bytes();
  if (room < p.slots || room >= all) return false;  // too little, or enough for the whole matrix
  p.held = held_pieces(kForms[p.form], layer.gates);
  // At least one piece is streamed, even where registers and shared memory would hold them all.
  if (all <= p.held) return false;
  p.resident = int(std::min(room - p.slots, all - p.held - 1));
  p.streamed = int(all) - p.held - p.resident;
  p.ring_at = int(p.jobs() * p.resident * p.piece_bytes());
  p.x_at = p.z_at = int(p.ring_at + p.jobs() * p.slots * p.piece_bytes());
  p.barriers_at = int(p.x_at + x_and_z);
  p.shared_bytes = int(p.barriers_at + barriers);
  return true;
}

int shared_tiles(const Plan& p, const LayerShape& layer) {
  const Form& form = kForms[p.form];
  return layer.gates * form.warps -
         register_tiles(form, layer.gates, layer.backward, layer.number_bytes);
}

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

}  // namespace tsm::team
